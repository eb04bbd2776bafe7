"""f as a mean over more rows than one graph or one memory can hold."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from firstish.objectives import sampling
from firstish.objectives.choosing import ChoosingPoint
from firstish.objectives.chunks import Chunk, as_chunks, mapped, rows_of
from firstish.objectives.first_look import FirstLook
from firstish.objectives.functional import FunctionalLoss
from firstish.objectives.group import Group
from firstish.objectives.loss import independent
from firstish.objectives.point import Depth, Meter, Point, Product
from firstish.objectives.products import FLOAT64_EPS, Mode, ProductChoice
from firstish.objectives.random_state import Replay
from firstish.objectives.summed import Sum, SummedLoss
from firstish.objectives.watch import graph_eps
from firstish.vectors import dot


class Totals(NamedTuple):
    """Sums over all rows of all processes."""

    value: float
    denominator: float
    vector: Tensor | None = None  # of the gradient, or of the product
    kept: tuple[Tensor, Tensor] | None = None  # the gradient with its graph, and the leaf


class FiniteSum:
    """f(x) = sum of the rows' losses / their denominator + weight_decay/2 |x|^2, chunk by chunk.

    It gives what `ModuleObjective` gives, in memory that does not grow with the data: no graph
    outlives its chunk, and sums are kept in float64. Value and gradient come of one pass over the
    data (the unit step is nearly always accepted, so the gradient is nearly always wanted); a
    product is a second pass. Data that is a single chunk keeps its graph for the product.

    torch's losses, as modules or functions, also in `functools.partial`, are taken apart into sum
    and denominator, so that class weights and ignored targets come out right. Another loss
    function must be the mean over its rows; one whose rows weigh differently goes into `Summed`.

    Args:
        model: the module; without BatchNorm in train mode, which ties rows together.
        loss_fn: takes the outputs and the targets (the outputs alone without targets).
        data: `(inputs, targets)`, a Dataset, or a DataLoader that does not shuffle or drop.
            Inputs that are a tuple are the model's arguments.
        chunk_size: rows evaluated at a time.
        weight_decay: lambda in the formula above.
        hessian_sample: products use a sample of the rows, drawn with replacement and anew at each
            point: a count, a share in (0, 1], or a `HessianSample`. None for all rows.
        process_group: of `torch.distributed`; `data` is then this process's share, and f the
            mean over all of them.
        product: "double-backward", "difference" (no second graph), or "auto".
        check: at the first evaluation, see that the data comes in the same order every time, that
            rows do not depend on each other and that labels are classes.
        seed: for the samples.

    Examples:
        >>> model, loss_fn = nn.Linear(2, 1, bias=False), nn.functional.mse_loss
        >>> objective = FiniteSum(model, loss_fn, (torch.eye(2), torch.ones(2, 1)), chunk_size=1)
        >>> objective.at(torch.zeros(2)).value
        1.0
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., object],
        data: object,
        *,
        chunk_size: int = 4096,
        weight_decay: float = 0.0,
        hessian_sample: sampling.SampleSize | None = None,
        process_group: Any = None,
        product: Mode = "auto",
        check: bool = True,
        seed: int = 0,
    ) -> None:
        if product == "gauss-newton":
            raise ValueError("`FiniteSum(product='gauss-newton')` is not there: use 'auto'.")
        if not 0 <= weight_decay < math.inf:
            raise ValueError(
                f"`FiniteSum(weight_decay=...)` must be at least 0 and finite, got {weight_decay}."
            )
        sampling.check_sample(hessian_sample, "FiniteSum")
        self._loss = SummedLoss(loss_fn, "FiniteSum")
        self._function = FunctionalLoss(model, self._loss, "FiniteSum")
        self.model = self._function.model
        self.layout = self._function.layout
        self.chunks = as_chunks(data, chunk_size)
        self.group = Group(process_group, self.layout.device)
        self.weight_decay = weight_decay
        self.meter = Meter()
        self.product = ProductChoice(product, "FiniteSum")
        self.grad_scale = 0.0
        self.eps = torch.finfo(self.layout.dtype).eps
        self.seed = seed
        self._random = Replay()
        self._keepable = self.chunks.single
        self._look = FirstLook(self.model, self._loss, self.local_sum) if check else None
        self._looked = False
        self.rows, self.sample_size = self._sizes(hessian_sample)
        self._require_same(weight_decay, product, seed)

    def _sizes(self, hessian_sample: sampling.SampleSize | None) -> tuple[int | None, int | None]:
        """The rows of all processes, and how many a product draws of them."""
        mine = self.chunks.total
        if mine is None or not self.chunks.can_sample:
            if hessian_sample is not None:
                raise ValueError(
                    "`FiniteSum(hessian_sample=...)` draws rows, but this DataLoader gives "
                    "batches only. Use a Dataset, or a DataLoader in plain order over one."
                )
            self._offset = 0
            return None, None
        counts = [int(n) for n in self.group.from_all(mine)]
        total = sum(counts)
        if total == 0:
            raise ValueError("`FiniteSum(data=...)` is empty: there is no row to average over.")
        self._offset = sum(counts[: self.group.rank])
        if hessian_sample is None:
            return total, None
        size = sampling.sample_size(hessian_sample, total)
        return total, None if size >= total else size

    def _require_same(self, *settings: object) -> None:
        layout = self.layout
        text = repr((layout.shapes, layout.dtype, self.sample_size, *settings))
        self.group.require_same(
            zlib.crc32(text.encode()),
            "models or settings",
            "Build the same model with the same arguments on every rank.",
        )

    def is_of(self, module: nn.Module) -> bool:
        """Whether this is the objective of that module."""
        return self._function.is_of(module)

    def initial(self) -> Tensor:
        """The model's parameters as one vector."""
        return self._function.initial()

    def load(self, x: Tensor) -> None:
        """Write the vector into the model's parameters."""
        self._function.load(x)

    def check_vector(self, x: Tensor) -> None:
        """Refuse a vector that is not one of this objective's."""
        self.layout.check_vector(x)

    def at(self, x: Tensor, depth: Depth = "product") -> FiniteSumPoint:
        """The point x, not yet evaluated."""
        return FiniteSumPoint(self, x, depth)

    def local_sum(self, leaf: Tensor, chunk: Chunk) -> Sum:
        """One chunk's sum and denominator, with a graph if the leaf requires one."""
        rows = rows_of(chunk)
        device = self.layout.device
        inputs, targets = mapped(chunk, lambda t: t.to(device, non_blocking=True))
        buffers = self._function.buffers()
        result, _ = self._function(leaf, inputs, (targets, rows), buffers)
        assert isinstance(result, Sum)
        return result

    def first_look(self, x: Tensor) -> None:
        """Before the first evaluation: see whether the data and the loss can be trusted."""
        if self._looked:
            return
        self._looked = True
        self.group.require_same(
            float(x.sum(dtype=torch.float64)),
            "starting points",
            "Seed every rank the same, or broadcast rank 0's parameters.",
        )
        if self._look is not None:
            self._random(self._look, x, self.chunks)
        leaf = x.detach().requires_grad_()
        for chunk in self.chunks:
            self.eps = max(self.eps, graph_eps(self._random(self.local_sum, leaf, chunk).total))
            break

    def value(self, x: Tensor) -> Totals:
        """One forward pass."""
        return self._random(self._value_pass, x)

    def _value_pass(self, x: Tensor) -> Totals:
        value = denominator = 0.0
        leaf = x.detach()
        for chunk in self.chunks:
            s = self.local_sum(leaf, chunk)
            value, denominator = value + s.total.item(), denominator + s.denominator
        self.meter.passes += 1
        return self._reduced(value, denominator, None)

    def gradient(self, x: Tensor, keep: bool = False) -> Totals:
        """One forward and one backward pass; `keep` the graph of the only chunk."""
        return self._random(self._gradient_pass, x, keep and self._keepable)

    def _gradient_pass(self, x: Tensor, keep: bool) -> Totals:
        value = denominator = 0.0
        vector, kept = self._zeros(), None
        for chunk in self.chunks:
            leaf = x.detach().requires_grad_()
            s = self.local_sum(leaf, chunk)
            value, denominator = value + s.total.item(), denominator + s.denominator
            if keep:
                try:
                    kept = (self._chunk_gradient(s.total, leaf, create_graph=True), leaf)
                except RuntimeError:  # the product will say why, on all ranks together
                    self._keepable = False
                    return self._gradient_pass(x, keep=False)
            g = kept[0] if kept else self._chunk_gradient(s.total, leaf)
            vector.add_(g.detach())
        self.meter.passes += 2
        return self._reduced(value, denominator, vector)._replace(kept=kept)

    def sampled_gradient(self, x: Tensor, chunks: Iterable[Chunk], share: float) -> Tensor:
        """The sum over a sample's rows, times rows over sample; no part in f itself."""
        vector = self._zeros()
        for chunk in chunks:
            leaf = x.detach().requires_grad_()
            vector.add_(self._chunk_gradient(self.local_sum(leaf, chunk).total, leaf).detach())
        self.meter.passes += 2 * share
        return self.group.add(vector) / share

    def hessian_product(
        self, point: FiniteSumPoint, v: Tensor, kept: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """The sum over the rows, or rows/sample times that over a sample of them.

        On the graph that was kept if there is one, else a forward, a backward and a product for
        each chunk.
        """
        share = point.product_fraction
        vector = self._random(self._product_pass, point, v, kept)
        self.meter.passes += 2 if kept is not None else 4 * share
        return vector / share

    def _product_pass(
        self, point: FiniteSumPoint, v: Tensor, kept: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        vector, failure = self._zeros(extra=1), None
        try:
            if kept is not None:
                vector[:-1].add_(product_on(*kept, v))
            else:
                for chunk in self.sample(point.value, point.grad_norm):
                    vector[:-1].add_(self.product_of(chunk, point.x, v))
        except (RuntimeError, NotImplementedError) as error:
            failure = error
            vector[-1] = 1.0
        self.group.add(vector)  # all ranks fail together, also those with no rows
        if vector[-1] > 0:
            raise failure or RuntimeError("double backward failed on another rank")
        return vector[:-1]

    def product_of(self, chunk: Chunk, x: Tensor, v: Tensor) -> Tensor:
        """H v for the sum over one chunk's rows."""
        leaf = x.detach().requires_grad_()
        s = self.local_sum(leaf, chunk)
        return product_on(self._chunk_gradient(s.total, leaf, create_graph=True), leaf, v)

    def _chunk_gradient(self, total: Tensor, leaf: Tensor, create_graph: bool = False) -> Tensor:
        if not total.requires_grad:
            raise independent("the loss")
        (g,) = torch.autograd.grad(total, leaf, create_graph=create_graph)
        return g

    def _zeros(self, extra: int = 0) -> Tensor:
        wide = torch.float32 if self.layout.device.type == "mps" else torch.float64
        return torch.zeros(self.layout.total + extra, dtype=wide, device=self.layout.device)

    def _reduced(self, value: float, denominator: float, vector: Tensor | None) -> Totals:
        """The sums over all processes, in one message."""
        self._loss.look = False  # every label has been seen
        size = 0 if vector is None else len(vector)
        if not self.group.alone:
            numbers = torch.tensor([value, denominator], dtype=torch.float64)
            numbers = numbers.to(self.layout.device)
            bucket = numbers if vector is None else torch.cat([vector, numbers])
            self.group.add(bucket)
            value, denominator = bucket[size:].tolist()
            vector = None if vector is None else bucket[:size]
        if self._loss.is_sum:
            denominator = 1.0
        if denominator == 0:
            raise ValueError(
                "`FiniteSum(data=...)` has nothing to average over: the denominator of the loss "
                "is 0 (no rows, or every target ignored)."
            )
        return Totals(value, denominator, vector)

    def sample(self, value: float, grad_norm: float) -> Iterable[Chunk]:
        """The rows of this process that a product at a point with these numbers uses."""
        if self.sample_size is None or self.rows is None:
            return self.chunks
        if self._random.draws:
            raise ValueError(
                "`FiniteSum(hessian_sample=...)` needs a loss without random numbers: a dropout "
                "mask belongs to its row. Use `model.eval()`."
            )
        chosen = sampling.draw(self.seed, value, grad_norm, self.sample_size, self.rows)
        mine = self.chunks.total or 0
        local = chosen[(chosen >= self._offset) & (chosen < self._offset + mine)] - self._offset
        return self.chunks.rows(local)


def product_on(g: Tensor, leaf: Tensor, v: Tensor) -> Tensor:
    """The derivative of <g, v> by the leaf; frees the graph."""
    if not g.requires_grad:  # the loss is linear: autograd would raise, but Hv = 0
        return torch.zeros_like(v)
    (h,) = torch.autograd.grad(g, leaf, v, allow_unused=True)
    return torch.zeros_like(v) if h is None else h


class FiniteSumPoint(ChoosingPoint):
    """A point of a `FiniteSum`."""

    _totals: Totals | None = None

    def __init__(self, objective: FiniteSum, x: Tensor, depth: Depth) -> None:
        super().__init__(x, objective.meter, depth)
        self.objective: FiniteSum = objective
        if objective.sample_size is not None and objective.rows is not None:
            self.product_fraction = objective.sample_size / objective.rows

    @property
    def eps(self) -> float:
        """Unit roundoff of the arithmetic f is computed in."""
        return self.objective.eps

    def at(self, x: Tensor, depth: Depth = "product") -> Point:
        """Another point of the same objective."""
        return self.objective.at(x, depth)

    def release(self) -> None:
        """Drop the graph of a single chunk."""
        if self._totals is not None and self._totals.kept is not None:
            self._totals = self._totals._replace(kept=None)

    def _value(self) -> float:
        objective, x = self.objective, self.x
        objective.first_look(x)
        if self.depth == "value":
            totals = objective.value(x)
        else:  # speculative: the gradient will most likely be wanted
            totals = self._totals = objective.gradient(x, self._keeps_graph())
        decay = objective.weight_decay
        value = totals.value / totals.denominator
        return value + decay / 2 * dot(x, x) if decay else value

    @property
    def denominator(self) -> float:
        """What the sum over all rows is divided by."""
        _ = self.grad
        assert self._totals is not None
        return self._totals.denominator

    def _keeps_graph(self) -> bool:
        exact = self.objective.product.keeps_gradient_graph
        return self.depth == "product" and exact and self.objective.sample_size is None

    def _gradient(self) -> Tensor:
        if self._totals is None:
            self._totals = self.objective.gradient(self.x, self._keeps_graph())
        totals = self._totals
        assert totals.vector is not None
        g = self._finished(totals.vector, self.x)
        self._totals = totals._replace(vector=None)
        return g

    def _gradient_at(self, x: Tensor) -> Tensor:
        if self.objective.sample_size is None:
            vector = self.objective.gradient(x).vector
            assert vector is not None
        else:
            chunks = self.objective.sample(self.value, self.grad_norm)
            vector = self.objective.sampled_gradient(x, chunks, self.product_fraction)
        return self._finished(vector, x)

    def _difference_base(self) -> Tensor:
        return self.grad if self.objective.sample_size is None else self._gradient_at(self.x)

    def _exact(self, v: Tensor) -> Product:
        kept = None if self._totals is None else self._totals.kept
        vector = self.objective.hessian_product(self, v, kept)
        self.release()
        relative = 0.0 if self.eps <= FLOAT64_EPS else 8 * self.eps
        return Product(self._finished(vector, v), relative)

    def _finished(self, total: Tensor, of: Tensor) -> Tensor:
        """A sum of derivatives to the derivative of f."""
        assert self._totals is not None
        mean = total / self._totals.denominator
        if self.objective.weight_decay:
            mean.add_(of, alpha=self.objective.weight_decay)
        return mean.to(self.objective.layout.dtype)

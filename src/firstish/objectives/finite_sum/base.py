"""The base of objectives that are means over rows, for x held by every rank or sharded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from firstish.distributed import Group
from firstish.errors import ProductError
from firstish.objectives.base import Meter, Order, Point, Product
from firstish.objectives.finite_sum import sampling
from firstish.objectives.finite_sum.checks import (
    LossChecks,
    check_no_batch_norm,
    check_same_data,
)
from firstish.objectives.finite_sum.chunks import Chunk, as_chunks
from firstish.objectives.finite_sum.summed_loss import SummedLoss
from firstish.objectives.flatten import Layout
from firstish.objectives.global_state import Replay
from firstish.objectives.hooks import warn_of_one_mask
from firstish.objectives.hvp import Mode, ProductSelector
from firstish.objectives.module.checksums import Described, of_loss, require_same
from firstish.objectives.penalty import L2Penalty

Graph = tuple[Tensor, Tensor]
"""A gradient with its graph, and the leaf that it is a function of."""


class Totals(NamedTuple):
    """Sums over the rows of all processes."""

    value: float
    denominator: float
    gradient: Tensor | None = None
    graph: Graph | None = None  # if there is only one chunk


class ModuleFunction(Protocol):
    """A module as a function of one vector."""

    model: nn.Module
    layout: Layout
    shapes: list[torch.Size]  # of the parameters, the same on every rank

    def is_of(self, module: nn.Module) -> bool:
        """True if `module` is the module passed."""

    def initial(self) -> Tensor:
        """The model's parameters as one vector."""

    def load(self, x: Tensor) -> None:
        """Write the vector into the model's parameters."""

    def described(self, x: Tensor) -> Described:
        """What must be the same on every rank that evaluates it at x."""


class RowSum(ABC):
    """A mean over rows in chunks, on one or several processes; arguments as for `FiniteSum`."""

    call: ClassVar[str]  # the call to name in errors
    raised: Exception | None = None  # the last error raised by the loss itself

    def __init__(
        self,
        function: ModuleFunction,
        loss: SummedLoss,
        group: Group,
        data: object,
        *,
        chunk_size: int,
        weight_decay: float,
        hessian_sample: sampling.SampleSize | None,
        product: Mode,
        check: bool,
        seed: int,
    ) -> None:
        self.penalty = L2Penalty(weight_decay, self.call)
        sampling.check_sample(hessian_sample, self.call)
        self._module = function
        self._loss = loss
        self.group = group
        self.model = function.model
        self.layout = function.layout
        self.chunks = as_chunks(data, chunk_size)
        self.meter = Meter()
        self.product = ProductSelector(product, self.call)
        self.eps = torch.finfo(self.layout.dtype).eps
        self.seed = seed
        self._random = Replay()
        self._check = check
        self._checked = False
        self.rows, self.sample_size = self._sizes(hessian_sample)
        self._require_same(weight_decay, product, seed)

    def _sizes(self, hessian_sample: sampling.SampleSize | None) -> tuple[int | None, int | None]:
        """The number of rows of all processes, and of those that a product samples."""
        mine = self.chunks.total
        if mine is None or not self.chunks.can_sample:
            if hessian_sample is not None:
                raise ValueError(
                    f"`{self.call}(hessian_sample=...)` needs rows by index, but this DataLoader "
                    "gives batches only. Use a Dataset, or a DataLoader over one in plain order."
                )
            self._offset = 0
            return None, None
        counts = [int(n) for n in self.group.gather(mine)]
        total = sum(counts)
        if total == 0:
            raise ValueError(f"`{self.call}(data=...)` is empty: there is no row to average over.")
        self._offset = sum(counts[: self.group.rank])
        if hessian_sample is None:
            return total, None
        size = sampling.sample_size(hessian_sample, total)
        return total, None if size >= total else size

    def _require_same(self, *settings: object) -> None:
        self.group.require_same(
            (self._module.shapes, self.layout.dtype, self.sample_size, *settings),
            "models or settings",
            "Build the same model with the same arguments on every rank.",
        )

    def is_of(self, module: nn.Module) -> bool:
        """True if `module` is the module of this objective."""
        return self._module.is_of(module)

    def initial(self) -> Tensor:
        """The model's parameters as one vector."""
        return self._module.initial()

    def load(self, x: Tensor) -> None:
        """Write the vector into the model's parameters."""
        self._module.load(x)

    def check_vector(self, x: Tensor, call: str) -> None:
        """Raise unless x has the size, dtype and device of the parameters."""
        self.layout.check_vector(x, call)

    def at(self, x: Tensor, order: Order = 2) -> RowSumPoint:
        """The point x, not yet evaluated."""
        return RowSumPoint(self, x, order)

    def check_once(self, x: Tensor) -> None:
        """Check the ranks, the data and the loss before the first evaluation."""
        if self._checked:
            return
        self._checked = True
        if not self.group.alone:
            described = {**self._module.described(x), **of_loss(self._loss.original)}
            require_same(self.group, described, self.call)
        if self._check:
            check_no_batch_norm(self.model, self.call)
            check_same_data(self.chunks, self.group, self.call)
        self.eps = max(self.eps, *self.group.gather(self._random(self._arithmetic_eps, x)))
        if self._check:
            self._random(self._check_loss, x)
            if self.group.any(bool(self._random.draws)):
                warn_of_one_mask(lambda: self._random(self._arithmetic_eps, x), self.model)

    @abstractmethod
    def _arithmetic_eps(self, x: Tensor) -> float:
        """Unit roundoff of the loss on the first chunk."""

    def _check_loss(self, x: Tensor) -> None:
        checks = LossChecks(self.model, self._loss, self.group, self.value_pass, self.eps)
        checks(x, self.chunks)

    @abstractmethod
    def value_pass(self, x: Tensor, chunks: Iterable[Chunk]) -> tuple[float, float]:
        """The sum and the denominator over some chunks of every rank."""

    @abstractmethod
    def gradient_pass(self, x: Tensor, chunks: Iterable[Chunk], keep: bool = False) -> Totals:
        """The same with the gradient of the sum; `keep` the graph if it is supported."""

    def value(self, x: Tensor) -> Totals:
        """The sums over all rows; one forward pass."""
        value, denominator = self._random(self.value_pass, x, self.chunks)
        self.meter.passes += 1
        return self._normalised(Totals(value, denominator))

    def gradient(self, x: Tensor, keep: bool = False) -> Totals:
        """The sums with the gradient; one forward and one backward pass."""
        totals = self._random(self.gradient_pass, x, self.chunks, keep)
        self.meter.passes += 2
        return self._normalised(totals)

    def sampled_gradient(self, x: Tensor, chunks: Iterable[Chunk], fraction: float) -> Tensor:
        """An estimate of the gradient of the sum from a sample of that fraction of the rows."""
        vector = self._random(self.gradient_pass, x, chunks).gradient
        assert vector is not None
        self.meter.passes += 2 * fraction
        return vector / fraction

    @abstractmethod
    def hessian_product(self, point: RowSumPoint, v: Tensor, graph: Graph | None) -> Tensor:
        """H v by double backward, for the sum over all rows or estimated from a sample."""

    def _zeros(self, extra: int = 0) -> Tensor:
        wide = torch.float32 if self.layout.device.type == "mps" else torch.float64
        return torch.zeros(self.layout.total + extra, dtype=wide, device=self.layout.device)

    def _normalised(self, totals: Totals) -> Totals:
        """The sums over all rows, with denominator 1 if f is a sum; raises if there are no rows."""
        self._loss.check_labels = False  # every label has been checked
        if self._loss.is_sum:
            return totals._replace(denominator=1.0)
        if totals.denominator == 0:
            raise ValueError(
                f"`{self.call}(data=...)` has nothing to average over: the denominator of the "
                "loss is 0 (no rows, or every target ignored)."
            )
        return totals

    def sample(self, value: float, grad_norm: float) -> Iterable[Chunk]:
        """The rows of this process for a product at a point with this f and |g|."""
        if self.sample_size is None or self.rows is None:
            return self.chunks
        if self._random.draws:
            raise ValueError(
                f"`{self.call}(hessian_sample=...)` does not support a loss with random numbers, "
                "such as dropout. Use `model.eval()`."
            )
        chosen = sampling.draw(self.seed, value, grad_norm, self.sample_size, self.rows)
        mine = self.chunks.total or 0
        local = chosen[(chosen >= self._offset) & (chosen < self._offset + mine)] - self._offset
        return self.chunks.rows(local) if len(local) else ()


class RowSumPoint(Point):
    """A point of a sum over rows."""

    _totals: Totals | None = None

    def __init__(self, objective: RowSum, x: Tensor, order: Order) -> None:
        super().__init__(x, objective.meter, order)
        self.objective: RowSum = objective
        self.selector = objective.product
        if objective.sample_size is not None and objective.rows is not None:
            self.product_fraction = objective.sample_size / objective.rows

    @property
    def eps(self) -> float:
        """Unit roundoff of the arithmetic f is computed in."""
        return self.objective.eps

    def at(self, x: Tensor, order: Order = 2) -> Point:
        """Another point of the same objective."""
        return self.objective.at(x, order)

    def release(self) -> None:
        """Free the graph, if one is held."""
        if self._totals is not None:
            self._totals = self._totals._replace(graph=None)

    def _value(self) -> float:
        objective, x = self.objective, self.x
        objective.check_once(x)
        if self.order == 0:
            totals = objective.value(x)
        else:  # the gradient, which will most likely be needed, costs no second forward pass
            totals = self._totals = objective.gradient(x, self._keeps_graph())
        return totals.value / totals.denominator + objective.penalty.value(x)

    @property
    def denominator(self) -> float:
        """The denominator of the sum over all rows."""
        _ = self.grad
        assert self._totals is not None
        return self._totals.denominator

    def _keeps_graph(self) -> bool:
        exact = self.objective.product.needs_gradient_graph
        return self.order == 2 and exact and self.objective.sample_size is None

    def _gradient(self) -> Tensor:
        if self._totals is None:
            self._totals = self.objective.gradient(self.x, self._keeps_graph())
        totals = self._totals
        assert totals.gradient is not None
        g = self._mean(totals.gradient, self.x)
        self._totals = totals._replace(gradient=None)
        return g

    def gradient_at(self, x: Tensor) -> Tensor:
        """The gradient at another x, over the rows that products use."""
        return self.gradient_inside(self._gradient_at, x)

    def _gradient_at(self, x: Tensor) -> Tensor:
        if self.objective.sample_size is None:
            vector = self.objective.gradient(x).gradient
            assert vector is not None
        else:
            chunks = self.objective.sample(self.value, self.grad_norm)
            vector = self.objective.sampled_gradient(x, chunks, self.product_fraction)
        return self._mean(vector, x)

    def difference_base(self) -> Tensor:
        """The gradient at x over the rows that products use."""
        return self.grad if self.objective.sample_size is None else self.gradient_at(self.x)

    def gauss_newton_product(self, v: Tensor) -> Product:
        """Not supported: the chunks' outputs are not kept."""
        raise ProductError(f"`{self.objective.call}(product='gauss-newton')` is not supported.")

    def exact_product(self, v: Tensor) -> Product:
        """Hv by double backward."""
        graph = None if self._totals is None else self._totals.graph
        vector = self.objective.hessian_product(self, v, graph)
        self.release()
        return Product.by_exact_formula(self._mean(vector, v), self.eps)

    def _mean(self, total: Tensor, of: Tensor) -> Tensor:
        """The derivative of f, from that of the sum; `of` as for the penalty."""
        assert self._totals is not None
        mean = total / self._totals.denominator
        mean = self.objective.penalty.plus_derivative(mean, of)
        return mean.to(self.objective.layout.dtype)

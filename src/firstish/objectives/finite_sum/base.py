"""f as a mean over rows: what its objectives share, whether one rank holds all of x or a part."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from firstish.distributed import Group
from firstish.errors import ProductError
from firstish.objectives.base import Meter, Order, Point, Product
from firstish.objectives.finite_sum import sampling
from firstish.objectives.finite_sum.chunks import Chunk, as_chunks
from firstish.objectives.finite_sum.reduction import SummedLoss
from firstish.objectives.flatten import Layout
from firstish.objectives.module.checksums import Described, of_loss, require_same
from firstish.objectives.penalty import L2Penalty
from firstish.objectives.product_selector import Mode, ProductSelector
from firstish.objectives.rng import Replay


class Totals(NamedTuple):
    """Sums over all rows of all processes."""

    value: float
    denominator: float
    vector: Tensor | None = None  # of the gradient, or of the product
    kept: tuple[Tensor, Tensor] | None = None  # the gradient with its graph, and the leaf


class ModuleFunction(Protocol):
    """A module seen as a function of one vector."""

    model: nn.Module
    layout: Layout
    shapes: list[torch.Size]  # of the parameters, the same on every rank

    def is_of(self, module: nn.Module) -> bool:
        """Whether that is the module given."""

    def initial(self) -> Tensor:
        """The model's parameters as one vector."""

    def load(self, x: Tensor) -> None:
        """Write the vector into the model's parameters."""

    def described(self, x: Tensor) -> Described:
        """What must be the same on every rank that evaluates it at x."""


class RowSum(ABC):
    """Sums over rows in chunks, samples of them, and processes; see `FiniteSum` for arguments."""

    call: ClassVar[str]  # the call to name in errors
    raised: Exception | None = None  # the last error of the loss itself

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
        self._looked = False
        self.rows, self.sample_size = self._sizes(hessian_sample)
        self._require_same(weight_decay, product, seed)

    def _sizes(self, hessian_sample: sampling.SampleSize | None) -> tuple[int | None, int | None]:
        """The rows of all processes, and how many a product draws of them."""
        mine = self.chunks.total
        if mine is None or not self.chunks.can_sample:
            if hessian_sample is not None:
                raise ValueError(
                    f"`{self.call}(hessian_sample=...)` draws rows, but this DataLoader gives "
                    "batches only. Use a Dataset, or a DataLoader in plain order over one."
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
        text = repr((self._module.shapes, self.layout.dtype, self.sample_size, *settings))
        self.group.require_same(
            zlib.crc32(text.encode()),
            "models or settings",
            "Build the same model with the same arguments on every rank.",
        )

    def is_of(self, module: nn.Module) -> bool:
        """Whether this is the objective of that module."""
        return self._module.is_of(module)

    def initial(self) -> Tensor:
        """The model's parameters as one vector."""
        return self._module.initial()

    def load(self, x: Tensor) -> None:
        """Write the vector into the model's parameters."""
        self._module.load(x)

    def check_vector(self, x: Tensor) -> None:
        """Refuse a vector that is not one of this objective's."""
        self.layout.check_vector(x)

    def at(self, x: Tensor, order: Order = 2) -> RowSumPoint:
        """The point x, not yet evaluated."""
        return RowSumPoint(self, x, order)

    def first_look(self, x: Tensor) -> None:
        """Before the first evaluation: see whether the data and the loss can be trusted."""
        if not self._looked:
            self._looked = True
            if not self.group.alone:
                described = {**self._module.described(x), **of_loss(self._loss.original)}
                require_same(self.group, described, self.call)
            self._look_at(x)

    @abstractmethod
    def _look_at(self, x: Tensor) -> None: ...

    @abstractmethod
    def value(self, x: Tensor) -> Totals:
        """One forward pass."""

    @abstractmethod
    def gradient(self, x: Tensor, keep: bool = False) -> Totals:
        """One forward and one backward pass; `keep` the graph of the only chunk."""

    @abstractmethod
    def sampled_gradient(self, x: Tensor, chunks: Iterable[Chunk], share: float) -> Tensor:
        """The sum over a sample's rows, times rows over sample; no part in f itself."""

    @abstractmethod
    def hessian_product(
        self, point: RowSumPoint, v: Tensor, kept: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """By double backward: the sum over the rows, or an estimate of it from a sample."""

    def _zeros(self, extra: int = 0) -> Tensor:
        wide = torch.float32 if self.layout.device.type == "mps" else torch.float64
        return torch.zeros(self.layout.total + extra, dtype=wide, device=self.layout.device)

    def _checked(self, value: float, denominator: float, vector: Tensor | None) -> Totals:
        """The sums over all rows, or an error if there are none."""
        self._loss.check_labels = False  # every label has been checked
        if self._loss.is_sum:
            denominator = 1.0
        if denominator == 0:
            raise ValueError(
                f"`{self.call}(data=...)` has nothing to average over: the denominator of the "
                "loss is 0 (no rows, or every target ignored)."
            )
        return Totals(value, denominator, vector)

    def sample(self, value: float, grad_norm: float) -> Iterable[Chunk]:
        """The rows of this process that a product at a point with these numbers uses."""
        if self.sample_size is None or self.rows is None:
            return self.chunks
        if self._random.draws:
            raise ValueError(
                f"`{self.call}(hessian_sample=...)` needs a loss without random numbers: a "
                "dropout mask belongs to its row. Use `model.eval()`."
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
        """Drop the graph of a single chunk."""
        if self._totals is not None and self._totals.kept is not None:
            self._totals = self._totals._replace(kept=None)

    def _value(self) -> float:
        objective, x = self.objective, self.x
        objective.first_look(x)
        if self.order == 0:
            totals = objective.value(x)
        else:  # speculative: the gradient will most likely be wanted
            totals = self._totals = objective.gradient(x, self._keeps_graph())
        return totals.value / totals.denominator + objective.penalty.value(x)

    @property
    def denominator(self) -> float:
        """What the sum over all rows is divided by."""
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
        assert totals.vector is not None
        g = self._finished(totals.vector, self.x)
        self._totals = totals._replace(vector=None)
        return g

    def gradient_at(self, x: Tensor) -> Tensor:
        """The gradient at another x, over the rows that products use."""
        if self.objective.sample_size is None:
            vector = self.objective.gradient(x).vector
            assert vector is not None
        else:
            chunks = self.objective.sample(self.value, self.grad_norm)
            vector = self.objective.sampled_gradient(x, chunks, self.product_fraction)
        return self._finished(vector, x)

    def difference_base(self) -> Tensor:
        """The gradient that `gradient_at` is compared with."""
        return self.grad if self.objective.sample_size is None else self.gradient_at(self.x)

    def gauss_newton_product(self, v: Tensor) -> Product:
        """Not supported: the chunks' outputs are not kept."""
        raise ProductError(f"`{self.objective.call}(product='gauss-newton')` is not supported.")

    def _product(self, v: Tensor) -> Product:
        return self.objective.product.product(self, v)

    def exact_product(self, v: Tensor) -> Product:
        """Hv by double backward."""
        kept = None if self._totals is None else self._totals.kept
        vector = self.objective.hessian_product(self, v, kept)
        self.release()
        return Product.by_exact_formula(self._finished(vector, v), self.eps)

    def _finished(self, total: Tensor, of: Tensor) -> Tensor:
        """A sum of derivatives to the derivative of f."""
        assert self._totals is not None
        mean = total / self._totals.denominator
        mean = self.objective.penalty.plus_derivative(mean, of)
        return mean.to(self.objective.layout.dtype)

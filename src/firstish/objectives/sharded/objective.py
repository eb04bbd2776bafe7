"""f as a mean over rows of a model whose parameters are spread over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from firstish.distributed import Group
from firstish.errors import ProductError
from firstish.objectives.base import Order
from firstish.objectives.checks import independent
from firstish.objectives.finite_sum.base import RowSum, RowSumPoint, Totals
from firstish.objectives.finite_sum.checks import refuse_batch_norm
from firstish.objectives.finite_sum.chunks import Chunk, mapped, part, rows_of
from firstish.objectives.finite_sum.reduction import Sum, SummedLoss
from firstish.objectives.finite_sum.sampling import SampleSize
from firstish.objectives.hooks import graph_eps
from firstish.objectives.sharded.checks import ShardedLook
from firstish.objectives.sharded.module import ShardedModule
from firstish.objectives.sharded.vector import Shard


class ShardedSum(RowSum):
    """f of `FiniteSum`, for a model sharded by torch's `fully_shard` (FSDP2).

        f(x) = sum of the rows' losses / their denominator + weight_decay/2 |x|^2

    Each process has its own rows, uneven or none, and x is its part of the parameters: no process
    ever holds the whole vector, its gradient or a product. Dots and norms are those of the whole
    (see `Shard`), so every method works as it does on one process. A parameter that `fully_shard`
    ignored is held by all, and counted once.

    Products are gradient differences: FSDP gathers and frees parameters in hooks, through which
    no second backward goes. Between evaluations the model holds what it held; `minimize(objective,
    model)` leaves the result in it. Build the objective in all processes, with the same arguments
    except for the data.

    Args:
        model: the module, already sharded over a mesh of one dimension; the mesh's processes are
            those that f is summed over. Without BatchNorm in train mode.
        loss_fn: takes the outputs and the targets; torch's own, a mean over rows, or `Summed`.
        data: this process's rows, as for `FiniteSum`.
        chunk_size: rows evaluated at a time; every chunk gathers the parameters once more.
        weight_decay: lambda in the formula above.
        hessian_sample: products use a sample of the rows; see `FiniteSum`.
        product: "difference"; "auto" is the same.
        check: at the first evaluation, see that the data comes in the same order every time, that
            rows do not depend on each other, and that FSDP's gradient is that of f.
        seed: for the samples.

    Examples:
        Under `torchrun`, with `loss_fn` and this rank's `rows` and `labels` as for `FiniteSum`:

            torch.distributed.init_process_group()
            torch.distributed.fsdp.fully_shard(model)
            objective = firstish.ShardedSum(model, loss_fn, (rows, labels))
            firstish.minimize(objective, model)
    """

    call = "ShardedSum"

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., object],
        data: object,
        *,
        chunk_size: int = 4096,
        weight_decay: float = 0.0,
        hessian_sample: SampleSize | None = None,
        product: Literal["difference", "auto"] = "difference",
        check: bool = True,
        seed: int = 0,
    ) -> None:
        if product not in ("difference", "auto"):
            raise ValueError(
                f"`ShardedSum(product={product!r})` is not supported: a sharded model cannot be "
                "differentiated twice. Use 'difference', or `FiniteSum` on a model that is not "
                "sharded."
            )
        summed = SummedLoss(loss_fn, self.call)
        self._sharded = ShardedModule(model, summed, self.call)
        super().__init__(
            self._sharded,
            summed,
            self._sharded.group,
            data,
            chunk_size=chunk_size,
            weight_decay=weight_decay,
            hessian_sample=hessian_sample,
            product="difference",
            seed=seed,
        )
        self._check = check
        self._turns: int | None = None  # chunks of the rank that has most, once known
        self._row = borrowed_row(self.chunks, self.group)

    def at(self, x: Tensor, order: Order = 2) -> RowSumPoint:
        """The point x, not yet evaluated; a plain tensor is taken to be this rank's part."""
        return RowSumPoint(self, x if isinstance(x, Shard) else self._sharded.spread(x), order)

    def check_vector(self, x: Tensor) -> None:
        """Refuse a vector that is not this rank's part of one of this objective's."""
        self.layout.check_vector(x.as_subclass(Tensor))

    def local_sum(self, chunk: Chunk | None) -> Sum:
        """One chunk's sum and denominator; without rows, none, but the model runs all the same."""
        device = self.layout.device
        if chunk is None:
            inputs, _ = mapped(self._row, lambda t: t.to(device))
            return Sum(self._sharded.nothing(inputs), 0.0)
        inputs, targets = mapped(chunk, lambda t: t.to(device, non_blocking=True))
        result = self._sharded(inputs, (targets, rows_of(chunk)))
        assert isinstance(result, Sum)
        return result

    def _together(self, chunks: Iterable[Chunk]) -> Iterator[Chunk | None]:
        """This rank's chunks, then None until every rank is through.

        The model gathers its parameters from all ranks whenever it runs, so all must run it
        equally often.
        """
        mine, turns = iter(chunks), 0
        known = self._turns if chunks is self.chunks else None
        while known is None or turns < known:
            chunk = next(mine, None)
            if known is None and not self.group.any(chunk is not None):
                break
            yield chunk
            turns += 1
        if chunks is self.chunks:
            self._turns = turns  # the data does not change: no need to ask again

    def _look_at(self, x: Tensor) -> None:
        assert isinstance(x, Shard)
        if self._check:
            refuse_batch_norm(self.model, self.call)
        self.eps = max(self.eps, *self.group.gather(self._random(self._arithmetic, x)))
        if self._check:
            passes = (self.value_pass, self.gradient_pass)
            look = ShardedLook(self.model, self._loss, self.group, *passes, eps=self.eps)
            self._random(look, x, self.chunks)

    def _arithmetic(self, x: Tensor) -> float:
        """The unit roundoff of the loss on the first chunk."""
        with self._sharded.holding(x):
            total = self.local_sum(next(iter(self.chunks), None)).total
            eps = graph_eps(total)
            if total.requires_grad:
                total.backward()  # type: ignore[no-untyped-call]  # FSDP waits for it
        return eps

    def value(self, x: Tensor) -> Totals:
        """One forward pass."""
        value, denominator = self._random(self.value_pass, x, self.chunks)
        self.meter.passes += 1
        return self._checked(value, denominator, None)

    def value_pass(self, x: Tensor, chunks: Iterable[Chunk]) -> tuple[float, float]:
        """The sum and its denominator over some chunks of every rank."""
        value = denominator = 0.0
        with self._sharded.holding(x), torch.no_grad():
            for chunk in self._together(chunks):
                s = self.local_sum(chunk)
                if chunk is not None:
                    value, denominator = value + s.total.item(), denominator + s.denominator
        numbers = torch.tensor([value, denominator], dtype=torch.float64)
        value, denominator = self.group.all_sum(numbers.to(self.layout.device)).tolist()
        return value, denominator

    def gradient(self, x: Tensor, keep: bool = False) -> Totals:
        """One forward and one backward pass; no graph is ever kept."""
        value, denominator, vector = self._random(self.gradient_pass, x, self.chunks)
        self.meter.passes += 2
        return self._checked(value, denominator, vector)

    def gradient_pass(self, x: Tensor, chunks: Iterable[Chunk]) -> tuple[float, float, Shard]:
        """The sum, its denominator and its gradient over some chunks of every rank."""
        value = denominator = 0.0
        vector = self._zeros()
        with self._sharded.holding(x):
            for chunk in self._together(chunks):
                s = self.local_sum(chunk)
                if chunk is not None:
                    value, denominator = value + s.total.item(), denominator + s.denominator
                if not s.total.requires_grad:
                    raise independent("the loss")
                s.total.backward()  # type: ignore[no-untyped-call]
                self._sharded.collect(vector)
        # What every rank holds was not reduced by FSDP; it travels with the two numbers.
        cut = len(vector) - self._sharded.replicated
        numbers = torch.tensor([value, denominator], dtype=torch.float64).to(vector)
        bucket = self.group.all_sum(torch.cat([vector[cut:], numbers]))
        vector[cut:] = bucket[:-2]
        value, denominator = bucket[-2:].tolist()
        return value, denominator, self._sharded.spread(vector)

    def sampled_gradient(self, x: Tensor, chunks: Iterable[Chunk], share: float) -> Tensor:
        """The sum over a sample's rows, times rows over sample; no part in f itself."""
        *_, vector = self._random(self.gradient_pass, x, chunks)
        self.meter.passes += 2 * share
        return vector / share

    def hessian_product(
        self, point: RowSumPoint, v: Tensor, kept: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Not for a sharded model."""
        raise ProductError("`ShardedSum` has no products by double backward.")


def borrowed_row(chunks: Iterable[Chunk], group: Group) -> Any:
    """A row to run the model on when there is nothing to do: the first, or that of another rank."""
    first = next(iter(chunks), None)
    row = None if first is None else mapped(part(first, 0, 1), lambda t: t.detach().cpu())
    have = group.gather(float(row is not None))
    if not any(have):
        raise ValueError("`ShardedSum(data=...)` is empty: there is no row to average over.")
    if all(have):
        return row
    lent = group.broadcast_object(row, have.index(1.0))
    return lent if row is None else row

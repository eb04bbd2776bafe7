"""The mean over rows for a model whose parameters are sharded over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor, nn

from firstish.distributed import Group
from firstish.errors import ProductError
from firstish.objectives.base import Order
from firstish.objectives.checks import independent
from firstish.objectives.finite_sum.base import Graph, RowSum, RowSumPoint, Totals
from firstish.objectives.finite_sum.chunks import Chunk, part, rows_of
from firstish.objectives.finite_sum.sampling import SampleSize
from firstish.objectives.finite_sum.summed_loss import Sum, SummedLoss
from firstish.objectives.flatten import map_tensors
from firstish.objectives.global_state import RandomState
from firstish.objectives.hvp import graph_eps
from firstish.objectives.sharded.checks import check_gradient
from firstish.objectives.sharded.module import ShardedModule
from firstish.objectives.sharded.vector import Shard


class ShardedSum(RowSum):
    """The f of `FiniteSum`, for a model sharded by torch's `fully_shard` (FSDP2).

        f(x) = sum of the rows' losses / their denominator + weight_decay/2 |x|^2

    Each process has its own rows, also unevenly many or none, and its own part of the parameters as
    x: no process holds the whole vector, its gradient or a product. Dots and norms are those of the
    whole vector (see `Shard`), so every method works as on one process. A parameter that
    `fully_shard` ignores is held by every process and counted once.

    Products are gradient differences, because FSDP gathers and frees parameters in hooks that do
    not support double backward. An evaluation leaves the parameters of the model unchanged;
    `minimize(objective, model)` writes the result into it. Build the objective in all processes,
    with the same arguments except for the data.

    Args:
        model: the module, already sharded over a one-dimensional mesh; f is summed over the
            processes of the mesh. Without BatchNorm in train mode.
        loss_fn: takes the outputs and the targets; see `FiniteSum`.
        data: the rows of this process, as for `FiniteSum`.
        chunk_size: rows evaluated at a time; the parameters are gathered once for each chunk.
        weight_decay: lambda in the formula above.
        hessian_sample: products use a sample of the rows; see `FiniteSum`.
        product: "difference"; "auto" is the same.
        check: the checks of `FiniteSum` at the first evaluation, and one that FSDP's gradient is
            that of f.
        seed: of the samples.

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
                f"`ShardedSum(product={product!r})` is not supported: a sharded model has no "
                "second derivatives. Use 'difference', or `FiniteSum` with a model that is not "
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
            check=check,
            seed=seed,
        )
        self._most_chunks: int | None = None  # of any rank; known after the first pass
        self._row = dummy_row(self.chunks, self.group)

    def at(self, x: Tensor, order: Order = 2) -> RowSumPoint:
        """The point x, not yet evaluated; a plain tensor is this rank's part of x."""
        return RowSumPoint(self, x if isinstance(x, Shard) else self._sharded.sharding(x), order)

    def check_vector(self, x: Tensor, call: str) -> None:
        """Raise unless x has the size, dtype and device of this rank's part of the parameters."""
        self.layout.check_vector(x.as_subclass(Tensor), call)

    def chunk_sum(self, chunk: Chunk | None) -> Sum:
        """The sum and denominator of a chunk; for None, the model runs too and the sum is 0."""
        device = self.layout.device
        if chunk is None:
            inputs, _ = map_tensors(lambda t: t.to(device), self._row)
            return Sum(self._sharded.zero_loss(inputs), 0.0)
        inputs, targets = map_tensors(lambda t: t.to(device, non_blocking=True), chunk)
        result = self._sharded(inputs, (targets, rows_of(chunk)))
        assert isinstance(result, Sum)
        return result

    def _in_lockstep(self, chunks: Iterable[Chunk]) -> Iterator[Chunk | None]:
        """This rank's chunks, then None until every rank has finished.

        The model gathers its parameters from all ranks in every forward pass, so all ranks must
        run it equally often.
        """
        mine, count = iter(chunks), 0
        most = self._most_chunks if chunks is self.chunks else None
        while most is None or count < most:
            chunk = next(mine, None)
            if most is None and not self.group.any(chunk is not None):
                break
            yield chunk
            count += 1
        if chunks is self.chunks:
            self._most_chunks = count  # the data does not change

    def _arithmetic_eps(self, x: Tensor) -> float:
        with self._sharded.holding(x):
            total = self.chunk_sum(next(iter(self.chunks), None)).total
            eps = graph_eps(total)
            if total.requires_grad:
                total.backward()  # type: ignore[no-untyped-call]  # FSDP waits for it
        return eps

    def _check_loss(self, x: Tensor) -> None:
        super()._check_loss(x)
        assert isinstance(x, Shard)
        chunks, state = list(islice(self.chunks, 1)), RandomState.capture()

        def f(x: Tensor) -> float:
            with state.replayed():
                return self.value_pass(x, chunks)[0]

        with state.replayed():
            totals = self.gradient_pass(x, chunks)
        assert isinstance(totals.gradient, Shard)
        check_gradient(f, x, totals.value, totals.gradient, self.eps, self.call)

    def value_pass(self, x: Tensor, chunks: Iterable[Chunk]) -> tuple[float, float]:
        """The sum and the denominator over some chunks of every rank."""
        value = denominator = 0.0
        with self._sharded.holding(x), torch.no_grad():
            for chunk in self._in_lockstep(chunks):
                s = self.chunk_sum(chunk)
                if chunk is not None:
                    value, denominator = value + s.total.item(), denominator + s.denominator
        numbers = torch.tensor([value, denominator], dtype=torch.float64)
        value, denominator = self.group.all_sum(numbers.to(self.layout.device)).tolist()
        return value, denominator

    def gradient_pass(self, x: Tensor, chunks: Iterable[Chunk], keep: bool = False) -> Totals:
        """The same with the gradient of the sum; no graph is kept."""
        value = denominator = 0.0
        vector = self._zeros()
        with self._sharded.holding(x):
            for chunk in self._in_lockstep(chunks):
                s = self.chunk_sum(chunk)
                if chunk is not None:
                    value, denominator = value + s.total.item(), denominator + s.denominator
                if not s.total.requires_grad:
                    raise independent("the loss")
                s.total.backward()  # type: ignore[no-untyped-call]
                self._sharded.pop_gradient(vector)
        # FSDP does not reduce the gradients of replicated parameters.
        cut = len(vector) - self._sharded.replicated
        numbers = torch.tensor([value, denominator], dtype=torch.float64).to(vector)
        bucket = self.group.all_sum(torch.cat([vector[cut:], numbers]))
        vector[cut:] = bucket[:-2]
        value, denominator = bucket[-2:].tolist()
        return Totals(value, denominator, self._sharded.sharding(vector))

    def hessian_product(self, point: RowSumPoint, v: Tensor, graph: Graph | None) -> Tensor:
        """Not supported."""
        raise ProductError("`ShardedSum` has no products by double backward.")


def dummy_row(chunks: Iterable[Chunk], group: Group) -> Any:
    """A row for forward passes without a chunk: this rank's first, or that of another rank."""
    first = next(iter(chunks), None)
    row = None if first is None else map_tensors(lambda t: t.detach().cpu(), part(first, 0, 1))
    has_row = group.gather(float(row is not None))
    if not any(has_row):
        raise ValueError("`ShardedSum(data=...)` is empty: there is no row to average over.")
    if all(has_row):
        return row
    other = group.broadcast_object(row, has_row.index(1.0))
    return other if row is None else row

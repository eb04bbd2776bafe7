"""The mean over more rows than fit into one graph or into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from firstish.distributed import Group, warn_if_not_joined
from firstish.objectives.checks import independent
from firstish.objectives.finite_sum.base import Graph, RowSum, RowSumPoint, Totals
from firstish.objectives.finite_sum.chunks import Chunk, rows_of
from firstish.objectives.finite_sum.sampling import SampleSize
from firstish.objectives.finite_sum.summed_loss import Sum, SummedLoss
from firstish.objectives.flatten import map_tensors
from firstish.objectives.hvp import Mode, double_backward, graph_eps
from firstish.objectives.module.functional import FunctionalLoss


class FiniteSum(RowSum):
    """f(x) = sum of the rows' losses / their denominator + weight_decay/2 |x|^2, chunk by chunk.

    It equals `ModuleObjective`, in memory that does not grow with the data: no graph outlives its
    chunk, and sums are in float64. Value and gradient are computed in one pass over the data, since
    the unit step is nearly always accepted and the gradient needed. A product is a second pass,
    except on data of a single chunk, whose graph is kept.

    torch's own losses, as modules or functions, also in `functools.partial`, are split into sum and
    denominator, so that class weights and ignored targets are exact. Any other loss function must
    return the mean over its rows, or, with different weights, be wrapped in `Summed`.

    Args:
        model: the module; without BatchNorm in train mode, which makes rows depend on each other.
        loss_fn: takes the outputs and the targets (the outputs alone without targets).
        data: `(inputs, targets)`, a Dataset, or a DataLoader that does not shuffle or drop.
            Inputs that are a tuple are the model's arguments.
        chunk_size: rows evaluated at a time.
        weight_decay: lambda in the formula above.
        hessian_sample: products use a sample of the rows, drawn anew at each point, with
            replacement: a count, a fraction in (0, 1], or a `HessianSample`. None for all rows.
        process_group: of `torch.distributed`; `data` are then the rows of this process, and f is
            the mean over those of all processes.
        product: "double-backward", "difference" (no second graph), or "auto".
        check: check at the first evaluation that the data is the same in every pass, and that the
            loss is deterministic and its rows independent of each other.
        seed: of the samples.

    Examples:
        >>> model, loss_fn = nn.Linear(2, 1, bias=False), nn.functional.mse_loss
        >>> objective = FiniteSum(model, loss_fn, (torch.eye(2), torch.ones(2, 1)), chunk_size=1)
        >>> objective.at(torch.zeros(2)).value
        1.0
    """

    call = "FiniteSum"

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., object],
        data: object,
        *,
        chunk_size: int = 4096,
        weight_decay: float = 0.0,
        hessian_sample: SampleSize | None = None,
        process_group: Any = None,
        product: Mode = "auto",
        check: bool = True,
        seed: int = 0,
    ) -> None:
        if product == "gauss-newton":
            raise ValueError("`FiniteSum(product='gauss-newton')` is not supported. Use 'auto'.")
        summed = SummedLoss(loss_fn, self.call)
        joined = process_group is not None
        self._function = FunctionalLoss(model, summed, self.call, joined=joined)
        if not joined:
            warn_if_not_joined(self.call)
        super().__init__(
            self._function,
            summed,
            Group(process_group, self._function.layout.device),
            data,
            chunk_size=chunk_size,
            weight_decay=weight_decay,
            hessian_sample=hessian_sample,
            product=product,
            check=check,
            seed=seed,
        )
        self._can_keep = self.chunks.single

    def chunk_sum(self, leaf: Tensor, chunk: Chunk) -> Sum:
        """The sum and denominator of a chunk, with a graph if the leaf requires a gradient."""
        rows = rows_of(chunk)
        device = self.layout.device
        inputs, targets = map_tensors(lambda t: t.to(device, non_blocking=True), chunk)
        buffers = self._function.buffers()
        try:
            result, _ = self._function(leaf, inputs, (targets, rows), buffers)
        except Exception as error:
            self.raised = error
            raise
        assert isinstance(result, Sum)
        return result

    def _arithmetic_eps(self, x: Tensor) -> float:
        for chunk in self.chunks:
            return graph_eps(self.chunk_sum(x.detach().requires_grad_(), chunk).total)
        return 0.0  # no rows on this rank

    def value_pass(self, x: Tensor, chunks: Iterable[Chunk]) -> tuple[float, float]:
        """The sum and the denominator over some chunks of every rank."""
        value = denominator = 0.0
        leaf = x.detach()
        for chunk in chunks:
            s = self.chunk_sum(leaf, chunk)
            value, denominator = value + s.total.item(), denominator + s.denominator
        totals = self._all_reduced(value, denominator)
        return totals.value, totals.denominator

    def gradient_pass(self, x: Tensor, chunks: Iterable[Chunk], keep: bool = False) -> Totals:
        """The same with the gradient of the sum; `keep` the graph of the only chunk."""
        value = denominator = 0.0
        vector, graph = self._zeros(), None
        for chunk in chunks:
            leaf = x.detach().requires_grad_()
            s = self.chunk_sum(leaf, chunk)
            value, denominator = value + s.total.item(), denominator + s.denominator
            if keep and self._can_keep:
                try:
                    graph = (self._chunk_gradient(s.total, leaf, create_graph=True), leaf)
                except RuntimeError:  # the product will raise it again, on all ranks together
                    self._can_keep = False
                    return self.gradient_pass(x, chunks)
            g = graph[0] if graph else self._chunk_gradient(s.total, leaf)
            vector.add_(g.detach())
        return self._all_reduced(value, denominator, vector)._replace(graph=graph)

    def hessian_product(self, point: RowSumPoint, v: Tensor, graph: Graph | None) -> Tensor:
        """H v for the sum over all rows, or estimated from a sample.

        On the graph, if there is one; otherwise by a forward pass, a backward pass and a product
        for each chunk.
        """
        fraction = point.product_fraction
        vector = self._random(self._product_pass, point, v, graph)
        self.meter.passes += 2 if graph is not None else 4 * fraction
        return vector / fraction

    def _product_pass(self, point: RowSumPoint, v: Tensor, graph: Graph | None) -> Tensor:
        vector, failure = self._zeros(extra=1), None
        try:
            if graph is not None:
                vector[:-1].add_(product_on(*graph, v))
            else:
                for chunk in self.sample(point.value, point.grad_norm):
                    vector[:-1].add_(self.product_of(chunk, point.x, v))
        except (RuntimeError, NotImplementedError) as error:
            failure = error
            vector[-1] = 1.0
        self.group.all_sum(vector)  # the last entry makes all ranks fail together
        if vector[-1] > 0:
            raise failure or RuntimeError("double backward failed on another rank")
        return vector[:-1]

    def product_of(self, chunk: Chunk, x: Tensor, v: Tensor) -> Tensor:
        """H v for the sum over the rows of a chunk."""
        leaf = x.detach().requires_grad_()
        s = self.chunk_sum(leaf, chunk)
        return product_on(self._chunk_gradient(s.total, leaf, create_graph=True), leaf, v)

    def _chunk_gradient(self, total: Tensor, leaf: Tensor, create_graph: bool = False) -> Tensor:
        if not total.requires_grad:
            raise independent("the loss")
        (g,) = torch.autograd.grad(total, leaf, create_graph=create_graph)
        return g

    def _all_reduced(
        self, value: float, denominator: float, vector: Tensor | None = None
    ) -> Totals:
        """The sums over all processes, by one all-reduce."""
        if self.group.alone:
            return Totals(value, denominator, vector)
        bucket = torch.tensor([value, denominator], dtype=torch.float64, device=self.layout.device)
        if vector is not None:
            bucket = torch.cat([vector, bucket])
        self.group.all_sum(bucket)
        value, denominator = bucket[-2:].tolist()
        return Totals(value, denominator, None if vector is None else bucket[:-2])


def product_on(g: Tensor, leaf: Tensor, v: Tensor) -> Tensor:
    """The derivative of <g, v> by the leaf; frees the graph."""
    (Hv,) = double_backward([g], [leaf], [v])
    return torch.zeros_like(v) if Hv is None else Hv

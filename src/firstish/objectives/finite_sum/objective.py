"""f as a mean over more rows than one graph or one memory can hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from firstish.distributed import Group, warn_if_not_joined
from firstish.objectives.checks import independent
from firstish.objectives.finite_sum.base import RowSum, RowSumPoint, Totals
from firstish.objectives.finite_sum.checks import FirstLook
from firstish.objectives.finite_sum.chunks import Chunk, mapped, rows_of
from firstish.objectives.finite_sum.reduction import Sum, SummedLoss
from firstish.objectives.finite_sum.sampling import SampleSize
from firstish.objectives.hooks import graph_eps
from firstish.objectives.module.functional import FunctionalLoss
from firstish.objectives.product_selector import Mode


class FiniteSum(RowSum):
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
            raise ValueError("`FiniteSum(product='gauss-newton')` is not there: use 'auto'.")
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
            seed=seed,
        )
        self._keepable = self.chunks.single
        self._look = FirstLook(self.model, self._loss, self.local_sum) if check else None

    def local_sum(self, leaf: Tensor, chunk: Chunk) -> Sum:
        """One chunk's sum and denominator, with a graph if the leaf requires one."""
        rows = rows_of(chunk)
        device = self.layout.device
        inputs, targets = mapped(chunk, lambda t: t.to(device, non_blocking=True))
        buffers = self._function.buffers()
        try:
            result, _ = self._function(leaf, inputs, (targets, rows), buffers)
        except Exception as error:
            self.raised = error
            raise
        assert isinstance(result, Sum)
        return result

    def _look_at(self, x: Tensor) -> None:
        if self._look is not None:
            self._random(self._look, x, self.chunks)
        leaf = x.detach().requires_grad_()
        for chunk in self.chunks:
            self.eps = max(self.eps, graph_eps(self._random(self.local_sum, leaf, chunk).total))
            break
        self.eps = max(self.group.gather(self.eps))  # also on a rank without rows

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
        return self.group.all_sum(vector) / share

    def hessian_product(
        self, point: RowSumPoint, v: Tensor, kept: tuple[Tensor, Tensor] | None
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
        self, point: RowSumPoint, v: Tensor, kept: tuple[Tensor, Tensor] | None
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
        self.group.all_sum(vector)  # all ranks fail together, also those with no rows
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

    def _reduced(self, value: float, denominator: float, vector: Tensor | None) -> Totals:
        """The sums over all processes, in one message."""
        size = 0 if vector is None else len(vector)
        if not self.group.alone:
            numbers = torch.tensor([value, denominator], dtype=torch.float64)
            numbers = numbers.to(self.layout.device)
            bucket = numbers if vector is None else torch.cat([vector, numbers])
            self.group.all_sum(bucket)
            value, denominator = bucket[size:].tolist()
            vector = None if vector is None else bucket[:size]
        return self._checked(value, denominator, vector)


def product_on(g: Tensor, leaf: Tensor, v: Tensor) -> Tensor:
    """The derivative of <g, v> by the leaf; frees the graph."""
    if not g.requires_grad:  # the loss is linear: autograd would raise, but Hv = 0
        return torch.zeros_like(v)
    (h,) = torch.autograd.grad(g, leaf, v, allow_unused=True)
    return torch.zeros_like(v) if h is None else h

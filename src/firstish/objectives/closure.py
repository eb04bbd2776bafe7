"""Objectives defined by the closure of a torch optimizer, over the live parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from firstish.errors import NondeterministicError, NonFiniteError, ProductError
from firstish.linalg import dot, norm
from firstish.objectives.autograd import AutogradObjective, AutogradPoint, Evaluation, loss_and_aux
from firstish.objectives.base import Order, Point
from firstish.objectives.flatten import Layout
from firstish.objectives.global_state import RandomState
from firstish.objectives.hooks import Buffers, touched_buffers
from firstish.objectives.hvp import Mode, graph_eps

Closure = Callable[[], object]


OwnGrads = Sequence[tuple[Tensor, int]]
"""The `.grad` that the last step left, and their versions."""


class Before(NamedTuple):
    """What a step may change, before it; put back if it fails."""

    x: Tensor
    grads: list[Tensor | None]
    buffers: Buffers | None
    values: Sequence[Tensor]  # of the buffers


class Skipped(Exception):
    """The closure returned None at the start of a step.

    Args:
        random_after: the random state that it left, if it drew numbers.
    """

    def __init__(self, random_after: RandomState | None) -> None:
        super().__init__()
        self.random_after = random_after


class AcceptedPoint(AutogradPoint):
    """The start of a step that the step before has accepted, with its buffers."""

    def accept(self) -> None:
        """Nothing: the buffers were committed by the step before."""


_ACCUMULATED = (
    "`.grad` holds gradients from before `ScaledGD.step(closure)`, and the closure adds to them "
    "instead of zeroing them. A step knows only the loss that the closure returns. To accumulate "
    "gradients over several batches, compute all of them in one closure (Lightning: leave "
    "`accumulate_grad_batches` at 1); else call `optimizer.zero_grad()` in the closure."
)

_NOTHING = (
    "the closure returned None. Return the loss. (In Lightning, `step()` without a closure is "
    "given one that does nothing; and `training_step` may skip any batch by None but the first.)"
)


class ClosureObjective(AutogradObjective):
    """The loss that a closure returns, as a function of live parameters.

    A closure may return the loss, or also call `backward()`, as for L-BFGS; each evaluation finds
    out which, by `.grad`. After `backward()` there is no graph, so that products are gradient
    differences.

    Every evaluation writes the parameters, so only the newest graph is valid: a point whose
    gradient is needed later is evaluated again. An evaluation begins with the buffers that were
    committed last, and leaves `.grad` and the random state as they were.

    Args:
        parameters: the live parameters, all trainable.
        reuse: True if an accepted trial is the start of the next step; otherwise the graph of a
            trial is freed at once.
        product: "auto", "double-backward" or "difference".
        check: compare two evaluations at the first point, and raise if they differ.
        grad_scale: the largest gradient norm of earlier steps.
    """

    flat_leaf = False
    one_graph = True
    _written: Tensor | None  # what the live parameters hold; None if unknown

    def __init__(
        self,
        parameters: Sequence[Tensor],
        *,
        reuse: bool,
        product: Mode,
        check: bool,
        grad_scale: float = 0.0,
    ) -> None:
        layout = Layout(parameters, "ScaledGD(params)")
        super().__init__(
            layout, "ScaledGD", "the closure", product=product, check=check, weight_decay=0.0
        )
        self.product.grad_scale = grad_scale
        self.parameters = parameters
        self._reuse = reuse
        self._calls_backward = False
        self._random_after: RandomState | None = None  # after an evaluation that draws
        self._newest: Evaluation | None = None
        self._buffers: Buffers | None = None  # known from the first evaluation on
        self._committed: Sequence[Tensor] = ()  # the buffers of the last accepted point
        self._dirty = False  # True if an evaluation has changed the buffers since
        self._versions: list[int] = []
        self._confirmed = not check  # True once the gradients were seen to be those of the loss
        self._starting = False  # True if the next evaluation is the first of a step
        self._foreign_grads = False  # True if `.grad` holds gradients that no step left
        self._may_skip = False  # True if a closure that returns None skips the step

    def has_one_mask(self) -> bool:
        """True if the closure draws random numbers that `reuse_value` keeps for all steps."""
        return self._reuse and self._random_after is not None

    def begin(
        self,
        closure: Closure,
        random: RandomState,
        *,
        order: Order,
        iterations: int,
        kept: Point | None,
        own: OwnGrads,
    ) -> Point:
        """The point at which a step starts: `kept` if it is still valid, else a new one.

        Args:
            closure: the loss from now on.
            random: the random state that every evaluation replays.
            order: of the derivatives that the method needs.
            iterations: how many steps were taken before.
            kept: the point that the last step accepted, if it may be reused.
            own: what the last `finish` returned.
        """
        self._closure = closure
        self._random = random
        self._starting = True
        self._may_skip = iterations > 0
        self._foreign_grads = self._has_foreign_grads(own)
        x = self._written = self.layout.flatten([p.detach() for p in self.parameters])
        if self._buffers is not None:
            self._committed = self._buffers.read()
        self._before = Before(x, [p.grad for p in self.parameters], self._buffers, self._committed)
        if kept is not None and self._untouched(kept.x):
            return kept
        point = AcceptedPoint if self._reuse and iterations else AutogradPoint
        return point(self, x, order)

    def undo(self) -> None:
        """Leave parameters, buffers, `.grad` and hooks as they were before the step.

        Also if it was interrupted in the middle of a write.
        """
        before = self._before
        self._written = self._newest = None
        self.write(before.x)
        for p, grad in zip(self.parameters, before.grads, strict=True):
            p.grad = grad
        if before.buffers is not None:
            before.buffers.write(before.values)
        elif self._buffers is not None:  # found in this step, perhaps not all of them
            self._buffers.unhook()
            self._buffers.write(self._buffers.before)
        self._buffers, self._committed, self._dirty = before.buffers, before.values, False

    def finish(self, start: Point, new: Point, own: OwnGrads) -> OwnGrads:
        """Leave parameters, buffers, `.grad` and the random state as after one evaluation.

        Returns:
            The `.grad` that this step left: the gradient at its start if the closure calls
            `backward()`; otherwise those of an earlier step, `own`.
        """
        self.write(new.x)
        self._versions = self._version()
        if self._reuse:
            new.accept()
        else:
            new.release()
        self.restore_buffers()  # those of the accepted point, or of the start if there is none
        if self._random_after is not None and not self._reuse:
            self._random_after.restore()  # so that the next mask is another
        if not self._calls_backward:
            return own
        left = []
        for p, grad in zip(self.parameters, self.layout.split(start.grad), strict=True):
            p.grad = grad.clone()
            left.append((p.grad, p.grad._version))
        return left

    def _has_foreign_grads(self, own: OwnGrads) -> bool:
        """True if `.grad` holds numbers that no step has left there."""
        left = {id(grad): version for grad, version in own}
        found = [p.grad for p in self.parameters if p.grad is not None]
        return any(left.get(id(g)) != g._version and bool(g.any()) for g in found)

    def _untouched(self, x: Tensor) -> bool:
        """True if the live parameters still hold what `finish` wrote: its graph is valid."""
        assert self._written is not None  # by `begin`
        same = self._versions == self._version() and torch.equal(self._written, x)
        if same:
            self._written = x
        return same

    def expect(self, kept: Point) -> None:
        """Raise if the closure has another value at the point that the last step accepted."""
        again = self.value(self.run(kept.x, graph=True), kept.x)
        if not math.isfinite(again):
            raise NonFiniteError(
                f"The loss is {again} at the parameters where the last step ended with "
                f"{kept.value:.6g}. Check what has changed since: the data may have infinite or "
                "missing values now."
            )
        if not abs(again - kept.value) <= 10 * self.eps * abs(kept.value):
            raise NondeterministicError(
                "`ScaledGD(reuse_value=True)` needs the same loss function in every step, but at "
                f"the same parameters the last step's loss was {kept.value!r} and this step's is "
                f"{again!r}. Use `reuse_value=False` if the batch changes, or compute the loss of "
                "all of the data."
            )

    def _version(self) -> list[int]:
        # Tensor._version is private but stable: it is what autograd's own check compares.
        return [p._version for p in self.parameters]

    def at(self, x: Tensor, order: Order = 2) -> AutogradPoint:
        """A trial of the line search; without a graph unless it may start the next step."""
        return AutogradPoint(self, x, order if self._reuse else 0)

    def write(self, x: Tensor) -> None:
        """Put x into the live parameters, bit for bit."""
        if x is not self._written:
            self.layout.write(x, self.parameters)
            self._written = x

    def is_current(self, run: Evaluation) -> bool:
        """True if the graph of the run is still valid."""
        return run is self._newest

    def evaluate(self, x: Tensor, graph: bool) -> Evaluation:
        """Call the closure at x, the buffers as they were committed."""
        self.write(x)
        self.restore_buffers()
        self._dirty, self._newest = True, None  # of other parameters, also if the closure raises
        if self._buffers is None:
            self._buffers = Buffers()
            self._committed = self._buffers.before
            with touched_buffers(self._buffers):
                returned, grads = self._call()
        else:
            returned, grads = self._call()
        run = self._evaluation(returned, grads)
        run.buffers = self._buffers.read()
        self._newest = run
        return run

    def restore_buffers(self) -> None:
        """Undo what evaluations did to the buffers since the last commit.

        Not before it is needed: the newest graph may have saved them.
        """
        if self._dirty and self._buffers is not None and self._buffers.places:
            self._newest = None
            self._buffers.write(self._committed)
            self._dirty = False

    def commit(self, buffers: Sequence[Tensor]) -> None:
        """Keep the buffers of an accepted point."""
        self._committed = buffers
        if self._newest is None or self._newest.buffers is not buffers:
            self._dirty = True
            self.restore_buffers()
        self._dirty = False

    def _call(self) -> tuple[object, list[Tensor | None]]:
        """What the closure returned, and the gradients it left; `.grad` is put back.

        Always with a graph: the loss may need one of its own, or read `requires_grad`.
        """
        kept = [p.grad for p in self.parameters]
        for p in self.parameters:
            p.grad = None
        marks = self._mark()
        try:
            with torch.enable_grad(), self._random.replayed() as drew:
                returned = self._closure()
                self._random_after = RandomState.capture() if drew() else None
            return returned, self._unmarked(marks)
        finally:
            for p, grad in zip(self.parameters, kept, strict=True):
                p.grad = grad

    def _mark(self) -> list[tuple[Tensor, int]] | None:
        """NaN in the place of foreign gradients, to see whether the closure zeroes them."""
        if not self._foreign_grads:
            return None
        self._foreign_grads = False
        marks = [torch.full_like(p, math.nan) for p in self.parameters]
        for p, mark in zip(self.parameters, marks, strict=True):
            p.grad = mark
        return [(mark, mark._version) for mark in marks]

    def _unmarked(self, marks: list[tuple[Tensor, int]] | None) -> list[Tensor | None]:
        grads = [p.grad for p in self.parameters]
        for k, (mark, version) in enumerate(marks or ()):
            if grads[k] is not mark:
                continue
            if mark._version == version:
                grads[k] = None  # no gradient came here
            elif mark.isnan().all():
                raise ValueError(_ACCUMULATED)
        return grads

    def noise(self, run: Evaluation) -> float:
        """The unit roundoff of a run; from the modules' outputs if the loss has no graph.

        In torch 2.4 a graph has no dtypes after backward().
        """
        eps = graph_eps(run.loss)
        if self._buffers is None or hasattr(run.loss.grad_fn, "_input_metadata"):
            return eps
        return max(eps, self._buffers.eps)

    def confirm_once(self, point: Point) -> None:
        """Compare the gradient that `backward()` left with the loss a short way along it.

        For methods without products, which compare them anyway.
        """
        assert isinstance(point, AutogradPoint)
        if self._confirmed or not self._calls_backward or not 0 < point.grad_norm < math.inf:
            return
        distance = math.sqrt(self.eps) * (1 + norm(point.x))
        point.gradient_at(point.x - point.grad * (distance / point.grad_norm))

    def confirm(self, point: AutogradPoint, run: Evaluation, offset: Tensor, g: Tensor) -> None:
        """Raise if the gradients are not those of the loss that the closure returned.

        Along x + offset both slopes and the change of f are known. If the slopes agree with each
        other, and the change is well above rounding, it must agree with them too.
        """
        if self._confirmed:
            return
        slope, change = dot(point.grad, offset), run.loss.item() - point.value
        curved = not abs(dot(g, offset) - slope) <= 0.1 * abs(slope)
        if curved or not max(abs(slope), abs(change)) > 1000 * self.eps * abs(point.value):
            return  # not conclusive here
        if not abs(change - slope) <= 0.2 * abs(slope):
            raise ValueError(
                "The gradients that the closure leaves are not those of the loss it returns: the "
                f"loss changes by {change:.3g} where they predict {slope:.3g}. Return the loss "
                "that `backward()` was called on, without gradient clipping (Lightning: "
                "`gradient_clip_val`) and loss scaling."
            )
        self._confirmed = True

    def _evaluation(self, returned: object, grads: Sequence[Tensor | None]) -> Evaluation:
        starting, self._starting = self._starting, False
        if returned is None and all(g is None for g in grads):
            if not self._may_skip:
                raise TypeError(_NOTHING)
            if starting:
                raise Skipped(self._random_after)
            nans = [torch.full_like(p, math.nan) for p in self.parameters]
            return Evaluation(nans[0].sum(), self.parameters, grads=nans)  # so it is refused
        self._calls_backward = any(g is not None for g in grads)
        if not self._calls_backward:
            loss, aux = loss_and_aux(returned, self.loss_name)
            return Evaluation(loss, self.parameters, aux=aux)
        if self.product.requested == "double-backward":
            raise ProductError(
                "`product='double-backward'` is not supported: the closure calls `backward()`. "
                "Return the loss without calling it, or use `product='auto'`."
            )
        self.product.settle("difference")
        if isinstance(returned, float):
            returned = torch.tensor(returned, dtype=torch.float64)
        loss, aux = loss_and_aux(returned, self.loss_name)
        return Evaluation(loss, self.parameters, grads=grads, aux=aux)

"""f as the closure of a torch optimizer: trials are written into the live parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from firstish.errors import NondeterministicError, ProductError
from firstish.linalg import dot
from firstish.objectives.autograd import AutogradObjective, AutogradPoint, Evaluation
from firstish.objectives.base import Order, Point
from firstish.objectives.checks import loss_and_aux
from firstish.objectives.flatten import Layout
from firstish.objectives.hooks import Buffers, graph_eps, touched_buffers
from firstish.objectives.product_selector import Mode
from firstish.objectives.rng import RandomState

Closure = Callable[[], object]


class Found(NamedTuple):
    """What a step finds, and leaves if it fails."""

    x: Tensor
    grads: list[Tensor | None]
    buffers: Buffers | None
    values: Sequence[Tensor]  # of the buffers


class Skipped(Exception):
    """The closure returned None at the start of a step."""


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
    """A closure over live parameters.

    Both kinds of closure work, and each evaluation finds out which it has: one that returns the
    loss, and one that also calls `backward()`, as for L-BFGS (seen by `.grad` being filled). The
    second kind leaves no graph, so its products are gradient differences.

    Only the newest graph is valid, because every evaluation writes the parameters: a point that
    is asked for its gradient later evaluates again. `.grad` and the random state are the same after
    an evaluation as before it; buffers are what was committed before each evaluation, and again
    after `restore_buffers`.

    Args:
        parameters: the live parameters, all trainable.
        trial_order: order of the derivatives at the trials; 0 frees their graph at once.
        product: "auto", "double-backward" or "difference".
        check: compare two evaluations at the first point, and refuse a loss that differs.
    """

    flat_leaf = False
    one_graph = True
    _written: Tensor | None  # what the live parameters hold; None while it is being written

    def __init__(
        self, parameters: Sequence[Tensor], *, trial_order: Order, product: Mode, check: bool
    ) -> None:
        layout = Layout(parameters, "ScaledGD(params)")
        super().__init__(
            layout, "ScaledGD", "the closure", product=product, check=check, weight_decay=0.0
        )
        self.parameters = parameters
        self.trial_order = trial_order
        self.calls_backward = False
        self.random_after: RandomState | None = None  # where an evaluation that draws ends
        self._newest: Evaluation | None = None
        self._buffers: Buffers | None = None  # known from the first evaluation on
        self._committed: Sequence[Tensor] = ()  # what the buffers are until a point is accepted
        self._dirty = False  # whether an evaluation has changed them since
        self._versions: list[int] = []
        self._confirmed = not check  # whether the gradients were seen to be those of the loss
        self._starting = False  # whether the next evaluation is the first of a step
        self._others_grads = False  # whether `.grad` holds gradients that a step did not leave
        self.may_skip = False  # whether None asks to skip a step: not before the closure has worked

    def begin(
        self,
        closure: Closure,
        random: RandomState,
        order: Order = 2,
        others_grads: bool = False,
    ) -> AutogradPoint:
        """Use this closure and this random state from now on; the live parameters as a point."""
        self._closure = closure
        self.random = random  # every evaluation replays it
        self._starting = True
        self._others_grads = others_grads
        x = self._written = self.layout.flatten([p.detach() for p in self.parameters])
        if self._buffers is not None:
            self._committed = self._buffers.read()
        self._found = Found(x, [p.grad for p in self.parameters], self._buffers, self._committed)
        return AutogradPoint(self, x, order)

    def undo(self) -> None:
        """Leave parameters, buffers, `.grad` and hooks as `begin` found them.

        Wherever the step was interrupted, also in the middle of a write.
        """
        found = self._found
        self._written = self._newest = None
        self.write(found.x)
        for p, grad in zip(self.parameters, found.grads, strict=True):
            p.grad = grad
        if found.buffers is not None:
            found.buffers.write(found.values)
        elif self._buffers is not None:  # met in this step; not all of them, if that was cut short
            self._buffers.unhook()
            self._buffers.write(self._buffers.before)
        self._buffers, self._committed, self._dirty = found.buffers, found.values, False

    def keep(self, x: Tensor) -> None:
        """Leave x in the live parameters, and remember that nobody has written to them since."""
        self.write(x)
        self._versions = self._version()

    def untouched(self, x: Tensor) -> bool:
        """Whether the live parameters still hold what `keep` left, so that its graph is valid."""
        assert self._written is not None  # by `begin`
        same = self._versions == self._version() and torch.equal(self._written, x)
        if same:
            self._written = x
        return same

    def expect(self, kept: Point) -> None:
        """Refuse a closure that is not the function that gave the kept point its value."""
        again = self.value(self.run(kept.x, graph=True), kept.x)
        if not abs(again - kept.value) <= 10 * self.eps * abs(kept.value):
            raise NondeterministicError(
                "`ScaledGD(reuse_value=True)` is a promise that the loss is the same function in "
                f"every step, but at the same parameters the last step's was {kept.value!r} and "
                f"this step's is {again!r}. Leave `reuse_value` out where the batch changes, or "
                "compute the loss of all of the data."
            )

    def _version(self) -> list[int]:
        # Tensor._version is private but stable: it is what autograd's own check compares.
        return [p._version for p in self.parameters]

    def at(self, x: Tensor, order: Order = 2) -> AutogradPoint:
        """A trial, asked no further than trials are."""
        return AutogradPoint(self, x, 0 if self.trial_order == 0 else order)

    def write(self, x: Tensor) -> None:
        """Put x into the live parameters, to the bit."""
        if x is not self._written:
            self._written = None
            self.layout.write(x, self.parameters)
            self._written = x

    def is_current(self, run: Evaluation) -> bool:
        """Whether the graph of that run can still be used."""
        return run is self._newest

    def evaluate(self, x: Tensor, graph: bool) -> Evaluation:
        """Call the closure at x, the buffers as they were committed."""
        self.write(x)
        self.restore_buffers()
        self._dirty = True
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
        """What the closure returned, and the gradients it left.

        `.grad` and the random state are put back.

        Always with a graph: the loss may differentiate by its inputs, or look at `requires_grad`.
        """
        kept = [p.grad for p in self.parameters]
        for p in self.parameters:
            p.grad = None
        marks = self._mark()
        try:
            with torch.enable_grad(), self.random.replayed() as drew:
                returned = self._closure()
                self.random_after = RandomState.capture() if drew() else None
            return returned, self._unmarked(marks)
        finally:
            for p, grad in zip(self.parameters, kept, strict=True):
                p.grad = grad

    def _mark(self) -> list[tuple[Tensor, int]] | None:
        """Where others left gradients, NaN in their place: shows whether the closure zeroes them.

        Only at the start of such a step, so nothing is paid for it otherwise.
        """
        if not self._others_grads:
            return None
        self._others_grads = False
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
        """Where the graph hides the precision the modules' outputs show it.

        A loss may come without its graph; and in torch 2.4 a graph says nothing after backward().
        """
        told = hasattr(run.loss.grad_fn, "_input_metadata")
        hidden = None if told else self._buffers
        return max(graph_eps(run.loss), 0.0 if hidden is None else hidden.eps)

    def confirm(self, point: AutogradPoint, run: Evaluation, moved: Tensor, g: Tensor) -> None:
        """Refuse gradients that are not those of the loss the closure returned.

        Along x + moved both slopes and the change of f are known; where the slopes agree with each
        other, and the change is well above rounding, it must be what they say.
        """
        if self._confirmed:
            return
        slope, change = dot(point.grad, moved), run.loss.item() - point.value
        bent = not abs(dot(g, moved) - slope) <= 0.1 * abs(slope)
        if bent or not max(abs(slope), abs(change)) > 1000 * self.eps * abs(point.value):
            return  # cannot tell, here
        if not abs(change - slope) <= 0.2 * abs(slope):
            raise ValueError(
                "The gradients that the closure leaves are not those of the loss it returns: that "
                f"changes by {change:.3g} where they say {slope:.3g}. Return what `backward()` was "
                "called on, and leave out gradient clipping (Lightning: `gradient_clip_val`) and "
                "loss scaling."
            )
        self._confirmed = True

    def _evaluation(self, returned: object, grads: Sequence[Tensor | None]) -> Evaluation:
        starting, self._starting = self._starting, False
        if returned is None and all(g is None for g in grads):
            if not self.may_skip:
                raise TypeError(_NOTHING)
            if starting:
                raise Skipped
            nans = [torch.full_like(p, math.nan) for p in self.parameters]
            return Evaluation(nans[0].sum(), self.parameters, grads=nans)  # so it is refused
        self.calls_backward = any(g is not None for g in grads)
        if not self.calls_backward:
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

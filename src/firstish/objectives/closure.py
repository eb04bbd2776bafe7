"""f as the closure of a torch optimizer: trials are written into the live parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from firstish.errors import ProductError
from firstish.objectives.graph import Evaluation, GraphObjective, GraphPoint
from firstish.objectives.layout import Layout
from firstish.objectives.loss import loss_and_aux
from firstish.objectives.point import Depth
from firstish.objectives.products import Mode
from firstish.objectives.random_state import RandomState
from firstish.objectives.watch import Buffers, touched_buffers

Closure = Callable[[], object]


class ClosureObjective(GraphObjective):
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
        trial_depth: how far trials are asked; "value" drops their graph at once.
        product: "auto", "double-backward" or "difference".
        check: compare two evaluations at the first point, and refuse a loss that differs.
    """

    flat_leaf = False
    one_graph = True

    def __init__(
        self, parameters: Sequence[Tensor], *, trial_depth: Depth, product: Mode, check: bool
    ) -> None:
        layout = Layout(parameters, "ScaledGD(params)")
        super().__init__(
            layout, "ScaledGD", "the closure", product=product, check=check, weight_decay=0.0
        )
        self.parameters = parameters
        self.trial_depth = trial_depth
        self.calls_backward = False
        self.random_after: RandomState | None = None  # where one evaluation leaves the generators
        self._newest: Evaluation | None = None
        self._buffers: Buffers | None = None  # known from the first evaluation on
        self._committed: Sequence[Tensor] = ()  # what the buffers are until a point is accepted
        self._dirty = False  # whether an evaluation has changed them since
        self._versions: list[int] = []

    def begin(self, closure: Closure, random: RandomState, depth: Depth = "product") -> GraphPoint:
        """Use this closure and this random state from now on; the live parameters as a point."""
        self._closure = closure
        self._random = random
        self._written = self.layout.flatten([p.detach() for p in self.parameters])
        if self._buffers is not None:
            self._committed = self._buffers.read()
        return GraphPoint(self, self._written, depth)

    def keep(self, x: Tensor) -> None:
        """Leave x in the live parameters, and remember that nobody has written to them since."""
        self.write(x)
        self._versions = self._version()

    def untouched(self, x: Tensor) -> bool:
        """Whether the live parameters still hold what `keep` left, so that its graph is valid."""
        same = self._versions == self._version() and torch.equal(self._written, x)
        if same:
            self._written = x
        return same

    def _version(self) -> list[int]:
        # Tensor._version is private but stable: it is what autograd's own check compares.
        return [p._version for p in self.parameters]

    def at(self, x: Tensor, depth: Depth = "product") -> GraphPoint:
        """A trial, asked no further than trials are."""
        return GraphPoint(self, x, "value" if self.trial_depth == "value" else depth)

    def write(self, x: Tensor) -> None:
        """Put x into the live parameters, to the bit."""
        if x is not self._written:
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
        try:
            with torch.enable_grad(), self._random.replayed():
                returned = self._closure()
                self.random_after = RandomState.capture()
            return returned, [p.grad for p in self.parameters]
        finally:
            for p, grad in zip(self.parameters, kept, strict=True):
                p.grad = grad

    def _evaluation(self, returned: object, grads: Sequence[Tensor | None]) -> Evaluation:
        self.calls_backward = any(g is not None for g in grads)
        if not self.calls_backward:
            loss, aux = loss_and_aux(returned, self.what)
            return Evaluation(loss, self.parameters, aux=aux)
        if self.product.mode == "double-backward":
            raise ProductError(
                "`product='double-backward'` is impossible: the closure calls `backward()`. "
                "Return the loss without calling it, or use `product='auto'`."
            )
        self.product.settle("difference")
        if isinstance(returned, float):
            returned = torch.tensor(returned, dtype=torch.float64)
        loss, aux = loss_and_aux(returned, self.what)
        return Evaluation(loss, self.parameters, grads=grads, aux=aux)

"""What a sharded sum looks at once, before it trusts data, loss and gradient.

Only sums over all ranks decide, so that all ranks make the same calls and raise together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from firstish.distributed import Group
from firstish.errors import NondeterministicError
from firstish.linalg import norm
from firstish.objectives.finite_sum.checks import mixed_rows, refuse_changing_data
from firstish.objectives.finite_sum.chunks import Chunk, Chunks, TensorChunks, part, rows_of
from firstish.objectives.finite_sum.reduction import SummedLoss
from firstish.objectives.hooks import refuse_nondeterministic
from firstish.objectives.rng import RandomState
from firstish.objectives.sharded.vector import Shard

ValuePass = Callable[[Tensor, Sequence[Chunk]], tuple[float, float]]
GradientPass = Callable[[Tensor, Sequence[Chunk]], tuple[float, float, Shard]]


class ShardedLook:
    """Refuses what `FirstLook` refuses of data and loss, and a gradient that is not that of f.

    Args:
        model: for the names in errors.
        loss: the loss in sums.
        group: the ranks.
        value: the sum and denominator over some chunks of every rank.
        gradient: the same with the gradient.
        eps: unit roundoff of the arithmetic f is computed in.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: SummedLoss,
        group: Group,
        value: ValuePass,
        gradient: GradientPass,
        *,
        eps: float,
    ) -> None:
        self._model = model
        self._loss = loss
        self._group = group
        self._value = value
        self._gradient = gradient
        self._eps = eps

    def __call__(self, x: Shard, chunks: Chunks) -> None:
        """Look at the first chunk of every rank."""
        self._refuse_changing_data(chunks)
        first = next(iter(chunks), None)
        mine = [] if first is None else [first]
        value, draws = self._same_twice(x, mine)
        if not draws:
            self._adds_up(x, mine)
        if math.isfinite(value):
            self._has_this_gradient(x, mine)

    def _refuse_changing_data(self, chunks: Chunks) -> None:
        fault = None
        if not isinstance(chunks, TensorChunks):
            try:
                refuse_changing_data(chunks)
            except NondeterministicError as error:
                fault = error
        if self._group.any(fault is not None):
            raise fault or NondeterministicError(
                f"`{self._loss.call}(data=...)` gives other data on a second pass on another rank."
            )

    def _same_twice(self, x: Shard, mine: Sequence[Chunk]) -> tuple[float, bool]:
        """The sum, and whether the model draws random numbers."""
        state = RandomState.capture()

        def evaluate() -> float:
            return self._value(x, mine)[0]

        with state.replayed() as drew:
            first = evaluate()
            drawn = self._group.any(drew())
        second = evaluate()  # which leaves the state moved, for others to see that it draws
        if math.isfinite(first) and not abs(first - second) <= 10 * self._eps * abs(first):
            refuse_nondeterministic(
                state.replaying(evaluate), first, second, "the loss", self._model
            )
        return first, drawn

    def _adds_up(self, x: Shard, mine: Sequence[Chunk]) -> None:
        """Whether halves give what the whole gives."""
        rows = rows_of(mine[0]) if mine else 0
        halves = mine
        if rows >= 2:
            cut = rows // 2
            halves = [part(mine[0], 0, cut), part(mine[0], cut, rows)]
        one, below = self._value(x, mine)
        two, below_halves = self._value(x, halves)
        if self._loss.is_sum:
            below_halves = below
        loose = self._eps**0.6
        apart = abs(one - two) > loose * (abs(one) + abs(two))
        if apart or abs(below - below_halves) > 1e-6 * abs(below_halves):
            total_rows = int(sum(self._group.gather(rows)))
            raise mixed_rows(self._loss, total_rows, one, two)

    def _has_this_gradient(self, x: Shard, mine: Sequence[Chunk]) -> None:
        """Whether f changes along the gradient as the gradient says.

        FSDP divides by the number of ranks unless told otherwise, and hooks may change gradients
        on their way. A kink, or a change of f that is lost in rounding, cannot tell.
        """
        state = RandomState.capture()

        def f(shift: float) -> float:
            with state.replayed():
                return self._value(x.add(v, alpha=shift), mine)[0]

        with state.replayed():
            here, _, g = self._gradient(x, mine)
        g_norm, eps = norm(g), self._eps
        if not 0 < g_norm < math.inf:
            return
        v, h = (g / g_norm).to(x.dtype), eps ** (1 / 3) * (1 + norm(x))
        ahead, behind = (f(h) - here) / h, (here - f(-h)) / h
        lost = 20 * eps * abs(here) / h > 0.05 * g_norm
        if lost or not abs(ahead - behind) < 0.2 * g_norm:
            return
        ratio = g_norm / ((ahead + behind) / 2) if ahead + behind else math.inf
        if not 0.75 < ratio < 1.5:
            raise ValueError(
                f"`{self._loss.call}(model=...)` gives a gradient that is {ratio:.3g} times that "
                "of f. Shard it without `set_gradient_divide_factor` and without hooks that "
                "change gradients."
            )

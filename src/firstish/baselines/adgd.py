"""AdGD: step sizes from the change of the gradient over the last step, without a line search.

With L = |g - g_prev| / |x - x_prev| and theta the ratio of the last two step sizes, the step size
is the smaller of two bounds: one on its growth, by theta, and one by the local curvature L.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from firstish._validate import check_positive
from firstish.baselines.steps import STATIONARY, against_gradient, plain_step
from firstish.linalg import norm
from firstish.methods.base import Step
from firstish.objectives.base import Order, Point

GROWTH = 10.0  # factor between trials of the first step while it is too short
MAX_TRIALS = 100  # of AdGD-2's first step
MAX_GROWN = 10.0  # step size at which AdGD-2's first step stops growing
SMALLEST = sys.float_info.min  # a step size of 0 would have no ratio to the next


@dataclass(frozen=True, slots=True)
class AdGDState:
    """The last step size, its ratio to the one before, and the previous point.

    Args:
        step_size: lambda.
        ratio: theta.
        x: the previous point; None before the first step.
        grad: the gradient at x.
    """

    step_size: float
    ratio: float
    x: Tensor | None = None
    grad: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdGD:
    """Adaptive gradient descent without descent (Malitsky and Mishchenko 2020).

        lambda <- min( sqrt(1 + theta) lambda_prev, 1 / (2 L) ),    x <- x - lambda g

    theta starts at infinity, so the second lambda is 1 / (2 L). 2 oracle calls per iteration; f
    itself is not used.

    Args:
        step_size: the first lambda; tiny, because it only serves to measure L. It grows tenfold
            as long as the gradient does not change (in float32 such a step is lost to rounding).

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0], dtype=torch.float64)
        >>> result = firstish.minimize(lambda x: (x**2).sum(), x0, method=AdGD())
        >>> round(result.history[1].step_size, 4)
        0.25
    """

    order: ClassVar[Order] = 1

    step_size: float = 1e-10

    def __post_init__(self) -> None:
        check_positive("AdGD", "step_size", self.step_size)

    def init(self, point: Point) -> AdGDState:
        """The state before the first step."""
        return AdGDState(self.step_size, math.inf)

    def step(self, point: Point, state: AdGDState) -> tuple[Point, Step, AdGDState]:
        """One step along -g."""
        if point.grad_norm == 0:
            return point, STATIONARY, state
        size, ratio = state.step_size, state.ratio
        if state.x is not None and state.grad is not None:
            size, ratio = self._next(state, local_lipschitz(state.x, state.grad, point))
        new = against_gradient(point, size)
        after = AdGDState(size, ratio, point.x, point.grad)
        return new, plain_step(point, new, size), after

    def _next(self, state: AdGDState, L: float) -> tuple[float, float]:
        grown = math.sqrt(1 + state.ratio) * state.step_size
        size = min(grown, 1 / (2 * L) if L > 0 else math.inf)
        if size == math.inf:
            return GROWTH * state.step_size, math.inf
        size = max(size, SMALLEST)
        return size, size / state.step_size


@dataclass(frozen=True, slots=True, kw_only=True)
class AdGD2:
    """AdGD with larger steps (Malitsky and Mishchenko 2023, their algorithm 2).

        lambda <- min( sqrt(2/3 + theta), 1 / sqrt(max(2 lambda_prev^2 L^2 - 1, 0)) ) lambda_prev
        x <- x - lambda g

    theta starts at 1/3, so a first lambda that is far too small would grow slowly. Therefore the
    first lambda is searched for: it is multiplied by 10 while lambda L < 1/sqrt(2) and lambda < 10,
    then halved while lambda L > 2. Each of these trials costs 2 oracle calls, as does every later
    iteration.

    Args:
        step_size: the first trial for the first lambda.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0], dtype=torch.float64)
        >>> result = firstish.minimize(lambda x: (x**2).sum(), x0, method=AdGD2())
        >>> result.history[0].trials, result.history[0].step_size
        (3, 1.0)
    """

    order: ClassVar[Order] = 1

    step_size: float = 1e-2

    def __post_init__(self) -> None:
        check_positive("AdGD2", "step_size", self.step_size)

    def init(self, point: Point) -> AdGDState:
        """The state before the first step."""
        return AdGDState(self.step_size, 1 / 3)

    def step(self, point: Point, state: AdGDState) -> tuple[Point, Step, AdGDState]:
        """One step along -g; the first one is searched for."""
        if point.grad_norm == 0:
            return point, STATIONARY, state
        if state.x is None or state.grad is None:
            new, size, trials = self._first(point, state.step_size)
            after = AdGDState(size, state.ratio, point.x, point.grad)
            return new, plain_step(point, new, size, trials), after
        last = state.step_size
        reach = last * local_lipschitz(state.x, state.grad, point)
        excess = 2 * reach * reach - 1
        bound = 1 / math.sqrt(excess) if excess > 0 else math.inf
        size = max(min(math.sqrt(2 / 3 + state.ratio), bound) * last, SMALLEST)
        new = against_gradient(point, size)
        after = AdGDState(size, size / last, point.x, point.grad)
        return new, plain_step(point, new, size), after

    def _first(self, point: Point, size: float) -> tuple[Point, float, int]:
        """The next point, the step size and the number of trials of the first step."""
        growing = True
        for trials in range(1, MAX_TRIALS + 1):
            new = against_gradient(point, size)
            reach = math.inf
            if new.is_finite():
                reach = size * local_lipschitz(point.x, point.grad, new)
            growing = growing and reach < math.sqrt(1 / 2) and size < MAX_GROWN
            if trials == MAX_TRIALS or (not growing and reach <= 2):
                break
            size *= GROWTH if growing else 0.5
        return new, size, trials


def local_lipschitz(x: Tensor, grad: Tensor, point: Point) -> float:
    """|change of g| / |change of x| from x to the point; 0 if x did not change."""
    distance = norm(point.x - x)
    return norm(point.grad - grad) / distance if distance > 0 else 0.0

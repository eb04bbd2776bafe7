"""PoNo: a non-monotone Armijo line search whose first trial is a Polyak step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from firstish._validate import check_below_one, check_positive
from firstish.baselines.steps import STATIONARY, against_gradient, plain_step
from firstish.line_search import zhang_hager_mean
from firstish.methods.base import Failure, Step
from firstish.objectives.base import Order, Point

MAX_TRIALS = 100
LAST_RESORT = 1e-6  # the step size if no trial was accepted
TINY_GRADIENT = 1e-8  # below this the authors' code takes no step


@dataclass(frozen=True, slots=True)
class PoNoState:
    """Zhang and Hager's Q and C, and l, the number of reductions carried over."""

    weight: float = 0.0
    mean: float = 0.0
    backtracks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoNo:
    """The Polyak non-monotone line search (PoNoS) on the full objective.

        eta = delta^l (f - f*) / (c_p |g|^2 + 1e-8), clipped to [min_step, max_step]
        accept if f(x - eta g) <= max(C, f) - c eta |g|^2, else eta <- delta eta
        l <- max(l + e - 1, 0), e the number of rejected trials (99 if all 100 were)

    C is Zhang and Hager's mean with factor xi; for xi = 1 it is the mean of all values so far. The
    values of f are far from monotone, so the best iterate is worth reporting besides the last. An
    iteration costs 1 oracle call for the gradient and 1 for each trial.

    Args:
        max_step: 10 is the default of the authors' code, 1e10 its choice for convex problems.
        min_step: the smallest first trial.
        c: the fraction of the linear decrease required.
        c_p: divisor of the Polyak step.
        delta: factor between trials, and base of delta^l.
        xi: non-monotonicity, from 0 (monotone) to 1.
        f_star: f*, a lower bound of f.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0], dtype=torch.float64)
        >>> result = firstish.minimize(lambda x: (x**2).sum(), x0, method=PoNo())
        >>> round(result.history[0].step_size, 4)
        0.3125
    """

    order: ClassVar[Order] = 1

    max_step: float = 10.0
    min_step: float = 1e-6
    c: float = 0.5
    c_p: float = 0.1
    delta: float = 0.5
    xi: float = 1.0
    f_star: float = 0.0

    def __post_init__(self) -> None:
        check_positive("PoNo", "max_step", self.max_step)
        if not 0 < self.min_step <= self.max_step:
            raise ValueError(
                f"`PoNo(min_step=...)` must lie in (0, max_step], max_step={self.max_step}, "
                f"got {self.min_step}."
            )
        check_below_one("PoNo", "c", self.c, zero=False)
        check_positive("PoNo", "c_p", self.c_p)
        check_below_one("PoNo", "delta", self.delta, zero=False)
        if not 0 <= self.xi <= 1:
            raise ValueError(f"`PoNo(xi=...)` must lie in [0, 1], got {self.xi}.")
        if not math.isfinite(self.f_star):
            raise ValueError(
                f"`PoNo(f_star=...)` must be finite, got {self.f_star}. Use a lower bound of f."
            )

    def init(self, point: Point) -> PoNoState:
        """The state before the first step."""
        return PoNoState()

    def step(self, point: Point, state: PoNoState) -> tuple[Point, Step, PoNoState]:
        """One gradient, then a line search."""
        if point.grad_norm == 0:
            return point, STATIONARY, state
        f = point.value
        if point.grad_norm < TINY_GRADIENT or f == self.f_star:
            return point, Step(step_size=0.0, trials=0, failure=Failure.LINE_SEARCH), state
        weight, mean = zhang_hager_mean(state.weight, state.mean, f, self.xi)
        reference = max(mean, f)

        first = self._first_trial(point, state.backtracks)
        new, eta, rejected = self._search(point, first, reference)
        if torch.equal(new.x, point.x):  # the step is lost to rounding
            failed = Step(scale=1.0, step_size=0.0, trials=rejected + 1, failure=Failure.ROUNDING)
            return point, failed, state
        after = PoNoState(weight, mean, max(state.backtracks + rejected - 1, 0))
        return new, plain_step(point, new, eta, rejected + 1), after

    def _first_trial(self, point: Point, backtracks: int) -> float:
        gg = point.grad_norm * point.grad_norm
        polyak = (point.value - self.f_star) / (self.c_p * gg + 1e-8) * self.delta**backtracks
        return max(min(polyak, self.max_step), self.min_step)

    def _search(self, point: Point, eta: float, reference: float) -> tuple[Point, float, int]:
        """The next point, the step size and the number of rejected trials."""
        gg = point.grad_norm * point.grad_norm
        for rejected in range(MAX_TRIALS):
            new = against_gradient(point, eta)
            if new.value <= reference - self.c * eta * gg:
                return new, eta, rejected
            eta *= self.delta
        return against_gradient(point, LAST_RESORT), LAST_RESORT, MAX_TRIALS - 1

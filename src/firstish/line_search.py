"""Armijo's condition, backtracking and forward tracking along one ray.

A step alpha is accepted when

    f(x + alpha p) <= f(x) + rho alpha <g, p>.

Two departures from the textbook, both for the sake of rounding:

1. Near a minimiser f no longer resolves the decrease. When f changes by at most
   `NOISE_ULPS` units in the last place, the slopes decide instead, as in Hager and Zhang's
   approximate Wolfe condition: `<g(x + alpha p), p> <= (2 rho - 1) <g, p>`, which for a quadratic
   is Armijo's condition itself. Such a step must move x: a null step is no progress.
2. A trial at which f (or, where it is wanted next, the gradient) is not finite is refused.

And one against a gradient that is not that of f: as alpha shrinks, the decrease of a smooth f
approaches the linear one. Where the last trials that could tell showed no such thing, the slopes do
not decide, and the search ends without a step.

`NonMonotone` asks for a decrease below a mean of the values so far instead of below f(x).

Nothing here knows of tensors: a ray gives trials, and a search gives back one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

NOISE_ULPS = 10.0
TELLING = 100.0  # a linear decrease so many times the noise shows whether f follows the slope
SHORTEST_CUT = 0.1  # an interpolated trial is at least this share of the one before


class Trial(Protocol):
    """A point on the ray, evaluated as far as the search asks."""

    @property
    def value(self) -> float:
        """The value of f there."""

    def slope(self) -> float:
        """<g(x + alpha p), p>, asked for only where f cannot decide."""

    def moved(self) -> bool:
        """Whether the trial differs from x at all, in floating point."""

    def usable(self) -> bool:
        """Whether the next iteration can start there: its gradient is finite."""


T = TypeVar("T", bound=Trial)


@dataclass(slots=True)
class Ray(Generic[T]):
    """f along x + alpha p: its value and slope at alpha = 0, and a way to make trials.

    Args:
        value: f(x).
        slope: <g, p>, negative.
        trial: alpha to Trial.
        eps: the unit roundoff of the arithmetic f is computed in.
        lifted: whether `value` is a mean above f(x). Even x itself lies below it then, so that a
            trial must be seen to differ from x.
    """

    value: float
    slope: float
    trial: Callable[[float], T]
    eps: float
    lifted: bool = False

    def lift(self, mean: float) -> None:
        """Compare with the mean instead of f(x); not below f(x), as rounding may leave it."""
        if mean > self.value:
            self.value, self.lifted = mean, True

    @property
    def noise(self) -> float:
        """The change of f that rounding alone may cause."""
        return NOISE_ULPS * self.eps * abs(self.value)

    def shortfall(self, alpha: float, value: float) -> float | None:
        """The share of the linear decrease that f falls short of; None where rounding may hide it.

        For a smooth f it shrinks with alpha, to 0.
        """
        linear = -self.slope * alpha
        if not (linear > TELLING * self.noise and math.isfinite(value)):
            return None
        return (value - self.value + linear) / linear


@dataclass(slots=True)
class Found(Generic[T]):
    """What a search came back with: the accepted trial, or None and a step of 0."""

    trial: T | None
    step_size: float
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Armijo:
    """Settings of the line search.

    Args:
        rho: share of the linear decrease that is asked for, in [0, 1/2).
        theta: factor between successive trials, in (0, 1).
        initial_step: the first trial; 1 is the step the scaling was made for.
        max_trials: cap on trials of one search.
    """

    rho: float = 1e-4
    theta: float = 0.5
    initial_step: float = 1.0
    max_trials: int = 60

    def __post_init__(self) -> None:
        if not 0 <= self.rho < 0.5:
            raise ValueError(f"`Armijo(rho=...)` must lie in [0, 1/2), got {self.rho}.")
        if not 0 < self.theta < 1:
            raise ValueError(f"`Armijo(theta=...)` must lie in (0, 1), got {self.theta}.")
        if not 0 < self.initial_step < math.inf:
            raise ValueError(
                f"`Armijo(initial_step=...)` must be positive and finite, got {self.initial_step}."
            )
        if isinstance(self.max_trials, bool) or not isinstance(self.max_trials, int):
            raise TypeError(f"`Armijo(max_trials=...)` must be an int, got {self.max_trials!r}.")
        if self.max_trials < 1:
            raise ValueError(f"`Armijo(max_trials=...)` must be at least 1, got {self.max_trials}.")

    def accepts(self, ray: Ray[T], alpha: float, trial: T) -> bool:
        """Armijo's condition, with the slopes deciding where f cannot."""
        # --8<-- [start:armijo]
        f = trial.value
        if not math.isfinite(f):
            return False
        if f < ray.value and f <= ray.value + self.rho * alpha * ray.slope:
            return not ray.lifted or trial.moved()
        if abs(f - ray.value) <= ray.noise:
            return trial.moved() and trial.slope() <= (2 * self.rho - 1) * ray.slope
        return False
        # --8<-- [end:armijo]

    def backtrack(
        self,
        ray: Ray[T],
        alpha: float | None = None,
        spent: int = 0,
        *,
        interpolate: bool = False,
    ) -> Found[T]:
        """Shrink alpha by theta, from `initial_step` by default, until a trial is accepted.

        `spent` trials count as made before. With `interpolate` the next alpha is where the parabola
        through the refused trial's value is lowest,

            alpha' = -slope alpha^2 / (2 (f(x + alpha p) - f(x) - slope alpha)),

        within [0.1, theta] of alpha.
        """
        alpha = self.initial_step if alpha is None else alpha
        last, last_alpha, denied = math.inf, alpha, False
        while spent < self.max_trials:
            spent += 1
            trial = ray.trial(alpha)
            if denied and abs(trial.value - ray.value) <= ray.noise:
                break  # what f told of the slope while it could tell, it can no more
            if self.accepts(ray, alpha, trial) and trial.usable():
                return Found(trial, alpha, spent)
            if not trial.moved():
                break  # nor would a shorter step
            short = ray.shortfall(alpha, trial.value)
            if short is not None:
                denied = short > last * (1 + alpha / last_alpha) / 2
                last, last_alpha = short, alpha
            alpha *= self._cut(ray, alpha, trial.value) if interpolate else self.theta
            del trial  # and its graph, before the next one is built
        return Found(None, 0.0, spent)

    def _cut(self, ray: Ray[T], alpha: float, value: float) -> float:
        """The factor to the interpolated trial; theta where f is not finite."""
        bend = (value - ray.value) - ray.slope * alpha
        if not 0 < bend < math.inf:
            return self.theta
        lowest = -ray.slope * alpha / (2 * bend)
        return max(min(SHORTEST_CUT, self.theta), min(lowest, self.theta))

    def forward_track(self, ray: Ray[T], *, falling: bool = False) -> Found[T]:
        """Grow alpha by 1/theta while trials are accepted, and return the last accepted one.

        If the first trial is refused, backtrack. At the cap, where f may be unbounded below, the
        last accepted trial is returned too. With `falling`, f must also fall from one trial to the
        next: where f oscillates, that stops in the first valley, and no further off where f
        happens to be low enough.
        """
        alpha, spent = self.initial_step, 1
        best = ray.trial(alpha)
        if not self.accepts(ray, alpha, best):
            return self.backtrack(ray, alpha * self.theta, spent, interpolate=falling)
        while spent < self.max_trials and math.isfinite(alpha / self.theta):
            spent += 1
            further = ray.trial(alpha / self.theta)
            if not self.accepts(ray, alpha / self.theta, further):
                break
            if falling and not further.value < best.value:
                break
            alpha, best = alpha / self.theta, further
        if best.usable():
            return Found(best, alpha, spent)
        return self.backtrack(ray, alpha * self.theta, spent, interpolate=falling)


@dataclass(frozen=True, slots=True, kw_only=True)
class NonMonotone(Armijo):
    """Armijo's condition against Zhang and Hager's mean of the values so far.

        f(x + alpha p) <= C + rho alpha <g, p>,    Q' = eta Q + 1,    C' = (eta Q C + f) / Q'

    f may rise from one iteration to the next, the mean C never does. It is what steps beyond 1
    need: on a quadratic f(x - 2 CG g) = f(x), which Armijo's condition refuses.

    Args:
        eta: how long the mean remembers, from 0 (Armijo's condition) to 1 (all values alike).

    Examples:
        >>> NonMonotone().eta, NonMonotone(initial_step=2.0).initial_step
        (0.85, 2.0)
    """

    eta: float = 0.85

    def __post_init__(self) -> None:
        Armijo.__post_init__(self)  # a slotted dataclass has no zero-argument super()
        if not 0 <= self.eta <= 1:
            raise ValueError(f"`NonMonotone(eta=...)` must lie in [0, 1], got {self.eta}.")

"""The line search: Armijo's condition, backtracking and forward tracking (Algorithms 3 and 4).

The line search function is phi(alpha) = f(x + alpha p).

A step alpha is accepted when

    f(x + alpha p) <= f(x) + rho alpha <g, p>.

Two departures from the textbook, both for the sake of rounding:

1. Near a minimiser f no longer resolves the decrease. When f changes by at most
   `NOISE_ULPS` units in the last place, the slopes decide instead, as in Hager and Zhang's
   approximate Wolfe condition: `<g(x + alpha p), p> <= (2 rho - 1) <g, p>`, which for a quadratic
   is Armijo's condition itself. Such a step must move x: a null step is no progress.
2. A trial is rejected if f, or the gradient if it is needed next, is not finite.

And one against a gradient that is not that of f: as alpha shrinks, the decrease of a smooth f
approaches the linear one. If it does not, over the last trials that rounding does not affect, the
slopes do not decide, and the search ends without a step.

`NonMonotone` compares with a mean of the values so far instead of f(x). A `SearchState` holds what
a search remembers from one iteration to the next.

There are no tensors here: phi returns trials, and a search one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from firstish._validate import check_below_one, check_count, check_positive

NOISE_ULPS = 10.0
TELLING = 100.0  # a linear decrease this many times the noise shows whether f follows the slope
TANGENT = 0.05  # f follows its tangent while it falls short of it by less than this fraction
SHORTEST_CUT = 0.1  # an interpolated trial is at least this fraction of the last one


class Trial(Protocol):
    """phi at one alpha, lazily evaluated."""

    @property
    def value(self) -> float:
        """The value of f there."""

    @property
    def linear(self) -> float | None:
        """<g, d> for the displacement d of x, where that is not alpha p: a bound has cut it."""

    def slope(self) -> float:
        """phi'(alpha) = <g(x + alpha p), p>, needed only if f cannot decide.

        With d / alpha for p where a bound has cut the step.
        """

    def moved(self) -> bool:
        """True if the trial differs from x in floating point."""

    def usable(self) -> bool:
        """True if the next iteration can start there: its gradient is finite."""


T = TypeVar("T", bound=Trial)


@dataclass(slots=True)
class LineFunction(Generic[T]):
    """phi(alpha) = f(x + alpha p): phi(0), phi'(0), and its trials.

    Args:
        value: phi(0), or a mean of earlier values, with which trials are compared.
        slope: phi'(0) = <g, p>, negative.
        trial: alpha to Trial.
        eps: the unit roundoff of the arithmetic f is computed in.
        lifted: True if `value` is above phi(0). Then x itself would pass, so a trial must differ
            from x.
    """

    value: float
    slope: float
    trial: Callable[[float], T]
    eps: float
    lifted: bool = False

    @property
    def noise(self) -> float:
        """The change of f that rounding alone may cause."""
        return NOISE_ULPS * self.eps * abs(self.value)

    def slope_to(self, alpha: float, trial: T) -> float:
        """phi'(0), or the mean slope of the tangent over a step that a bound has cut."""
        return self.slope if trial.linear is None else trial.linear / alpha

    def shortfall(self, alpha: float, trial: T) -> float | None:
        """The missing fraction of the linear decrease; None if rounding may hide it.

        For a smooth f it tends to 0 with alpha.
        """
        linear, value = -self.slope_to(alpha, trial) * alpha, trial.value
        if not (linear > TELLING * self.noise and math.isfinite(value)):
            return None
        return (value - self.value + linear) / linear


@dataclass(slots=True)
class Found(Generic[T]):
    """The result of a search: the accepted trial, or None and a step of 0.

    Args:
        trial: the accepted trial.
        step_size: its alpha.
        trials: how many were made.
        denied: True if f did not approach its tangent as alpha shrank: the slope is not that of f.
        finite: False if f was not finite at any trial.
        unresolved: True if rounding of numbers of size 1 explains that f did not fall.
    """

    trial: T | None
    step_size: float
    trials: int
    denied: bool = False
    finite: bool = True
    unresolved: bool = False


class Rejected(Generic[T]):
    """What the rejected trials of a search show of f and its slope.

    Args:
        phi: the line search function.
        alpha: the first trial.
    """

    def __init__(self, phi: LineFunction[T], alpha: float) -> None:
        self.denied = self.finite = False
        self.first = True  # until a trial moved x
        self._phi = phi
        self._last, self._last_alpha = math.inf, alpha
        self._changes: list[tuple[float, float, float]] = []  # alpha, of f, of its tangent

    def add(self, alpha: float, trial: T) -> None:
        """Take note of a trial that moved x."""
        phi, self.first = self._phi, False
        self.finite = self.finite or math.isfinite(trial.value)
        short = phi.shortfall(alpha, trial)
        if short is None:
            return
        self.denied = short > self._last * (1 + alpha / self._last_alpha) / 2
        self._last, self._last_alpha = short, alpha
        self.note(alpha, trial)

    def note(self, alpha: float, trial: T) -> None:
        """Keep the change of f and that of its tangent, where rounding of f should not hide it."""
        phi = self._phi
        if phi.shortfall(alpha, trial) is not None:
            linear = phi.slope_to(alpha, trial) * alpha
            self._changes.append((alpha, trial.value - phi.value, linear))

    def unresolved(self) -> bool:
        """True if rounding explains the last trials, though |f| is so small that it seems not to.

        A loss near 0 is computed from terms of size 1, and its error is theirs. So changes of f
        below that error mean nothing, unless they are proportional to alpha, as those of an f in
        other units are.
        """
        last = self._changes[-3:]
        error = TELLING * self._phi.eps * max(1.0, abs(self._phi.value))
        if not last or any(max(abs(change), abs(linear)) > error for _, change, linear in last):
            return False
        slopes = [change / alpha for alpha, change, _ in last]
        spread = max(slopes) - min(slopes)
        return len(slopes) < 3 or spread >= 0.5 * max(map(abs, slopes))

    def found(self, trials: int) -> Found[T]:
        """The result of the search that accepted none of them."""
        return Found(None, 0.0, trials, self.denied, self.finite, self.unresolved())


Schedule = Callable[[int], float]
"""A function from the iteration to a factor of its first trial step."""


class SearchState(NamedTuple):
    """The state of a search between iterations.

    Attributes:
        iterations: the number of searches so far, for a schedule.
        weight: Zhang and Hager's Q, for `NonMonotone`.
        mean: Zhang and Hager's C.
    """

    iterations: int = 0
    weight: float = 0.0
    mean: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Armijo:
    """Settings of the line search.

    Args:
        rho: the required fraction of the linear decrease, in [0, 1/2).
        theta: factor between successive trials, in (0, 1).
        initial_step: the first trial; the scale is made for 1.
        max_trials: the largest number of trials of one search.
        schedule: a function from the iteration to a factor of `initial_step`, such as
            `Anneal(iterations=100)`, from 2 to 1. None by default.
    """

    rho: float = 1e-4
    theta: float = 0.5
    initial_step: float = 1.0
    max_trials: int = 60
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rho < 0.5:
            raise ValueError(f"`Armijo(rho=...)` must lie in [0, 1/2), got {self.rho}.")
        check_below_one("Armijo", "theta", self.theta, zero=False)
        check_positive("Armijo", "initial_step", self.initial_step)
        check_count("Armijo", "max_trials", self.max_trials)
        if self.schedule is not None and not callable(self.schedule):
            raise TypeError(
                "`Armijo(schedule=...)` must be a function of the iteration, such as "
                f"`Anneal(iterations=100)`, got {self.schedule!r}."
            )

    @property
    def has_state(self) -> bool:
        """True if the search has a state between iterations."""
        return self.schedule is not None

    def first_step(self, state: SearchState) -> float:
        """The first trial of the next search."""
        if self.schedule is None:
            return self.initial_step
        return self.initial_step * self.schedule(state.iterations)

    def reference(self, value: float, state: SearchState) -> tuple[float, SearchState]:
        """The value to compare trials with, f(x), and the next state."""
        if self.schedule is None:
            return value, state
        return value, state._replace(iterations=state.iterations + 1)

    def accepts(self, phi: LineFunction[T], alpha: float, trial: T) -> bool:
        """Armijo's condition, decided by slopes if f cannot."""
        # --8<-- [start:armijo]
        f = trial.value
        if not math.isfinite(f):
            return False
        slope = phi.slope_to(alpha, trial)
        if not slope < 0:  # bounds have cut the part of the step that descends
            return False
        if f < phi.value and f <= phi.value + self.rho * alpha * slope:
            return not phi.lifted or trial.moved()
        if abs(f - phi.value) <= phi.noise:
            return trial.moved() and trial.slope() <= (2 * self.rho - 1) * slope
        return False
        # --8<-- [end:armijo]

    def backtrack(
        self,
        phi: LineFunction[T],
        alpha: float | None = None,
        spent: int = 0,
        *,
        interpolate: bool = False,
    ) -> Found[T]:
        """Shrink alpha by theta, from `initial_step` by default, until a trial is accepted.

        `spent` trials were made before. With `interpolate` the next alpha is the minimiser of the
        parabola through the value of the rejected trial,

            alpha' = -slope alpha^2 / (2 (f(x + alpha p) - f(x) - slope alpha)),

        within [0.1, theta] of alpha.
        """
        alpha = self.initial_step if alpha is None else alpha
        rejected = Rejected(phi, alpha)
        while spent < self.max_trials:
            spent += 1
            trial = phi.trial(alpha)
            if rejected.denied and abs(trial.value - phi.value) <= phi.noise:
                rejected.note(alpha, trial)
                break  # f has contradicted the slope while it could resolve the decrease
            if self.accepts(phi, alpha, trial) and trial.usable():
                return Found(trial, alpha, spent)
            if not trial.moved():
                rejected.finite = rejected.finite or rejected.first
                break  # nor would a shorter step
            rejected.add(alpha, trial)
            alpha *= self._cut(phi, alpha, trial) if interpolate else self.theta
            del trial  # and its graph, before the next one is built
        return rejected.found(spent)

    def _cut(self, phi: LineFunction[T], alpha: float, trial: T) -> float:
        """The factor to the interpolated trial; theta if f is not finite."""
        slope = phi.slope_to(alpha, trial)
        excess = (trial.value - phi.value) - slope * alpha
        if not 0 < excess < math.inf or slope >= 0:
            return self.theta
        lowest = -slope * alpha / (2 * excess)
        return max(min(SHORTEST_CUT, self.theta), min(lowest, self.theta))

    def forward_track(
        self, phi: LineFunction[T], alpha: float | None = None, *, falling: bool = False
    ) -> Found[T]:
        """Grow alpha by 1/theta while trials are accepted, and return the last accepted one.

        If the first trial is rejected, backtrack. After `max_trials`, as for an f unbounded below,
        the last accepted trial is returned too. With `falling`, f must also fall from one trial to
        the next: if f oscillates, the search then stops in the first valley.
        """
        alpha, spent = self.initial_step if alpha is None else alpha, 1
        best = phi.trial(alpha)
        if not self.accepts(phi, alpha, best):
            return self.backtrack(phi, alpha * self.theta, spent, interpolate=falling)
        while spent < self.max_trials and math.isfinite(alpha / self.theta):
            spent += 1
            further = phi.trial(alpha / self.theta)
            if not self.accepts(phi, alpha / self.theta, further) or _same(further, best):
                break
            if falling and not further.value < best.value:
                break
            alpha, best = alpha / self.theta, further
        return self._usable(phi, alpha, best, spent, interpolate=falling)

    def lengthen(self, phi: LineFunction[T], alpha: float) -> Found[T]:
        """Grow alpha while f follows its tangent and falls, and return the last accepted trial.

        f follows its tangent where it falls by more than 0.95 of the linear decrease (Goldstein's
        condition). The next alpha is where the parabola through the last value is lowest, within
        [1/theta, 10] of alpha. If the first trial is rejected, backtrack with interpolation.
        """
        best, spent = phi.trial(alpha), 1
        if not self.accepts(phi, alpha, best):
            cut = self._cut(phi, alpha, best)
            return self.backtrack(phi, alpha * cut, spent, interpolate=True)
        while spent < self.max_trials:
            short = phi.shortfall(alpha, best)
            if short is None or short >= TANGENT:
                break
            spent += 1
            longer = alpha * self._growth(short)
            further = phi.trial(longer)
            if not (self.accepts(phi, longer, further) and further.value < best.value):
                break
            alpha, best = longer, further
        return self._usable(phi, alpha, best, spent, interpolate=True)

    def _usable(
        self, phi: LineFunction[T], alpha: float, best: T, spent: int, *, interpolate: bool
    ) -> Found[T]:
        """The accepted trial, or a shorter one if the next iteration cannot start there."""
        if best.usable():
            return Found(best, alpha, spent)
        return self.backtrack(phi, alpha * self.theta, spent, interpolate=interpolate)

    def _growth(self, short: float) -> float:
        """The factor to the lowest point of the parabola, from the shortfall at a trial."""
        most = 1 / SHORTEST_CUT
        return max(1 / self.theta, min(1 / (2 * short), most)) if short > 0 else most


def _same(further: Trial, best: Trial) -> bool:
    """True if bounds end both steps at the same point, with the same linear decrease."""
    return further.linear is not None and further.linear == best.linear


@dataclass(frozen=True, slots=True, kw_only=True)
class NonMonotone(Armijo):
    """Armijo's condition against Zhang and Hager's mean of the values so far.

        f(x + alpha p) <= C + rho alpha <g, p>,    Q' = eta Q + 1,    C' = (eta Q C + f) / Q'

    f may rise from one iteration to the next, the mean C never does. Steps beyond 1 need it: on a
    quadratic f(x - 2 CG g) = f(x), which Armijo's condition refuses.

    Args:
        eta: the memory of the mean, from 0 (Armijo's condition) to 1 (equal weights).

    Examples:
        >>> NonMonotone().eta, NonMonotone(initial_step=2.0).initial_step
        (0.85, 2.0)
    """

    eta: float = 0.85

    def __post_init__(self) -> None:
        Armijo.__post_init__(self)  # a slotted dataclass has no zero-argument super()
        if not 0 <= self.eta <= 1:
            raise ValueError(f"`NonMonotone(eta=...)` must lie in [0, 1], got {self.eta}.")

    @property
    def has_state(self) -> bool:
        """True: the mean."""
        return True

    def reference(self, value: float, state: SearchState) -> tuple[float, SearchState]:
        """The mean, or f(x) if that is above it by rounding."""
        weight, mean = zhang_hager_mean(state.weight, state.mean, value, self.eta)
        _, after = Armijo.reference(self, value, state)
        return max(mean, value), SearchState(after.iterations, weight, mean)


def zhang_hager_mean(weight: float, mean: float, value: float, eta: float) -> tuple[float, float]:
    """Zhang and Hager's Q' and C' from Q, C and f.

        Q' = eta Q + 1,    C' = (eta Q C + f) / Q'

    From Q = 0 the first C is f itself. eta = 0 makes the search monotone, eta = 1 compares with the
    plain mean of all values.

    >>> zhang_hager_mean(2.0, 5.0, 2.0, eta=1.0)
    (3.0, 4.0)
    """
    new_weight = eta * weight + 1
    total = eta * weight * mean + value
    if math.isinf(total):  # the sum overflows, the mean does not
        return new_weight, eta * weight / new_weight * mean + value / new_weight
    return new_weight, total / new_weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Anneal:
    """A linear schedule from `start` at iteration 0 to `end` at `iterations`, constant after it.

        alpha_k = start + (end - start) min(1, k / iterations)

    On a quadratic, f(x - alpha CG g) is lowest at alpha = 1 and back at f(x) at alpha = 2, the edge
    of stability. Longer steps than 1 break the zigzag of CG; the annealing ends at 1, where a unit
    step is right. It needs a `NonMonotone` search.

    Args:
        iterations: its length.
        start: the first step, by default 2, the edge of stability.
        end: the last step.

    Examples:
        >>> anneal = Anneal(iterations=4)
        >>> [anneal(k) for k in range(6)]
        [2.0, 1.75, 1.5, 1.25, 1.0, 1.0]
    """

    iterations: int
    start: float = 2.0
    end: float = 1.0

    def __post_init__(self) -> None:
        check_count("Anneal", "iterations", self.iterations)
        check_positive("Anneal", "start", self.start)
        check_positive("Anneal", "end", self.end)

    def __call__(self, iteration: int) -> float:
        """The first trial step of that iteration."""
        return self.start + (self.end - self.start) * min(1.0, iteration / self.iterations)

"""One run of a method on an objective, an iteration at a time.

`minimize` drives it to the end; the experiment runner also saves and resumes it; `ScaledGD` resumes
it for one step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Any

from torch import Tensor, finfo

from firstish._validate import check_nonnegative, check_number
from firstish.distributed import Group
from firstish.errors import NonFiniteError
from firstish.line_search import NOISE_ULPS
from firstish.methods.base import AnyMethod, Failure, Step
from firstish.objectives.base import Meter, Objective, Point
from firstish.objectives.global_state import limit_threads_after_fork
from firstish.result import Entry, Status

_ENDLESS = 2.0**50  # a step size: fifty times, a step twice as long was better
_IDLE = 100  # trials in a row, of steps that neither change f beyond rounding nor lower |g|

_FAILED = {Failure.STATIONARY: Status.CONVERGED, Failure.ROUNDING: Status.ROUNDING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The tolerances and the budgets of a run; see `minimize`."""

    gtol: float = 0.0
    gtol_rel: float = 0.0
    ftol: float = 0.0
    max_oracle_calls: float | None = None
    max_iterations: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("gtol", "gtol_rel", "ftol"):
            check_nonnegative("minimize", name, getattr(self, name))
        if self.ftol >= 1:
            raise ValueError(
                f"`minimize(ftol=...)` must be below 1, got {self.ftol}: it is relative to |f|."
            )
        for name in ("max_oracle_calls", "max_iterations", "max_seconds"):
            limit = getattr(self, name)
            if limit is None:
                continue
            check_number("minimize", name, limit)
            if not limit >= 0:
                raise ValueError(f"`minimize({name}=...)` must be at least 0, got {limit}.")
            if name == "max_iterations" and isfinite(limit) and limit % 1:  # 1e4 is a count
                raise ValueError(f"`minimize({name}=...)` must be a whole number, got {limit}.")

    def met(
        self, value: float, grad_norm: float, before: float, first_norm: float
    ) -> Status | None:
        """The tolerance that is met at a point, if one is.

        `before` is f one iteration earlier, infinite at the start; `first_norm` is |g(x0)|.
        """
        if grad_norm <= self.gtol:
            return Status.CONVERGED
        if grad_norm <= self.gtol_rel * first_norm:
            return Status.GTOL_REL
        if self.ftol and abs(before - value) <= self.ftol * max(abs(before), abs(value)) < inf:
            return Status.FTOL
        return None

    def spent(self, iteration: int, oracle_calls: float, seconds: float) -> Status | None:
        """The budget that is spent, if one is."""
        if self.max_iterations is not None and iteration >= self.max_iterations:
            return Status.MAX_ITERATIONS
        if self.max_oracle_calls is not None and oracle_calls >= self.max_oracle_calls:
            return Status.MAX_ORACLE_CALLS
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return Status.MAX_SECONDS
        return None


class Clock:
    """Seconds since the start, without those that `forget_since` took off."""

    def __init__(self, already: float = 0.0, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._start = now() - already

    def seconds(self) -> float:
        """The seconds so far."""
        return self._now() - self._start

    def forget_since(self, shown: float) -> None:
        """Set the clock back to an earlier reading, so that the time since does not count."""
        self._start += self.seconds() - shown


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a run, from which it resumes to the same bits."""

    x: Tensor
    state: Any
    iterations: int
    spent: Meter
    seconds: float
    inherited: tuple[Any, ...] = ()
    value_before: float = inf  # f one iteration earlier, for `ftol`
    first_norm: float | None = None  # |g| at the start of the run, for `gtol_rel`
    lowest_norm: float = inf  # the lowest |g| so far
    idle: int = 0  # trials of the last steps, without progress


class Run:
    """The current point, the method's state and the counters; `failure` is why no step was taken.

    Args:
        objective: f.
        x: where to start.
        method: what takes the steps.
        resume: a snapshot to go on from, instead of x.
        now: the time in seconds, for the clock.
        start: the point to go on from, instead of the snapshot's x. Its evaluation counts: f may
            have changed since the snapshot.
    """

    failure: Failure | None = None
    _endless = False  # True once a line search has found no end of the fall of f

    def __init__(
        self,
        objective: Objective,
        x: Tensor,
        method: AnyMethod,
        resume: Snapshot | None = None,
        now: Callable[[], float] = time.perf_counter,
        start: Point | None = None,
    ) -> None:
        limit_threads_after_fork()
        begin = Snapshot(x, None, 0, Meter(), 0.0) if resume is None else resume
        self.method = method
        self.group: Group | None = getattr(objective, "group", None)
        self.point = objective.at(begin.x, method.order) if start is None else start
        if begin.inherited:
            self.point.inherit(begin.inherited)
        self.iterations = begin.iterations
        self.clock = Clock(begin.seconds, now)
        counted = self.point.meter.copy()
        self._require_finite(begin.iterations)
        self.point.accept()
        self._value, self._grad_norm = self.point.value, self.point.optimality
        self._f_before = begin.value_before
        known = begin.first_norm
        self._first_norm = self._grad_norm if known is None else known
        self._lowest_norm, self._idle = min(begin.lowest_norm, self._grad_norm), begin.idle
        if resume is not None and start is None:  # the evaluation was counted before the snapshot
            counted, self.clock = self.point.meter.copy(), Clock(begin.seconds, now)
        self._before = counted.since(begin.spent)
        self.state = method.init(self.point) if begin.state is None else begin.state

    @property
    def stalled(self) -> bool:
        """True if the last step left f as it was, bit for bit."""
        return self._f_before == self._value

    def here(self) -> Entry:
        """The record of the current point, without a step."""
        spent = self.point.meter.since(self._before)
        seconds = self.clock.seconds()
        return Entry(
            self.iterations,
            spent.oracle_calls,
            spent.passes,
            seconds,
            self._value,
            self._grad_norm,
            None,
        )

    def advance(self, limits: Limits) -> Entry | Status:
        """One iteration, or the reason why there is none."""
        meter, before = self.point.meter, self._before
        oracle_calls = meter.oracle_calls - before.oracle_calls
        passes = meter.passes - before.passes
        seconds = self.clock.seconds()
        if self.group is not None:
            seconds = self.group.broadcast(seconds)  # all ranks stop together
        here, here_norm, iteration = self._value, self._grad_norm, self.iterations
        status = limits.met(here, here_norm, self._f_before, self._first_norm)
        status = status or (Status.UNBOUNDED if self._endless else None)
        status = status or limits.spent(iteration, oracle_calls, seconds)
        if status is None and self._idle >= _IDLE:
            self.failure, status = Failure.ROUNDING, Status.ROUNDING
        if status is not None:
            return status
        try:
            point, step, state = self._next()
        except NonFiniteError:
            if iteration == 0:
                raise
            return Status.NON_FINITE
        if step.failure is not None:
            self.failure = step.failure
            return _FAILED.get(step.failure, Status.LINE_SEARCH)
        value, grad_norm = point.value, point.optimality
        if not (isfinite(value) and isfinite(grad_norm)):
            return Status.NON_FINITE
        self._endless = self._falls_on(step, value)
        progress = self._progress(here, value, grad_norm)
        self._idle = 0 if progress else self._idle + (step.trials or 1)
        self._lowest_norm = min(self._lowest_norm, grad_norm)
        point.accept()
        self.point.release()
        self.point, self.state = point, state
        self._f_before, self._value, self._grad_norm = here, value, grad_norm
        self.iterations = iteration + 1
        return Entry(iteration, oracle_calls, passes, seconds, here, here_norm, step)

    def step(self) -> tuple[Entry, Point]:
        """One step of the method without limits: its record, also if it failed, and the new point.

        The new point is not evaluated, and the run stays at the old one: for a loss that is another
        function in the next iteration.
        """
        here = self.here()
        point, step, self.state = self._next()
        self.iterations += 1
        return here._replace(step=step), point

    def _require_finite(self, iterations: int) -> None:
        if iterations == 0:
            self.point.require_finite()
        else:
            self.point.require_finite(
                f"at the start of step {iterations}",
                "The step before had a finite loss. Check this batch for infinite or missing "
                "values, and whether the parameters were changed since.",
            )

    def _next(self) -> tuple[Point, Step, Any]:
        done = self.method.step(self.point, self.state)
        try:
            point, step, state = done
        except (TypeError, ValueError):
            raise TypeError(
                f"`{type(self.method).__name__}.step(point, state)` must return the next point, a "
                f"`Step` and the next state, got {type(done).__name__}."
            ) from None
        return point, step, state

    def _progress(self, here: float, value: float, grad_norm: float) -> bool:
        """True if f has changed beyond rounding or |g| is the lowest so far.

        Also where f is so small that its numbers have fewer digits.
        """
        if grad_norm < self._lowest_norm:
            return True
        few = abs(here) < finfo(self.point.x.dtype).tiny
        return few or abs(value - here) > NOISE_ULPS * self.point.eps * abs(here)

    def _falls_on(self, step: Step, value: float) -> bool:
        """True if the step was made longer up to the last trial, and f fell each time.

        Or up to the range of numbers, and so far that f(x) is lost in the rounding of the new
        value. A minimum far away, or in large units, ends the search before.
        """
        if not (step.step_size or 0.0) >= _ENDLESS:
            return False
        trials = getattr(getattr(self.method, "line_search", None), "max_trials", inf)
        in_range = value > -sqrt(finfo(self.point.x.dtype).max)
        if in_range and (step.trials or 0) < trials:
            return False
        return value < -max(1.0, abs(self._value)) / self.point.eps

    def snapshot(self) -> Snapshot:
        """The run as it is now."""
        spent = self.point.meter.since(self._before)
        return Snapshot(
            self.point.x,
            self.state,
            self.iterations,
            spent,
            self.clock.seconds(),
            self.point.inherited(),
            self._f_before,
            self._first_norm,
            self._lowest_norm,
            self._idle,
        )

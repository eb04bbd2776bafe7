"""The one loop: budgets, stopping, callbacks, history."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from firstish.errors import NonFiniteError
from firstish.methods.base import AnyMethod, Failure
from firstish.methods.scaled_gradient import ScaledGradient
from firstish.objectives.function import FunctionObjective
from firstish.objectives.module import ModuleObjective
from firstish.objectives.point import Meter, Objective, Point
from firstish.records import Row, make_row


class Status(Enum):
    """How a run ended."""

    CONVERGED = "The gradient norm is at most gtol."
    MAX_ORACLE_CALLS = "The budget of oracle calls is spent."
    MAX_ITERATIONS = "The budget of iterations is spent."
    MAX_SECONDS = "The budget of seconds is spent."
    STOPPED = "The callback asked to stop."
    ROUNDING = "f cannot resolve a further decrease in this precision."
    LINE_SEARCH = "No trial of the line search was accepted."
    NON_FINITE = "f, its gradient or a Hessian-vector product was not finite at the next point."


_FAILED = {
    Failure.STATIONARY: Status.CONVERGED,
    Failure.ROUNDING: Status.ROUNDING,
    Failure.LINE_SEARCH: Status.LINE_SEARCH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What `minimize` returns.

    Args:
        x: the last point, shaped like `x0`; one vector if `x0` was a module.
        value: f(x).
        grad_norm: |g(x)|.
        status: how the run ended; its value is a sentence.
        iterations: steps taken.
        oracle_calls: spent in all, in the paper's unit.
        passes: spent in all, in forward passes really made.
        seconds: spent in all, the callback's time left out.
        history: a row per point; `history[k]` is x_k and the step taken from it.
        aux: what the loss returned beside its value, at x.
    """

    x: Tensor
    value: float
    grad_norm: float
    status: Status
    iterations: int
    oracle_calls: float
    passes: float
    seconds: float
    history: Sequence[Row] = field(repr=False)
    aux: Any = field(repr=False, default=None)

    @property
    def success(self) -> bool:
        """Whether the gradient norm reached `gtol`."""
        return self.status is Status.CONVERGED

    @property
    def message(self) -> str:
        """The status as a sentence, with the numbers."""
        return (
            f"{self.status.value} f = {self.value:.6g}, |g| = {self.grad_norm:.3g} after "
            f"{self.iterations} iterations and {self.oracle_calls:g} oracle calls."
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """What a callback sees after each iteration.

    Args:
        row: the point the iteration started from and the step it took.
        x: the new point, shaped like `x0`.
        value: f there.
        grad_norm: |g| there.
    """

    row: Row
    x: Tensor
    value: float
    grad_norm: float


Callback = Callable[[Progress], object]


class _Clock:
    """Seconds since the start, less the time away."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def away(self, since: float) -> None:
        """Do not count the time from `since` (in these seconds) until now."""
        self._start += self.seconds() - since


@dataclass(frozen=True, slots=True)
class _Limits:
    gtol: float
    max_oracle_calls: float | None
    max_iterations: int | None
    max_seconds: float | None

    def __post_init__(self) -> None:
        if not 0 <= self.gtol < math.inf:
            raise ValueError(
                f"`minimize(gtol=...)` must be at least 0 and finite, got {self.gtol}."
            )
        for name in ("max_oracle_calls", "max_iterations", "max_seconds"):
            limit = getattr(self, name)
            if limit is not None and not limit >= 0:
                raise ValueError(f"`minimize({name}=...)` must be at least 0, got {limit}.")

    def reached(self, point: Point, row: Row) -> Status | None:
        """The reason to stop at this point, if there is one."""
        if point.grad_norm <= self.gtol:
            return Status.CONVERGED
        if self.max_iterations is not None and row.iteration >= self.max_iterations:
            return Status.MAX_ITERATIONS
        if self.max_oracle_calls is not None and row.oracle_calls >= self.max_oracle_calls:
            return Status.MAX_ORACLE_CALLS
        if self.max_seconds is not None and row.seconds >= self.max_seconds:
            return Status.MAX_SECONDS
        return None


def minimize(
    fun: Callable[[Tensor], object] | Objective,
    x0: Tensor | nn.Module,
    *,
    method: AnyMethod | None = None,
    gtol: float = 1e-6,
    max_oracle_calls: float | None = 10_000,
    max_iterations: int | None = None,
    max_seconds: float | None = None,
    callback: Callback | None = None,
) -> Result:
    """Minimise f by a method that sets its own step.

    Args:
        fun: a callable on a tensor shaped like `x0`, returning the loss or `(loss, aux)`; or an
            objective, such as `ModuleObjective`.
        x0: where to start; the objective's module stands for its own parameters, and is left
            holding the result.
        method: `ScaledGradient()` by default.
        gtol: stop when |g| <= gtol.
        max_oracle_calls: no iteration starts once so many are spent; None for no limit.
        max_iterations: likewise.
        max_seconds: likewise.
        callback: called with a `Progress` after each iteration; the run stops if it returns True
            or raises StopIteration. Its time is not counted.

    Returns:
        A `Result`. Not reaching `gtol` is a status, not an exception.

    Example:
        >>> import torch, firstish
        >>> x0 = torch.tensor([-1.2, 1.0], dtype=torch.float64)
        >>> rosenbrock = lambda x: (1 - x[0])**2 + 100 * (x[1] - x[0]**2)**2
        >>> result = firstish.minimize(rosenbrock, x0, gtol=1e-8)
        >>> result.success, [round(v, 6) for v in result.x.tolist()]
        (True, [1.0, 1.0])
    """
    limits = _Limits(gtol, max_oracle_calls, max_iterations, max_seconds)
    method = ScaledGradient() if method is None else method
    if not all(hasattr(method, name) for name in ("init", "step", "depth")):
        raise TypeError(
            f"`minimize(method=...)` must be a method such as `ScaledGradient()`, got {method!r}."
        )
    objective, x, shape = _start(fun, x0)
    run = _Run(objective.at(x, method.depth), shape)
    try:
        status = run.loop(method, limits, callback)
    finally:
        if isinstance(x0, nn.Module) and isinstance(objective, ModuleObjective):
            objective.load(run.point.x)  # also after Ctrl-C: what was reached is not lost
    return run.result(status)


def _start(
    fun: Callable[[Tensor], object] | Objective, x0: Tensor | nn.Module
) -> tuple[Objective, Tensor, torch.Size]:
    """The objective, the first vector and the shape the user thinks in."""
    if isinstance(x0, nn.Module):
        if not isinstance(fun, ModuleObjective) or fun.model is not x0:
            raise TypeError(
                "`minimize(fun, x0)` takes a module as x0 only with its own objective: "
                "`minimize(ModuleObjective(model, ...), model)`."
            )
        x = fun.initial()
        return fun, x, x.shape
    if not isinstance(x0, Tensor):
        raise TypeError(
            f"`minimize(fun, x0)` needs a tensor as x0, got {type(x0).__name__}. "
            "Use `torch.as_tensor(x0, dtype=torch.float64)`."
        )
    if x0.numel() == 0:
        raise ValueError("`minimize(fun, x0)` got an empty x0: there is nothing to minimise over.")
    x = x0.detach().clone().reshape(-1)
    if isinstance(fun, Objective):
        return fun, x, x0.shape
    return FunctionObjective(fun, x0), x, x0.shape


class _Run:
    """The state of the loop, in one place so that an interruption leaves it whole."""

    def __init__(self, point: Point, shape: torch.Size) -> None:
        self.point = point
        self.shape = shape
        self.history: list[Row] = []
        self.iterations = 0
        self._meter: Meter = point.meter
        self._spent_before = point.meter.copy()
        self._clock = _Clock()
        point.require_finite()
        point.accept()

    def loop(self, method: AnyMethod, limits: _Limits, callback: Callback | None) -> Status:
        state = method.init(self.point)
        while True:
            here = self._row()
            status = limits.reached(self.point, here)
            if status is not None:
                return status
            value, grad_norm = self.point.value, self.point.grad_norm
            try:
                point, step, state = method.step(self.point, state)
            except NonFiniteError:
                if self.iterations == 0:
                    raise
                return Status.NON_FINITE
            if step.failure is not None:
                return _FAILED[step.failure]
            if not point.is_finite():
                return Status.NON_FINITE
            point.accept()
            self.point.release()
            self.point = point
            self.iterations += 1
            spent = Meter(here.oracle_calls, here.passes)
            row = make_row(here.iteration, spent, here.seconds, value, grad_norm, step)
            self.history.append(row)
            if callback is not None and self._stops(callback, row):
                return Status.STOPPED

    def result(self, status: Status) -> Result:
        last = self._row()
        self.point.release()
        return Result(
            x=self.point.x.view(self.shape),
            value=last.value,
            grad_norm=last.grad_norm,
            status=status,
            iterations=self.iterations,
            oracle_calls=last.oracle_calls,
            passes=last.passes,
            seconds=last.seconds,
            history=[*self.history, last],
            aux=self.point.aux,
        )

    def _row(self) -> Row:
        value, grad_norm = self.point.value, self.point.grad_norm  # evaluated before the meter
        spent = self._meter.since(self._spent_before)
        seconds = self._clock.seconds()
        return make_row(self.iterations, spent, seconds, value, grad_norm, None)

    def _stops(self, callback: Callback, row: Row) -> bool:
        left = self._clock.seconds()
        try:
            progress = Progress(
                row, self.point.x.view(self.shape), self.point.value, self.point.grad_norm
            )
            return callback(progress) is True
        except StopIteration:
            return True
        finally:
            self._clock.away(left)

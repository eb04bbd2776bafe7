"""Why a run reached no tolerance, and what a user can do to get further."""

from __future__ import annotations

import math

import torch

from firstish.loop import Limits, Run
from firstish.methods.base import Failure
from firstish.objectives.gradient_check import wrong_entry
from firstish.result import Status

_BUDGETS = {
    Status.MAX_ORACLE_CALLS: "max_oracle_calls",
    Status.MAX_ITERATIONS: "max_iterations",
    Status.MAX_SECONDS: "max_seconds",
}

_MANY = 5  # oracle calls per iteration; unit steps need at most 4

_DIFFERENCES = (
    "The gradient is a finite difference, with an error of its own: pass the gradient, "
    "`finite_diff_method='3-point'` or `ftol=1e-9`."
)


def diagnosis(run: Run, status: Status, limits: Limits, first_value: float) -> tuple[Status, str]:
    """The status, and the advice: UNBOUNDED if f fell so far that its start is lost in rounding.

    `first_value` is f(x0).
    """
    eps = torch.finfo(run.point.x.dtype).eps
    if run.point.value < -max(1.0, abs(first_value)) / eps:
        return Status.UNBOUNDED, ""
    return status, _advice(status, run, limits)


def _advice(status: Status, run: Run, limits: Limits) -> str:
    if status in (Status.LINE_SEARCH, Status.ROUNDING):
        here, again = run.point.value, run.point.at(run.point.x, 0).value
        tolerance = math.sqrt(run.point.eps) * abs(here)  # rounding may depend on the way to x
        if abs(here - again) > tolerance:
            return (
                f"Here f is not a function of x alone: at this x it was {here!r} and is {again!r}. "
                "Make the loss deterministic."
            )
    wrong = _wrong_gradient(status, run)
    if wrong:
        return wrong
    by_differences = run.point.by_differences
    if status in _BUDGETS:
        if limits.gtol == 0 and run.stalled:
            return "The last step no longer changed f, and gtol=0 asks for more: set gtol or ftol."
        name = _BUDGETS[status]
        raised = f"Raise {name}={getattr(limits, name):g} to go on."
        return f"{raised} {_DIFFERENCES}" if by_differences else raised
    if status in (Status.LINE_SEARCH, Status.ROUNDING) and by_differences:
        return _DIFFERENCES
    if status is Status.LINE_SEARCH and run.failure not in (None, Failure.LINE_SEARCH):
        return f"Here {run.failure.value}."
    if status is Status.ROUNDING:
        if run.point.x.dtype != torch.float64:
            return "For a smaller gradient use float64."
        return f"gtol={limits.gtol:g} is below what float64 shows here."
    return ""


def _wrong_gradient(status: Status, run: Run) -> str:
    """A sentence if the gradient contradicts f at the last point.

    Checked only where the line search failed, or needed many trials for one written by hand.
    """
    many = run.here().oracle_calls > _MANY * max(20, run.iterations)
    failed = status is Status.LINE_SEARCH or (status in _BUDGETS and many and run.point.by_hand)
    wrong = wrong_entry(run.point) if failed else None
    if wrong is None:
        return ""
    return (
        f"The gradient contradicts f here: its entry {wrong.entry} is {wrong.gradient:.6g}, but "
        f"differences of f give {wrong.difference:.6g}. Correct the gradient."
    )

"""Why a run reached no tolerance, and what a user can do to get further."""

from __future__ import annotations

import math

import torch

from firstish.linalg import norm
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
    lost = run.point.value < -max(1.0, abs(first_value)) / eps
    if status is Status.UNBOUNDED or (lost and status is not Status.ROUNDING):
        return Status.UNBOUNDED, (
            f"|x| = {norm(run.point.x):.3g}. Check the sign of f, or add bounds or a penalty."
        )
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
    return _at_rounding(run, limits) if status is Status.ROUNDING else ""


def _at_rounding(run: Run, limits: Limits) -> str:
    """What is known where no decrease of f can be measured: a minimum, or a bad scaling."""
    dtype = str(run.point.x.dtype).removeprefix("torch.")
    finer = "" if dtype == "float64" else "use float64, "
    by_hand = " Or the gradient is wrong: try `scipy.optimize.check_grad`." * run.point.by_hand
    return (
        f"In {dtype} a decrease can no longer be measured. If x is the minimum, "
        f"gtol={limits.gtol:g} is out of reach here. If it is not, f is badly scaled at x: "
        f"{finer}bring all variables to one order of magnitude, or remove a large constant from f."
        f"{by_hand}"
    )


def _wrong_gradient(status: Status, run: Run) -> str:
    """A sentence if the gradient contradicts f at the last point.

    Checked only where the line search failed; one written by hand also at rounding, where a wrong
    one may end, and if many trials were needed.
    """
    many = run.here().oracle_calls > _MANY * max(20, run.iterations)
    stuck = status is Status.ROUNDING or (status in _BUDGETS and many)
    failed = status is Status.LINE_SEARCH or (stuck and run.point.by_hand)
    wrong = wrong_entry(run.point) if failed else None
    if wrong is None:
        return ""
    return (
        f"The gradient contradicts f here: its entry {wrong.entry} is {wrong.gradient:.6g}, but "
        f"differences of f give {wrong.difference:.6g}. Correct the gradient."
    )

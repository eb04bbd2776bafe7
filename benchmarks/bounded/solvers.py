"""The solvers: ours, SciPy's, and a change of variables. Each is counted in the same way."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from bounded.problems import Problem
from firstish import FunctionObjective, LazyStep, PlaneStep, ScaledGradient
from firstish.bounds.bounded import BoundedObjective
from firstish.bounds.box import Box
from firstish.loop import Entry, Limits, Run
from firstish.methods.base import AnyMethod
from firstish.objectives.base import Objective

GTOL = 1e-10


class Enough(Exception):
    """Raised out of a solver when the budget is spent."""


class Seen(NamedTuple):
    """What a solver has seen: oracle calls and seconds so far, f, |P(x - g) - x|."""

    calls: float
    seconds: float
    value: float
    optimality: float


class Trace:
    """What one run has seen inside the bounds, and where it was lowest.

    Recording does not count as its time.
    """

    def __init__(self, problem: Problem) -> None:
        self.seen: list[Seen] = []
        self.least, self.x = math.inf, problem.start
        self.calls, self.seconds = 1.0, 0.0
        self._box = Box(problem.lower, problem.upper)
        self._start = time.process_time()

    def add(self, calls: float, value: float, x: Tensor, g: Callable[[], Tensor]) -> None:
        """An iterate, or every evaluation where a solver does not show its iterates."""
        now = time.process_time()
        if math.isfinite(value) and self._box.contains(x):
            optimality = float((self._box.project(x - g()) - x).norm())
            self.seen.append(Seen(calls, now - self._start, value, optimality))
            if value < self.least:
                self.least, self.x = value, x.detach().clone()
        self.calls, self.seconds = calls, now - self._start
        self._start += time.process_time() - now


Solver = Callable[[Problem, int], Trace]


def ours(method: AnyMethod) -> Solver:
    """A method of ours between bounds."""

    def run(p: Problem, budget: int) -> Trace:
        trace = Trace(p)
        objective = FunctionObjective(p.f, p.start, check=False)
        bounded = BoundedObjective(objective, Box(p.lower, p.upper))
        _drive(trace, bounded, p.start, method, budget, lambda x: x)
        return trace

    return run


def substituted(p: Problem, budget: int) -> Trace:
    """The lazy step without bounds, in variables z with x = softplus(z) or sigmoid(z)."""
    low, high = p.lower.isfinite(), p.upper.isfinite()
    both, width = low & high, torch.where(low & high, p.upper - p.lower, 1.0)

    def x_of(z: Tensor) -> Tensor:
        x = torch.where(low, p.lower.nan_to_num() + softplus(z), z)
        x = torch.where(high, p.upper.nan_to_num() - softplus(-z), x)
        return torch.where(both, p.lower.nan_to_num() + width * torch.sigmoid(z), x)

    # The start, a little inside of the bounds: a bound itself is at infinity.
    share = ((p.start - p.lower.nan_to_num()) / width).clamp(1e-2, 1 - 1e-2)
    above = (p.start - p.lower.nan_to_num()).clamp(min=1e-2)
    below = (p.upper.nan_to_num() - p.start).clamp(min=1e-2)
    z = torch.where(low, torch.log(torch.expm1(above)), p.start)
    z = torch.where(high, -torch.log(torch.expm1(below)), z)
    z = torch.where(both, torch.logit(share), z)
    trace = Trace(p)
    objective = FunctionObjective(lambda z: p.f(x_of(z)), z, check=False)
    _drive(trace, objective, z, LazyStep(), budget, x_of, lambda x: gradient(p.f, x)[1])
    return trace


def gradient(f: Callable[[Tensor], Tensor], x: Tensor) -> tuple[float, Tensor]:
    """f and its gradient."""
    leaf = x.detach().requires_grad_()
    loss = f(leaf)
    (g,) = torch.autograd.grad(loss, leaf)
    return loss.item(), g


def _drive(
    trace: Trace,
    objective: Objective,
    start: Tensor,
    method: AnyMethod,
    budget: int,
    x_of: Callable[[Tensor], Tensor],
    g_of: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """A run of ours, an iteration at a time; `g_of` where its gradient is not that of f."""
    run = Run(objective, start, method)
    limits = Limits(gtol=GTOL, max_oracle_calls=budget)
    while True:
        point = run.point
        calls, x = point.meter.oracle_calls, x_of(point.x)
        trace.add(calls, point.value, x, lambda: point.full_grad if g_of is None else g_of(x))  # noqa: B023
        if not isinstance(run.advance(limits), Entry):
            break


def scipys(method: str, most: int | None = None, **options: Any) -> Solver:
    """A method of `scipy.optimize.minimize`: f and g together are 2 calls, at most `most`."""

    def run(p: Problem, budget: int) -> Trace:
        trace, calls = Trace(p), 0
        limit = budget if most is None else min(budget, most)

        def fun(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            nonlocal calls
            if calls >= limit:
                raise Enough
            here = torch.from_numpy(x.copy())
            value, g = gradient(p.f, here)
            calls += 2
            trace.add(calls, value, here, lambda: g)
            return value, g.numpy()

        with suppress(Enough):
            scipy.optimize.minimize(
                fun,
                p.start.numpy(),
                jac=True,
                method=method,
                bounds=scipy.optimize.Bounds(p.lower.numpy(), p.upper.numpy(), keep_feasible=True),
                options=options,
            )
        return trace

    return run


LONG = 10**6
LBFGSB = {"maxiter": LONG, "maxfun": LONG, "ftol": 0.0, "gtol": GTOL}
SOLVERS: dict[str, Solver] = {
    "lazy": ours(LazyStep()),
    "plane": ours(PlaneStep()),
    "CGMR": ours(ScaledGradient()),
    "L-BFGS-B": scipys("L-BFGS-B", **LBFGSB),
    "L-BFGS-B, 100 pairs": scipys("L-BFGS-B", maxcor=100, **LBFGSB),
    "TNC": scipys("TNC", maxfun=LONG, ftol=0.0, xtol=0.0, gtol=GTOL),
    "trust-constr": scipys("trust-constr", most=400, maxiter=LONG, gtol=GTOL, xtol=1e-14),
    "softplus or sigmoid": substituted,
}
SMALL = {"trust-constr": 100}
"""The most variables that a solver is run on: trust-constr factorises dense matrices."""

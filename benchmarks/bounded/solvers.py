"""The solvers: ours, SciPy's, and a change of variables. Each is counted in the same way."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.optimize
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

import firstish
from bounded.problems import Problem

GTOL = 1e-10


class Enough(Exception):
    """Raised out of a solver when the budget is spent."""


@dataclass(slots=True)
class Trace:
    """When the best value fell: oracle calls, seconds of processor time, values."""

    calls: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, calls: float, seconds: float, value: float) -> None:
        if not self.values or value < self.values[-1]:
            self.calls.append(calls)
            self.seconds.append(seconds)
            self.values.append(value)


def ours(method: str) -> Callable[[Problem, int], Trace]:
    """`minimize(bounds=...)`."""

    def run(p: Problem, budget: int) -> Trace:
        return _minimize(p.f, p.start, method, budget, bounds=(p.lower, p.upper))

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
    return _minimize(lambda z: p.f(x_of(z)), z, "lazy", budget)


def _minimize(
    f: Callable[[Tensor], Tensor], start: Tensor, method: str, budget: int, **more: Any
) -> Trace:
    objective = firstish.FunctionObjective(f, start, check=False)
    trace, begin = Trace(), time.process_time()
    trace.add(1, 0.0, f(start).item())

    def see(progress: firstish.Progress) -> None:
        trace.add(objective.meter.oracle_calls, time.process_time() - begin, progress.value)

    firstish.minimize(
        objective, start, method=method, gtol=GTOL, max_oracle_calls=budget, callback=see, **more
    )
    return trace


def scipys(method: str, **options: Any) -> Callable[[Problem, int], Trace]:
    """A method of `scipy.optimize.minimize`: f and g together are 2 calls."""

    def run(p: Problem, budget: int) -> Trace:
        trace, calls, begin = Trace(), 0, time.process_time()

        def fun(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            nonlocal calls
            if calls >= budget:
                raise Enough
            leaf = torch.from_numpy(x.copy()).requires_grad_()
            loss = p.f(leaf)
            (g,) = torch.autograd.grad(loss, leaf)
            calls += 2
            value = loss.item()
            trace.add(
                calls, time.process_time() - begin, value if math.isfinite(value) else math.inf
            )
            return value, g.numpy()

        with suppress(Enough):
            scipy.optimize.minimize(
                fun,
                p.start.numpy(),
                jac=True,
                method=method,
                bounds=scipy.optimize.Bounds(p.lower.numpy(), p.upper.numpy()),
                options=options,
            )
        return trace

    return run


LONG = 10**6
LBFGSB = {"maxiter": LONG, "maxfun": LONG, "ftol": 0.0, "gtol": GTOL}
SOLVERS: dict[str, Callable[[Problem, int], Trace]] = {
    "lazy": ours("lazy"),
    "plane": ours("plane"),
    "CGMR": ours("CGMR"),
    "L-BFGS-B": scipys("L-BFGS-B", maxiter=LONG, maxfun=LONG, ftol=0.0, gtol=GTOL),
    "L-BFGS-B, 100 pairs": scipys(
        "L-BFGS-B", maxcor=100, maxiter=LONG, maxfun=LONG, ftol=0.0, gtol=GTOL
    ),
    "TNC": scipys("TNC", maxfun=LONG, ftol=0.0, xtol=0.0, gtol=GTOL),
    "softplus or sigmoid": substituted,
}
SLOW: dict[str, Callable[[Problem, int], Trace]] = {  # up to seconds for each iteration
    "trust-constr": scipys("trust-constr", maxiter=LONG, gtol=GTOL, xtol=1e-14),
}

"""SciPy's solvers, and torch's L-BFGS as its users run it, on the same objectives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
import torch
from scipy import optimize

from firstish.objectives.autograd import AutogradObjective
from firstish.problems.base import Instance
from race.counted import Array, Counted, Enough
from race.limits import Finish
from race.traces import Outcome, Trace

# SciPy's own tests are off: the race says when to stop. The rest is as SciPy has it.
SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "scipy-lbfgsb": (
        "L-BFGS-B",
        {"ftol": 0.0, "gtol": 0.0, "maxiter": 10**9, "maxfun": 10**9},
    ),
    "scipy-trust-ncg": ("trust-ncg", {"gtol": 0.0, "maxiter": 10**9}),
    "scipy-newton-cg": ("Newton-CG", {"xtol": 0.0, "maxiter": 10**9}),
}
TORCH = "torch-lbfgs"
# As in `firstish.baselines.LBFGS`, whose steps it takes, but without the state handed in and out:
# it shows whether the baseline's seconds are those of a user of torch.
TORCH_OPTIONS: dict[str, Any] = {
    "max_iter": 1,
    "max_eval": 26,
    "tolerance_grad": 0.0,
    "tolerance_change": 0.0,
    "history_size": 100,
    "line_search_fn": "strong_wolfe",
}
NAMES = (*SOLVERS, TORCH)

Observe = Callable[[Array], None]


def setting(name: str) -> str:
    """What the results depend on."""
    if name == TORCH:
        return f"torch.optim.LBFGS {TORCH_OPTIONS}, torch {torch.__version__}"
    method, options = SOLVERS[name]
    return f"{method} {options}, SciPy {scipy.__version__}"


def run(instance: Instance, name: str, finish: Finish) -> Outcome:
    """Run it to the finish. An iterate counts once f and g are known there, as for ours."""
    objective = instance.objective
    assert isinstance(objective, AutogradObjective)
    products = name not in (TORCH, "scipy-lbfgsb")
    if name == TORCH:
        # The first optimizer of a process makes torch import its compiler, about a second.
        torch.optim.LBFGS([torch.zeros(1)])
    f = Counted(objective, instance.x0.dtype, products, finish.max_calls, finish.max_seconds)
    x0 = instance.x0.numpy().astype(np.float64)
    trace = Trace()

    def observe(x: Array) -> None:
        value, g = f.value(x), f.grad(x)
        trace.add(f.calls, f.seconds(), value)
        if finish.reached(value, float(np.linalg.norm(g))):
            raise Enough("TARGET")

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            observe(x0)
            status = _torch(f, x0, observe) if name == TORCH else _scipy(name, f, x0, observe)
        except Enough as reason:
            status = str(reason)
        except Exception as error:  # a method that breaks is a row in the table
            status = f"FAILED: {type(error).__name__}: {error}"
    return Outcome(status, trace, f.calls, f.seconds())


def _scipy(name: str, f: Counted, x0: Array, observe: Observe) -> str:
    method, options = SOLVERS[name]

    def callback(intermediate_result: optimize.OptimizeResult) -> None:
        observe(np.array(intermediate_result.x))

    result = optimize.minimize(
        f.value,
        x0,
        jac=f.grad,
        hessp=f.hessp if f.products else None,
        method=method,
        callback=callback,
        options=options,
    )
    return f"SCIPY: {result.message}"


def _torch(f: Counted, x0: Array, observe: Observe) -> str:
    x = torch.tensor(x0)
    optimizer = torch.optim.LBFGS([x], **TORCH_OPTIONS)

    def closure() -> float:
        x.grad = torch.from_numpy(f.grad(x.numpy()))
        return f.value(x.numpy())

    while True:
        before = x.clone()
        optimizer.step(closure)  # type: ignore[no-untyped-call]
        if torch.equal(x, before):
            return "LINE_SEARCH"
        observe(x.numpy())

"""SciPy's solvers, at their defaults; L-BFGS-B also with torch's number of pairs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy import optimize

from race.counted import Array, Counted
from race.peers.base import Observe, Peer

# SciPy's own tests are off: the race says when to stop. The rest is as SciPy has it.
_ENDLESS = {"gtol": 0.0, "maxiter": 10**9}
_LBFGSB = {**_ENDLESS, "ftol": 0.0, "maxfun": 10**9}

SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "scipy-lbfgsb": ("L-BFGS-B", _LBFGSB),
    "scipy-lbfgsb-100": ("L-BFGS-B", {**_LBFGSB, "maxcor": 100}),
    "scipy-bfgs": ("BFGS", _ENDLESS),
    "scipy-trust-ncg": ("trust-ncg", _ENDLESS),
    "scipy-trust-krylov": ("trust-krylov", _ENDLESS),
    "scipy-newton-cg": ("Newton-CG", {"xtol": 0.0, "maxiter": 10**9}),
}
GRADIENTS_ONLY = ("L-BFGS-B", "BFGS")


def _solve(method: str, options: dict[str, Any], f: Counted, x0: Array, observe: Observe) -> str:
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


SCIPY = {
    name: Peer(
        solve=partial(_solve, method, options),
        setting=f"{method} {options}",
        package="scipy",
        module="scipy",
        products=method not in GRADIENTS_ONLY,
    )
    for name, (method, options) in SOLVERS.items()
}

"""pytorch-minimize's solvers, at their defaults but for the tests that end a run."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from race.counted import Array, Counted
from race.peers.base import Observe, Peer
from race.peers.differentiable import differentiable

_QUASI_NEWTON = {"gtol": 0.0, "xtol": 0.0, "gtd_tol": 0.0}

SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "torchmin-bfgs": ("bfgs", _QUASI_NEWTON),
    "torchmin-lbfgs": ("l-bfgs", _QUASI_NEWTON),  # its default is 100 pairs
    "torchmin-newton-cg": ("newton-cg", {"xtol": 0.0}),
    "torchmin-trust-ncg": ("trust-ncg", {"gtol": 0.0}),
}


def _solve(method: str, options: dict[str, Any], f: Counted, x0: Array, observe: Observe) -> str:
    import torchmin

    result = torchmin.minimize(
        partial(differentiable, f),
        torch.tensor(x0),
        method,
        max_iter=10**9,
        options=dict(options),  # it writes into them
        callback=lambda x: observe(x.detach().numpy().copy()),
    )
    return f"TORCHMIN: {result.message}"


TORCHMIN = {
    name: Peer(
        solve=partial(_solve, method, options),
        setting=f"{method} {options}",
        package="pytorch-minimize",
        module="torchmin",
        products=method in ("newton-cg", "trust-ncg"),
    )
    for name, (method, options) in SOLVERS.items()
}

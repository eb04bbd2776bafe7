"""torchzero's recipes for BFGS and L-BFGS, as its `minimize` makes them, and BFGS at its best.

That is with the strong Wolfe search. Its self-scaled updates (SSVM, NewSSM) are not raced: with
either search, as documented, they did not solve Rosenbrock's function in 2,000 calls or only with
restarts, and none of them `woods` or `genrose`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from race.counted import Array, Counted
from race.peers.base import Observe, Peer
from race.peers.differentiable import differentiable

STILL = 20  # steps without a move after which it is held to be stuck

RECIPES = {
    "torchzero-bfgs": "RestartOnStuck(BFGS()), Backtracking()",
    "torchzero-lbfgs": "LBFGS(100), Backtracking()",
    "torchzero-bfgs-wolfe": "BFGS(), StrongWolfe(fallback=True)",
}


def _modules(name: str) -> list[Any]:
    import torchzero as tz

    if name == "torchzero-bfgs":
        return [tz.m.RestartOnStuck(tz.m.BFGS()), tz.m.Backtracking()]
    if name == "torchzero-lbfgs":
        return [tz.m.LBFGS(100), tz.m.Backtracking()]
    return [tz.m.BFGS(), tz.m.StrongWolfe(fallback=True)]


def _solve(name: str, f: Counted, x0: Array, observe: Observe) -> str:
    import torchzero as tz

    x = torch.tensor(x0, requires_grad=True)
    optimizer = tz.Optimizer([x], *_modules(name))

    def closure(backward: bool = True) -> torch.Tensor:
        loss = differentiable(f, x)
        if backward:
            optimizer.zero_grad()
            loss.backward()
        return loss

    still = 0
    while still < STILL:
        before = x.detach().clone()
        optimizer.step(closure)
        still = still + 1 if torch.equal(x.detach(), before) else 0
        observe(x.detach().numpy().copy())
    return "STUCK"


TORCHZERO = {
    name: Peer(
        solve=partial(_solve, name),
        setting=recipe,
        package="torchzero",
        module="torchzero",
    )
    for name, recipe in RECIPES.items()
}

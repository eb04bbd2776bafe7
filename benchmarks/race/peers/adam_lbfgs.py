"""Adam and then L-BFGS, the usual recipe for physics-informed networks, by torch's optimizers."""

from __future__ import annotations

import torch

from race.counted import Array, Counted
from race.peers.base import Observe, Peer
from race.peers.torch_lbfgs import OPTIONS, lbfgs

SHARE = 1 / 3  # of the budget, for Adam
RATE = 1e-3  # Adam's default


def _solve(f: Counted, x0: Array, observe: Observe) -> str:
    x = torch.tensor(x0)
    adam = torch.optim.Adam([x], lr=RATE)
    while f.calls < SHARE * f.max_calls:
        x.grad = torch.from_numpy(f.grad(x.numpy()))
        adam.step()
        observe(x.numpy())
    return lbfgs(OPTIONS, f, x.numpy(), observe)


ADAM_LBFGS = {
    "adam-lbfgs": Peer(
        solve=_solve,
        setting=f"Adam, lr {RATE:g}, for {SHARE:.3g} of the budget, then L-BFGS {OPTIONS}",
        package="torch",
        module="torch",
    )
}

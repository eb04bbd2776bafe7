"""torch's L-BFGS as its users run it: with its default of 100 pairs, and with 10."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from race.counted import Array, Counted
from race.peers.base import Observe, Peer

# As in `firstish.baselines.LBFGS`, whose steps it takes, but without the state handed in and out:
# it shows whether the baseline's seconds are those of a user of torch.
OPTIONS: dict[str, Any] = {
    "max_iter": 1,
    "max_eval": 26,
    "tolerance_grad": 0.0,
    "tolerance_change": 0.0,
    "history_size": 100,
    "line_search_fn": "strong_wolfe",
}


def lbfgs(options: dict[str, Any], f: Counted, x0: Array, observe: Observe) -> str:
    """From x0 until it does not move."""
    x = torch.tensor(x0)
    optimizer = torch.optim.LBFGS([x], **options)

    def closure() -> float:
        x.grad = torch.from_numpy(f.grad(x.numpy()))
        return f.value(x.numpy())

    while True:
        before = x.clone()
        optimizer.step(closure)  # type: ignore[no-untyped-call]
        if torch.equal(x, before):
            return "LINE_SEARCH"
        observe(x.numpy())


def _peer(pairs: int) -> Peer:
    options = {**OPTIONS, "history_size": pairs}
    return Peer(
        solve=partial(lbfgs, options),
        setting=f"torch.optim.LBFGS {options}",
        package="torch",
        module="torch",
    )


TORCH = {"torch-lbfgs": _peer(100), "torch-lbfgs-10": _peer(10)}

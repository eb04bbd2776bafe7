"""One run of a solver that is not ours, counted and ended as ours are."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from firstish.problems.base import Instance
from race.counted import Array, Counted, Enough
from race.limits import Finish
from race.peers import PEERS
from race.traces import Outcome, Trace

NAMES = tuple(PEERS)


def setting(name: str) -> str:
    """What the results depend on."""
    return PEERS[name].described()


def missing_package(name: str) -> str | None:
    """The package that it needs, if that is not installed."""
    peer = PEERS[name]
    return None if peer.installed else peer.package


def run(instance: Instance, name: str, finish: Finish) -> Outcome:
    """Run it to the finish. An iterate counts once f and g are known there, as for ours."""
    peer = PEERS[name]
    _warm_up()
    dtype, limits = instance.x0.dtype, (finish.max_calls, finish.max_seconds)
    f = Counted(instance.objective, dtype, peer.products, *limits)
    x0 = instance.x0.numpy().astype(np.float64)
    trace, best = Trace(), x0

    def observe(x: Array) -> None:
        nonlocal best
        value, g = f.value(x), f.grad(x)
        if trace.add(f.calls, f.seconds(), value):
            best = x.copy()
        if finish.reached(value, float(np.linalg.norm(g))):
            raise Enough("TARGET")

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            observe(x0)
            status = peer.solve(f, x0, observe)
        except Enough as reason:
            status = str(reason)
        except Exception as error:  # a method that breaks is a row in the table
            status = f"FAILED: {type(error).__name__}: {error}"
    outcome = Outcome(status, trace, f.calls, f.seconds())
    outcome.x = torch.tensor(best, dtype=dtype)
    return outcome


def _warm_up() -> None:
    """The first optimizer of a process makes torch import its compiler, about a second."""
    torch.optim.LBFGS([torch.zeros(1)])

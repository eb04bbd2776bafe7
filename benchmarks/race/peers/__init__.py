"""The solvers of others, each run by its own code on the objective of the race."""

from race.peers.adam_lbfgs import ADAM_LBFGS
from race.peers.base import Peer
from race.peers.scipy_solvers import SCIPY
from race.peers.torch_lbfgs import TORCH
from race.peers.torchmin_solvers import TORCHMIN
from race.peers.torchzero_recipes import TORCHZERO

PEERS: dict[str, Peer] = {**SCIPY, **TORCH, **ADAM_LBFGS, **TORCHMIN, **TORCHZERO}

__all__ = ["PEERS", "Peer"]

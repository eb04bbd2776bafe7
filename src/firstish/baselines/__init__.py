"""The competitors, on the same objectives, with the same counters and records as our methods.

Each is a `Method`: pass it to `firstish.minimize(..., method=...)`. What is known of the formulas:
fixed step, heavy ball, Nesterov and the line searches are the paper's; Adam and L-BFGS are torch's
own code; PoNo, AdGD and AdGD-2 were read in their authors' code. ABBmin's rule was read in a third
party's code and its constants are recalled; CDAT's formula was read in summaries of its paper and
its eps is ours. `docs/competitors.md` has formulas, constants and sources.
"""

from firstish.baselines.abbmin import ABBmin, ABBminState
from firstish.baselines.adam import Adam
from firstish.baselines.adgd import AdGD, AdGD2, AdGDState
from firstish.baselines.cdat import CDAT
from firstish.baselines.fixed_step import FixedStep, NoState
from firstish.baselines.lbfgs import LBFGS, LBFGSState
from firstish.baselines.line_search import LastStep, LineSearch, Reset
from firstish.baselines.momentum import HeavyBall, Nesterov, Velocity
from firstish.baselines.pono import PoNo, PoNoState
from firstish.methods.directions import Moments

__all__ = [
    "CDAT",
    "LBFGS",
    "ABBmin",
    "ABBminState",
    "AdGD",
    "AdGD2",
    "AdGDState",
    "Adam",
    "FixedStep",
    "HeavyBall",
    "LBFGSState",
    "LastStep",
    "LineSearch",
    "Moments",
    "Nesterov",
    "NoState",
    "PoNo",
    "PoNoState",
    "Reset",
    "Velocity",
]

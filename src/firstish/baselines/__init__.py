"""Competing methods, with the same objectives, counters and records as our own.

Each is a `Method`: pass it to `firstish.minimize(..., method=...)`. Sources of the formulas: fixed
step, heavy ball, Nesterov and the line searches follow the paper; Adam and L-BFGS call torch's
code; PoNo, AdGD and AdGD-2 follow their authors' code. ABBmin's rule is taken from third-party code
and its constants from memory. CDAT's formula is taken from summaries of its paper, and its eps is
our choice. `docs/competitors.md` lists formulas, constants and sources.
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
from firstish.interface.keywords import answer_keywords
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

_GRADIENT = (AdGD, AdGD2, CDAT, FixedStep, HeavyBall, Nesterov)
for _kind in (*_GRADIENT, ABBmin, Adam, LBFGS, LineSearch, PoNo):
    answer_keywords(_kind)

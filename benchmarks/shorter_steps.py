"""What the factor c of the lazy step saves: calls with it over those without it.

    FIRSTISH_DATA=DIR .venv/bin/python benchmarks/shorter_steps.py [--weights 0,0.05] [--only NAME]

Problems of the race that are not held out, without the ResNet; calls until f is within tau of the
way from the start to the lowest value of these runs, in ratios to the first weight. A weight is
that of the last step in the mean that gives c (`RECENT`); 0 is without c. A failure is charged
twice the budget, 3,000 calls for physics-informed networks, whose losses are printed too.
"""

from __future__ import annotations

import argparse
import statistics
import warnings

import torch
from race import statistics as st
from race.catalogue import PROBLEMS
from race.problem import held_out

from firstish import Result, minimize
from firstish.methods import lazy_step

TAUS = (1e-3, 1e-5, 1e-8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", default="0,0.05", help="the first is the one compared with")
    parser.add_argument("--only", default="", help="problems with this in their name")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # overflow far from the minimum is part of the race
    weights = [float(w) for w in args.weights.split(",")]
    names = [n for n in PROBLEMS if args.only in n and not held_out(n) and "resnet" not in n]
    runs = {name: [_run(name, weight) for weight in weights] for name in names}
    for tau in TAUS:
        calls = [[_calls(runs[name], k, tau, name) for name in names] for k in range(len(weights))]
        for weight, spent in zip(weights, calls, strict=True):
            solved = sum(c < 2 * _budget(n) for c, n in zip(spent, names, strict=True))
            ratio = st.ratio(spent, calls[0])
            print(f"tau {tau:g}, weight {weight:g}: {ratio:.3f}, solved {solved} of {len(names)}")
    for name in (n for n in names if n.startswith("pinn")):
        print(name, *(f"{run.value:.1e}" for run in runs[name]))
    for k, weight in enumerate(weights):
        trials = [row.trials for found in runs.values() for row in found[k].history[:-1]]
        print(
            f"weight {weight:g}: {statistics.fmean(t == 1 for t in trials):.1%} first trials taken"
        )


def _budget(name: str) -> int:
    return min(PROBLEMS[name].budget, 3_000) if name.startswith("pinn") else PROBLEMS[name].budget


def _run(name: str, weight: float) -> Result:
    lazy_step.RECENT = weight
    instance = PROBLEMS[name].build()
    return minimize(instance.objective, instance.x0, gtol=1e-12, max_oracle_calls=_budget(name))


def _calls(runs: list[Result], k: int, tau: float, name: str) -> float:
    """The calls of one run until it is within tau."""
    lowest = min(row.value for run in runs for row in run.history)
    target = lowest + tau * (runs[0].history[0].value - lowest)
    reached = (row.oracle_calls for row in runs[k].history if row.value <= target)
    return next(reached, 2 * _budget(name))


if __name__ == "__main__":
    main()

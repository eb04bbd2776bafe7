"""Bounds: oracle calls and seconds of ours, SciPy's and a change of variables.

    .venv/bin/python benchmarks/bounds.py [--budget 4000] [--held-out] [--only NAME] [--minima]

A case is a problem and a start; problems that are not convex have twenty starts. Two tables, each
for the cases held out and the others, say what a solver takes until a case is solved:

    value        f <= f_ref + tau (f0 - f_ref), f_ref the lowest value that any solver came to from
                 that start (Moré and Wild). Where there are several minima, the lowest one found
                 counts, so this also measures which minimum a solver happens to find.
    stationary   |P(x - g) - x| <= tau |P(x0 - g0) - x0|: any point that meets the first-order
                 conditions, whichever minimum it leads to.

`calls` and `secs` are geometric means over the cases of a solver's cost over that of L-BFGS-B; a
failure is charged twice the budget, and the seconds of as many calls. `both` is the mean of the
calls over the cases that both solve, `all` that over the three values of tau. Seconds are of this
process, the runs of a case one after the other; `--repeats` takes the median of several. A solver
that is not run on large problems (`bounded/solvers.py`) is compared on those it is run on.

A third table counts which of two solvers ends lower, where their lowest values differ by more than
1e-4 (f0 - f_ref). `--minima` prints, for the cases where the lazy step and L-BFGS-B differ, the
projected gradient and the least eigenvalue of the Hessian of the free variables where each was
lowest: whether both are minima.

Held out is a third by the hash of the problem's name. The rules of the step between bounds were
chosen on the others; problems in `bounded/fits.py` and `bounded/larger.py` were added after that.
This, and what counts as solved, was written down before the first run of it.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import statistics
import warnings
from collections.abc import Callable
from typing import NamedTuple

import bounded.fits
import bounded.larger  # noqa: F401  # both register problems
import torch
from bounded.minima import describe
from bounded.problems import PROBLEMS, STARTS
from bounded.solvers import SMALL, SOLVERS, Seen, Trace
from race.statistics import PENALTY, ratio, target

TAUS = (1e-2, 1e-4, 1e-6)
BASE = "L-BFGS-B"
SAME = 1e-4  # of f0 - f_ref: the lowest values of two solvers are the same


class Cost(NamedTuple):
    """Calls and seconds until a case is solved; as charged if it is not."""

    solved: bool
    calls: float
    seconds: float


class Case(NamedTuple):
    """What the solvers did from one start: costs by rule and tau, and the lowest values."""

    costs: dict[str, dict[str, list[Cost]]]
    lowest: dict[str, float]
    step: float  # f0 - f_ref


def held_out(name: str) -> bool:
    """Whether the problem is in the held-out third."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 3 == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=int, default=4_000, help="oracle calls of one run")
    parser.add_argument("--repeats", type=int, default=1, help="for the median of seconds")
    parser.add_argument("--only", default="", help="problems with this in their name, or in a list")
    parser.add_argument("--solvers", default="", help="a list, separated by semicolons")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--held-out", action="store_true", help="only the problems held out")
    part.add_argument("--not-held-out", action="store_true", help="only the others")
    parser.add_argument("--minima", action="store_true", help="what kind of points runs end in")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    words = args.only.split(",")
    names = [
        name
        for name in PROBLEMS
        if any(word in name for word in words)
        and not (args.held_out if not held_out(name) else args.not_held_out)
    ]
    chosen = args.solvers.split(";") if args.solvers else list(SOLVERS)
    cases: dict[str, list[Case]] = {
        name: [_race(name, k, chosen, args) for k in range(STARTS[name])] for name in names
    }
    for split in (False, True):
        here = {name: found for name, found in cases.items() if held_out(name) == split}
        for kind, within in _kinds(here).items():
            _tables(kind, split, within, chosen)


def _kinds(cases: dict[str, list[Case]]) -> dict[str, list[Case]]:
    """All cases, and of these the ones whose f takes milliseconds."""
    large = [case for name, found in cases.items() if name.startswith("large") for case in found]
    return {"": [case for found in cases.values() for case in found], "large ": large}


def _race(name: str, k: int, solvers: list[str], args: argparse.Namespace) -> Case:
    problem = PROBLEMS[name](k)
    fits = [s for s in solvers if len(problem.start) <= SMALL.get(s, len(problem.start))]
    runs: dict[str, list[Trace]] = {s: [] for s in fits}
    for _ in range(args.repeats):
        for solver in fits:
            runs[solver].append(SOLVERS[solver](problem, args.budget))
    first = runs[BASE][0].seen[0]
    least = min(trace.least for traces in runs.values() for trace in traces)
    rules: dict[str, Callable[[float, Seen], bool]] = {
        "value": lambda tau, seen: seen.value <= target(first.value, least, tau),
        "stationary": lambda tau, seen: seen.optimality <= tau * first.optimality,
    }
    costs = {
        rule: {
            s: [_cost(traces, lambda seen: met(tau, seen), args.budget) for tau in TAUS]  # noqa: B023
            for s, traces in runs.items()
        }
        for rule, met in rules.items()
    }
    shown = "  ".join(
        f"{s} " + "/".join(f"{c.calls:g}" if c.solved else "-" for c in costs["value"][s])
        for s in fits
    )
    print(f"{name:24}{k}  n = {len(problem.start):5}  {shown}", flush=True)
    case = Case(costs, {s: runs[s][0].least for s in fits}, first.value - least)
    if args.minima and _lower(case, "lazy", BASE):
        for s in ("lazy", BASE):
            print(f"{'':26}{s:10} {describe(problem, runs[s][0].x)}")
    return case


def _cost(runs: list[Trace], met: Callable[[Seen], bool], budget: int) -> Cost:
    found = [next((s for s in t.seen if s.calls <= budget and met(s)), None) for t in runs]
    reached = [seen for seen in found if seen is not None]
    if not reached:
        per_call = statistics.median(t.seconds / t.calls for t in runs)
        return Cost(False, PENALTY * budget, PENALTY * budget * per_call)
    seconds = statistics.median(seen.seconds for seen in reached)
    return Cost(True, reached[0].calls, max(seconds, 1e-6))


def _tables(kind: str, held: bool, cases: list[Case], solvers: list[str]) -> None:
    if not cases:
        return
    for rule in ("value", "stationary"):
        print(f"\n{rule}: {len(cases)} {kind}cases {'held out' if held else 'not held out'}")
        heads = (f"{f'to {tau:g}: solved':>17}{'calls':>7}{'secs':>6}{'both':>6}" for tau in TAUS)
        print(f"{'':22}" + "".join(heads) + "  all: calls  secs")
        for solver in solvers:
            cells = "".join(_cell(cases, rule, solver, i) for i in range(len(TAUS)))
            print(f"{solver:22}{cells}{_mean(cases, rule, solver)}")
    print(f"\nlowest value against {BASE}:")
    for solver in solvers:
        ends = [_lower(case, solver, BASE) for case in cases if solver in case.lowest]
        print(
            f"{solver:22}lower {ends.count(-1):3}  same {ends.count(0):3}  higher {ends.count(1):3}"
        )


Pairs = list[tuple[Cost, Cost]]


def _pairs(cases: list[Case], rule: str, solver: str, i: int) -> Pairs:
    """What each case cost the solver and the one compared with."""
    return [(c.costs[rule][solver][i], c.costs[rule][BASE][i]) for c in cases if solver in c.lowest]


def _ratios(pairs: Pairs) -> tuple[float, float]:
    """Of calls and of seconds."""
    calls = ratio([a.calls for a, _ in pairs], [b.calls for _, b in pairs])
    return calls, ratio([a.seconds for a, _ in pairs], [b.seconds for _, b in pairs])


def _mean(cases: list[Case], rule: str, solver: str) -> str:
    """The ratios in the geometric mean over the cases and all of `TAUS`."""
    pairs = [pair for i in range(len(TAUS)) for pair in _pairs(cases, rule, solver, i)]
    calls, seconds = _ratios(pairs) if pairs else (math.nan, math.nan)
    return f"{calls:12.2f}{seconds:6.2f}"


def _cell(cases: list[Case], rule: str, solver: str, i: int) -> str:
    pairs = _pairs(cases, rule, solver, i)
    if not pairs:
        return f"{'-':>17}{'-':>7}{'-':>6}{'-':>6}"
    solved = f"{sum(a.solved for a, _ in pairs)} of {len(pairs)}"
    calls, seconds = _ratios(pairs)
    both = [(a.calls, b.calls) for a, b in pairs if a.solved and b.solved]
    alike = f"{ratio(*zip(*both, strict=True)):6.2f}" if both else f"{'-':>6}"
    return f"{solved:>17}{calls:7.2f}{seconds:6.2f}{alike}"


def _lower(case: Case, one: str, other: str) -> int:
    """-1 if the first ends lower, 1 if the second does, else 0."""
    difference = case.lowest[one] - case.lowest[other]
    return 0 if abs(difference) <= SAME * case.step else (-1 if difference < 0 else 1)


if __name__ == "__main__":
    main()

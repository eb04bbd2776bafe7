"""Bounds: oracle calls and seconds of ours, SciPy's and a change of variables.

    .venv/bin/python benchmarks/bounds.py [--budget 4000] [--repeats 3] [--slow]

A problem counts as solved when f <= f_ref + tau (f0 - f_ref), f_ref the least value that any solver
came to; a failure is charged twice the budget. The held-out third is drawn by the hash of the
name, as in the race.
"""

from __future__ import annotations

import argparse
import statistics
import warnings

import torch
from bounded.problems import PROBLEMS
from bounded.solvers import SLOW, SOLVERS, Trace
from race.problem import held_out
from race.statistics import charged_calls, ratio, target

TAUS = (1e-2, 1e-4, 1e-7)
BASE = "L-BFGS-B"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=int, default=4_000, help="oracle calls of one run")
    parser.add_argument("--repeats", type=int, default=3, help="for the median of seconds")
    parser.add_argument("--slow", action="store_true", help="trust-constr too")
    parser.add_argument("--only", default="", help="problems with this in their name")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    solvers = SOLVERS | (SLOW if args.slow else {})
    names = [name for name in PROBLEMS if args.only in name]
    costs = {name: _race(name, solvers, args.budget, args.repeats) for name in names}
    for split in (False, True):
        _table({n: c for n, c in costs.items() if held_out(n) == split}, split, args.budget)


def _table(costs: dict[str, dict[str, list[Cost]]], held: bool, budget: int) -> None:
    if not costs:
        return
    kind = "held out" if held else "not held out"
    print(
        f"\n{len(costs)} problems {kind}; over {BASE}: calls, seconds, calls where both solved it"
    )
    heads = (f"{f'solved to {tau:g}':>17}{'calls':>7}{'secs':>6}{'both':>6}" for tau in TAUS)
    print(f"{'':22}" + "".join(heads))
    for solver in next(iter(costs.values())):
        cells = (_summary(costs, solver, k, budget) for k in range(len(TAUS)))
        print(f"{solver:22}" + "".join(cells))


Cost = tuple[float | None, float, float]  # calls to the target, seconds to it, seconds for a call


def _race(name: str, solvers: dict, budget: int, repeats: int) -> dict[str, list[Cost]]:
    """For each solver its costs to each target."""
    problem = PROBLEMS[name]()
    traces: dict[str, list[Trace]] = {solver: [] for solver in solvers}
    for _ in range(repeats):
        for solver, run in solvers.items():
            traces[solver].append(run(problem, budget))
    f0 = problem.f(problem.start).item()
    least = min(trace.values[-1] for runs in traces.values() for trace in runs)
    goals = [target(f0, least, tau) for tau in TAUS]
    costs = {
        solver: [_cost(runs, goal, budget) for goal in goals] for solver, runs in traces.items()
    }
    shown = "  ".join(
        f"{solver} {'/'.join('-' if c is None else f'{c:g}' for c, _, _ in costs[solver])}"
        for solver in solvers
    )
    print(f"{name:22} n = {len(problem.start):5}  {shown}", flush=True)
    return costs


def _cost(runs: list[Trace], goal: float, budget: int) -> Cost:
    found = [
        next(
            ((c, s) for c, s, f in zip(t.calls, t.seconds, t.values, strict=True) if f <= goal),
            None,
        )
        for t in runs
    ]
    per_call = statistics.median(t.seconds[-1] / t.calls[-1] for t in runs)
    reached = [pair for pair in found if pair is not None and pair[0] <= budget]
    if not reached:
        return None, 2 * budget * per_call, per_call
    return reached[0][0], statistics.median(s for _, s in reached), per_call


def _summary(costs: dict[str, dict[str, list[Cost]]], solver: str, k: int, budget: int) -> str:
    mine, base = ([problem[s][k] for problem in costs.values()] for s in (solver, BASE))
    solved = sum(calls is not None for calls, _, _ in mine)
    calls = ratio(*([charged_calls(c, budget) for c, _, _ in side] for side in (mine, base)))
    seconds = ratio(*([max(s, 1e-6) for _, s, _ in side] for side in (mine, base)))
    both = [(a, b) for (a, *_), (b, *_) in zip(mine, base, strict=True) if a and b]
    return f"{solved:>17}{calls:7.2f}{seconds:6.2f}{ratio(*zip(*both, strict=True)):6.2f}"


if __name__ == "__main__":
    main()

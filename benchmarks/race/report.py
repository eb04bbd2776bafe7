"""The tables of the race."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from statistics import median

from race import statistics as st
from race.board import Board
from race.store import Result
from race.traces import ETA, Steps

MAIN_TAU = 1e-6

HEAD = [
    "problem",
    "method",
    "tau",
    "f_ref",
    "calls",
    "seconds",
    "charged_calls",
    "charged_seconds",
    "status",
    "rate",
]

PAIRS = (
    "plane/cgmr",
    "plane/adam",
    "lazy/torch-lbfgs",
    "lazy/torch-lbfgs-10",
    "lazy/scipy-lbfgsb",
    "lazy/scipy-lbfgsb-100",
    "lazy/scipy-bfgs",
    "lazy/torchmin-bfgs",
    "lazy/torchmin-lbfgs",
    "lazy/torchzero-bfgs-wolfe",
    "lazy/adam-lbfgs",
    "plane/scipy-lbfgsb",
    "cgmr/adam",
    "cgmr/adam +grid",
    "cgmr/torch-lbfgs",
    "cgmr/line-search",
)


def summary(board: Board) -> Iterator[str]:
    """For each target: solved, and the geometric means, the cheapest in calls first."""
    for tau in st.TAUS:
        yield f"to f <= f_ref + {tau:g} (f0 - f_ref), {len(board.problems)} problems"
        yield f"  {'method':<22} {'solved':>6} {'calls':>10} {'seconds':>10}"
        rows = []
        for method in board.methods:
            calls = st.geometric_mean(board.calls(method, tau))
            seconds = st.geometric_mean(board.seconds(method, tau))
            rows.append((calls, seconds, method, board.solved(method, tau)))
        for calls, seconds, method, solved in sorted(rows):
            yield f"  {method:<22} {solved:>6} {calls:>10.1f} {seconds:>10.4f}"


def ratios(board: Board, pairs: Iterable[str]) -> Iterator[str]:
    """Each pair's cost ratio with its interval, in calls and in seconds."""
    yield f"  {'ratio':<26} {'tau':>6}  {'calls':<22} {'seconds':<22} fewer calls on"
    for pair in pairs:
        ours, theirs = pair.split("/")
        if ours not in board.methods or theirs not in board.methods:
            continue
        for tau in st.TAUS:
            cells = []
            for costs in (board.calls, board.seconds):
                a, b = costs(ours, tau), costs(theirs, tau)
                low, high = st.interval(a, b)
                cells.append(f"{st.ratio(a, b):.3f} [{low:.3f}, {high:.3f}]")
            pairs_of_calls = zip(board.calls(ours, tau), board.calls(theirs, tau), strict=True)
            wins = sum(a < b for a, b in pairs_of_calls)
            share = f"{wins} of {len(board.problems)}"
            yield f"  {pair:<26} {tau:>6g}  {cells[0]:<22} {cells[1]:<22} {share}"


def per_problem(board: Board) -> Iterator[str]:
    """Calls to the main target, a row for each problem."""
    names = [m for m in board.methods if "+" not in m]
    width = max(len(p) for p in board.problems)
    heads = [f"{m.replace('scipy-', 's-')[:9]:>9}" for m in names]
    yield f"  {'problem':<{width}} {'f_ref':>12} " + " ".join(heads)
    for k, problem in enumerate(board.problems):
        costs = [board.costs[MAIN_TAU][m][k].calls for m in names]
        cells = [f"{'-' if c is None else format(c, '.0f'):>9}" for c in costs]
        yield f"  {problem:<{width}} {board.references[problem]:>12.5e} " + " ".join(cells)


def shares(methods: Iterable[str], results: Sequence[Result]) -> Iterator[str]:
    """How often the unit step was right, over all steps of all problems."""
    yield (
        f"  {'method':<22} {'SPC steps':>10} {'unit':>8} {'and curved':>11} {'NC steps':>9} "
        f"{'unit of all':>12}"
    )
    for method in methods:
        total = Steps()
        for result in results:
            steps = result.outcome.steps
            if result.key.method == method and steps is not None:
                for name in Steps.__slots__:
                    setattr(total, name, getattr(total, name) + getattr(steps, name))
        if total.spc:
            yield (
                f"  {method:<22} {total.spc:>10} {total.spc_unit / total.spc:>8.2%} "
                f"{total.spc_unit_curved / total.spc:>11.2%} {total.nc:>9} "
                f"{total.unit / total.taken:>12.2%}"
            )
    yield (
        f"  Shares of SPC steps; curved: the curvature condition at eta = {ETA} holds too. "
        "The mean over steps, so that long runs weigh most."
    )


def solutions(
    problems: Sequence[str], methods: Sequence[str], results: Mapping[tuple[str, str], Result]
) -> Iterator[str]:
    """For each equation, the medians over its seeds of what each method came to."""
    equations: dict[str, list[str]] = {}
    for problem in problems:
        equations.setdefault(problem.rsplit("-", 1)[0], []).append(problem)
    for equation, seeds in equations.items():
        yield f"  {equation}, median of {len(seeds)}"
        rows = []
        for method in methods:
            ends = [results[p, method].outcome for p in seeds]
            loss = median(end.trace.values[-1] for end in ends)
            error = median(end.error for end in ends if end.error is not None)
            late = sum(end.status == "MAX_SECONDS" for end in ends)
            rows.append((loss, error, median(end.seconds for end in ends), late, method))
        for loss, error, seconds, late, method in sorted(rows):
            clock = f"  {late} ended by the clock" if late else ""
            yield f"    {method:<22} {loss:>9.1e} {error:>9.1e} {seconds:>7.1f}{clock}"


def write_solutions(
    problems: Sequence[str],
    methods: Sequence[str],
    results: Mapping[tuple[str, str], Result],
    path: Path,
) -> None:
    """A row for each problem that has an exact solution, and each method."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        out = csv.writer(stream)
        out.writerow(["problem", "method", "loss", "error", "calls", "seconds", "status"])
        for problem in problems:
            for method in methods:
                end = results[problem, method].outcome
                spent = end.calls, end.seconds, end.status
                out.writerow([problem, method, end.trace.values[-1], end.error, *spent])


def write_csv(board: Board, results: Mapping[tuple[str, str], Result], path: Path) -> None:
    """Everything, a row for each problem, method and target."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        out = csv.writer(stream)
        out.writerow(HEAD)
        for tau, by_method in board.costs.items():
            for method, row in by_method.items():
                for problem, cost in zip(board.problems, row, strict=True):
                    outcome = results[problem, method.split(" +")[0]].outcome
                    f_ref = board.references[problem]
                    run = (outcome.status, outcome.rate)
                    out.writerow([problem, method, tau, f_ref, *astuple(cost), *run])

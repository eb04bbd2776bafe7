"""Race every method and competitor over a fixed set of problems, side by side.

    .venv/bin/python benchmarks/race.py [--quick] [--methods cgmr,lbfgs] [--split rest] [--jobs 2]

Results are kept in OUT/results.jsonl, one line for each method on each problem: a second call runs
only what is missing (`--rerun METHOD` after its code has changed) and prints everything anew. OUT
also gets report.txt, costs.csv and a picture of the performance profiles for each split.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from pathlib import Path

import torch
from race import entrants, profiles, report, store
from race.board import Board, board
from race.catalogue import PROBLEMS, QUICK
from race.heat import SHORT, Rules, heat
from race.learning.paper import missing
from race.learning.pinns import PINNS
from race.limits import ENOUGH, GTOL, SECONDS
from race.problem import BUDGET, DRAW, held_out
from race.statistics import PENALTY
from race.traces import Outcome

from firstish.experiments.workers import processes, sigint_blocked

RULES = f"""\
Unit: oracle calls of the paper (value 1, gradient +1, Hessian-vector product +2), for all alike.
Budget: {BUDGET:,} calls (3,000 for the physics-informed suite, fewer on three problems of the
  paper's, see race/learning/) or {SECONDS:g} s a run. A run also ends at |g| <= {GTOL:g} |g0|,
  or at {ENOUGH:g} (f0 - f*) above a known minimum f*.
Target: f <= f_ref + tau (f0 - f_ref) at an iterate (Moré and Wild's test). f_ref is the known
  minimum that the start leads to (published or in closed form) for classical functions and
  quadratics; for learning problems the least value that any stored run of any method came to.
Failure: charged {PENALTY:g} x the budget; in seconds, that at the seconds per call of its own run.
Tuned methods: the best step size of a grid on each problem; "+grid" adds what the grid spent.
Seconds: of processor time, one thread a process, the objective warmed up; runs shorter than
  {SHORT:g} s are repeated, all methods in turn, and the median is taken.
Held out: the problems for which the SHA-256 of {DRAW!r} and the name is divisible by 3. No method
  is developed on them."""


def main() -> None:
    args = _arguments()
    rules = Rules(
        max_calls=2_000 if args.quick else BUDGET,
        max_seconds=2.0 if args.quick else SECONDS,
        repeats=1 if args.quick else args.repeats,
    )
    problems, methods = _problems(args), _methods(args)
    absent = list(_absent(problems, methods))
    problems = [name for name in problems if not missing(name)]
    methods = [name for name in methods if not entrants.missing_package(name)]
    path = args.out / "results.jsonl"
    if args.rerun:
        known = {k: r for k, r in store.read(path).items() if k.method not in args.rerun}
        path.unlink(missing_ok=True)
        store.write(path, known.values())
    if not args.report_only:
        _race(problems, methods, rules, path, args.jobs)
    sys.stdout.reconfigure(errors="replace")  # names of people, on a terminal without accents
    lines = []
    for line in _report(problems, methods, rules, args, absent):
        print(line, flush=True)
        lines.append(line)
    (args.out / "report.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = {"metavar": "NAMES", "type": lambda text: text.split(","), "default": None}
    parser.add_argument("--methods", help="comma-separated, or main; all by default", **names)
    parser.add_argument("--problems", help="comma-separated, or pinns; all by default", **names)
    parser.add_argument("--split", choices=("all", "rest", "held-out"), default="all")
    parser.add_argument("--quick", action="store_true", help="16 problems, the main methods, small")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--repeats", type=int, default=3, help="of short runs, for the seconds")
    parser.add_argument("--rerun", help="forget the results of these methods first", **names)
    parser.add_argument("--pairs", help="ratios to print, such as cgmr/adam", **names)
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    parser.add_argument("--out", type=Path, default=Path("runs/race"))
    return parser.parse_args()


def _chosen(wanted: Sequence[str], known: Sequence[str], option: str) -> list[str]:
    for name in wanted:
        if name not in known:
            sys.exit(f"{option}: unknown {name!r}. Use some of: {', '.join(known)}.")
    return list(dict.fromkeys(wanted))  # a problem named twice would count twice


def _problems(args: argparse.Namespace) -> list[str]:
    names = args.problems or (QUICK if args.quick else list(PROBLEMS))
    if names == ["pinns"]:
        names = [problem.name for problem in PINNS]
    names = _chosen(names, list(PROBLEMS), "--problems")
    if args.split == "all":
        return names
    return [name for name in names if held_out(name) == (args.split == "held-out")]


def _methods(args: argparse.Namespace) -> list[str]:
    known = list(entrants.ENTRANTS)
    if args.methods is None:
        return [m for m in known if m in entrants.CORE] if args.quick else known
    wanted = entrants.MAIN if args.methods == ["main"] else args.methods
    return _chosen(wanted, known, "--methods")


def _absent(problems: Sequence[str], methods: Sequence[str]) -> Iterator[str]:
    """A sentence for every problem and method that cannot run here."""
    for name in problems:
        if missing(name):
            yield f"{name}. Its data are not here; name their folder with FIRSTISH_DATA."
    for name in methods:
        package = entrants.missing_package(name)
        if package:
            yield f"{name}. Its package {package} is not here: pip install '.[bench]'."


def _key(problem: str, method: str, rules: Rules) -> store.Key:
    setting = entrants.setting(method, PROBLEMS[problem])
    return store.Key(problem, method, setting, rules.budget(problem), rules.max_seconds)


def _race(
    problems: Sequence[str], methods: Sequence[str], rules: Rules, path: Path, jobs: int
) -> None:
    """Run what is not stored yet, and store it problem by problem."""
    stored = store.read(path)
    session = f"{platform.node()} {time.strftime('%FT%T')}"
    waiting = {p: [m for m in methods if _key(p, m, rules) not in stored] for p in problems}
    waiting = {p: todo for p, todo in waiting.items() if todo}
    # The long ones first, so that no process is left alone with one at the end.
    order = sorted(waiting, key=lambda p: PROBLEMS[p].family != "learning")
    begin = time.perf_counter()

    def keep(problem: str, outcomes: dict[str, Outcome], done: int) -> None:
        keys = {m: _key(problem, m, rules) for m in outcomes}
        store.write(path, [store.Result(keys[m], o, session) for m, o in outcomes.items()])
        spent = time.perf_counter() - begin
        print(f"  {done}/{len(order)} {problem} ({spent:.0f} s)", file=sys.stderr, flush=True)

    if jobs == 1:
        torch.set_num_threads(1)
        for done, problem in enumerate(order, 1):
            keep(problem, heat(problem, waiting[problem], rules), done)
        return
    with processes(jobs) as pool:
        with sigint_blocked():
            tasks = {pool.submit(heat, p, waiting[p], rules): p for p in order}
        for done, task in enumerate(as_completed(tasks), 1):
            keep(tasks[task], task.result(), done)


def _report(
    problems: Sequence[str],
    methods: Sequence[str],
    rules: Rules,
    args: argparse.Namespace,
    absent: Sequence[str],
) -> Iterator[str]:
    stored = store.read(args.out / "results.jsonl")
    results = {}
    for problem in problems:
        for method in methods:
            result = stored.get(_key(problem, method, rules))
            if result is not None:
                results[problem, method] = result
    complete = [p for p in problems if all((p, m) in results for m in methods)]
    yield f"torch {torch.__version__}, {platform.machine()}, {args.jobs} processes of one thread"
    yield RULES
    if args.quick:
        yield f"--quick: {rules.max_calls:g} calls or {rules.max_seconds:g} s a run, no repeats."
    for sentence in absent:
        yield f"Skipped: {sentence}"
    if len(complete) < len(problems):
        left = len(problems) - len(complete)
        yield f"Left out, since not every method has run on them: {left} problems."
    if not complete:
        return
    mine = [results[p, m] for p in complete for m in methods]
    apart = [p for p in complete if len({results[p, m].session for m in methods}) > 1]
    if apart:
        yield (
            f"On {len(apart)} problems the seconds come from several sessions, not side by side: "
            "trust them between methods of one session only (--rerun)."
        )
    late = sum(r.outcome.status == "MAX_SECONDS" for r in mine)
    yield f"{len(mine)} results; {late} of their runs were ended by the clock."
    yield "\nDefaults, here on " + complete[0]
    for method in methods:
        yield f"  {method:<18} {entrants.setting(method, PROBLEMS[complete[0]])}"
    yield "\nHeld out of these: " + (", ".join(p for p in complete if held_out(p)) or "none")
    everything = [r for k, r in stored.items() if k.max_seconds == rules.max_seconds]
    whole = board(complete, methods, results, everything)
    report.write_csv(whole, results, args.out / "costs.csv")
    solved = [p for p in complete if PROBLEMS[p].error is not None]
    if solved:
        yield "\nPhysics-informed networks at the end of the budget: loss, relative error, seconds"
        yield from report.solutions(solved, methods, results)
        report.write_solutions(solved, methods, results, args.out / "solutions.csv")
    for title, part in _parts(whole):
        yield from _section(title, part, args)
        chosen = [results[p, m] for p in part.problems for m in methods]
        yield "\nUnit steps"
        yield from report.shares(methods, chosen)


def _parts(whole: Board) -> Iterator[tuple[str, Board]]:
    for title, held in (("rest", False), ("held-out", True)):
        part = whole.of(p for p in whole.problems if held_out(p) == held)
        if part.problems:
            yield title, part


def _section(title: str, part: Board, args: argparse.Namespace) -> Iterator[str]:
    picture = args.out / f"profiles-{title}{'-quick' if args.quick else ''}.png"
    profiles.draw(part, "Not held out" if title == "rest" else "Held out", picture)
    name = "NOT HELD OUT" if title == "rest" else "HELD OUT"
    yield f"\n===== {name}: {len(part.problems)} problems (profiles: {picture})"
    yield f"\nCalls to tau = {report.MAIN_TAU:g}; - is a failure"
    yield from report.per_problem(part)
    yield "\nGeometric means, failures charged"
    yield from report.summary(part)
    yield "\nRatios of geometric means, with 95 % bootstrap intervals over problems"
    yield from report.ratios(part, args.pairs or report.PAIRS)
    for family in ("classical", "quadratic", "learning"):
        some = part.of(p for p in part.problems if PROBLEMS[p].family == family)
        if some.problems:
            yield f"\n--- {name}, {family} only: {len(some.problems)} problems"
            yield from report.ratios(some, args.pairs or report.PAIRS)


if __name__ == "__main__":
    main()

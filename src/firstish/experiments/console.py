"""The terminal: progress of a run, and its tables."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from firstish.experiments.methods import BESIDE, DEFAULT, Choice, parse_choice
from firstish.experiments.observers import Observer
from firstish.experiments.report.summary import GAPS, UNFINISHED, Line, Reached, Summary
from firstish.experiments.tuning import Tuning
from firstish.experiments.winners import HEADERS, Grid
from firstish.experiments.winners import cells as winner_cells
from firstish.interface.display import PLAIN_SECONDS, TERMINAL_SECONDS
from firstish.loop import Limits
from firstish.problems import get
from firstish.result import Row


class Live(Observer):
    """An observer that shows one line per method: objective, gradient norm, calls, time left.

    Where lines cannot be rewritten, as in a pipe, it prints a new one every few seconds.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description:<24}", markup=False),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[shown]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._next = 0.0
        self._moving = False

    def __enter__(self) -> Live:
        # Not into a file or a pipe, nor on a terminal that cannot move its cursor.
        self._moving = self._console.is_interactive and not self._console.quiet
        if self._moving:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._moving:
            self._progress.stop()

    def tuning(self, choice: Choice, rates: Sequence[float], jobs: int) -> None:
        """A grid is about to run."""
        grid = ", ".join(f"{r:g}" for r in rates)
        together = f", {jobs} at a time" if jobs > 1 else ""
        self._console.print(f"tuning {choice.label} over {grid}{together} ...")

    def tuned(self, choice: Choice, tuning: Tuning) -> None:
        """A grid has run."""
        if tuning.winner is None:
            self._console.print(f"  no step size of {choice.name} stayed finite")
            return
        self._console.print(
            f"  {tuning.winner:g} won; the grid took {tuning.oracle_calls:g} oracle calls and "
            f"{tuning.seconds:.1f} s"
        )

    def started(self, choice: Choice, limits: Limits) -> None:
        """A method begins."""
        if not self._moving:
            self._next = time.monotonic() + PLAIN_SECONDS  # a short run needs no such line
        self._tasks[choice.key] = self._progress.add_task(
            choice.label, total=limits.max_oracle_calls, shown=""
        )

    def advanced(self, choice: Choice, row: Row) -> None:
        """A method has taken a step."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (TERMINAL_SECONDS if self._moving else PLAIN_SECONDS)
        shown = f"f {row.value:<10.6g} |g| {row.grad_norm:<8.2e}{row.oracle_calls:>7g} calls"
        if not self._moving:
            self._console.print(f"  {choice.label:<22} {shown} ...", markup=False, soft_wrap=True)
        self._progress.update(self._tasks[choice.key], completed=row.oracle_calls, shown=shown)

    def ended(self, choice: Choice, outcome: dict[str, Any]) -> None:
        """A method has ended, or failed."""
        self._progress.remove_task(self._tasks.pop(choice.key))
        label = choice.label
        if "value" not in outcome:
            self._console.print(f"{label:<24} {outcome['message']}", style="red", markup=False)
            return
        ended = _ended(outcome["status"])
        self._console.print(
            f"{label:<24} f {outcome['value']:<10.8g} |g| {outcome['grad_norm']:<8.2e}"
            f"{outcome['oracle_calls']:>7g} calls{outcome['seconds']:>6.1f} s {ended}",
            soft_wrap=True,
        )

    def note(self, sentence: str) -> None:
        """Print a sentence about the run as a whole, with --quiet too."""
        print(f"firstish: {sentence}", file=sys.stderr, flush=True)


def table(summary: Summary, width: int) -> Table:
    """The methods, the best first; fewer columns where there is no room for all."""
    names = headers(summary)
    wide = width >= 130
    # The cost of tuning is in the table of winners too.
    left_out = () if wide else _EXTRA if width >= 96 else (*_EXTRA, f"gap {GAPS[-1]:.0e}", "tuning")
    kept = [k for k, name in enumerate(names) if name not in left_out]
    lowest = "-" if summary.lowest is None else f"{summary.lowest:.8g}"
    notes = [
        f"lowest f seen {lowest}",
        "gap d: f at most lowest + d (f0 - lowest)",
        "unit: share of steps with step size 1",
    ]
    if wide:
        notes.append("+curv: that also satisfy the curvature condition at 0.9")
    if "tuning" not in left_out:
        notes.append("tuning: calls and seconds of the whole grid")
    if not summary.lowest_is_final:
        notes.append(UNFINISHED)
    title = f"{summary.run['problem']}: oracle calls to targets"
    shown = Table(title=title, caption="; ".join(notes))
    for k in kept:
        # Folded on a narrow terminal: a number cut short would be a wrong one.
        shown.add_column(names[k], justify="right" if k else "left", overflow="fold")
    for line in ranked(summary):
        texts = cells(line)
        shown.add_row(*(texts[k] for k in kept))
    return shown


def headline(summary: Summary) -> str | None:
    """One sentence that compares the default method with the paper's, L-BFGS and tuned Adam.

    The target is the tolerance, or else the tightest gap that the default met; where the lowest f
    is of an unfinished run, it is the lowest f of each.
    """
    lines = {line.key: line for line in summary.lines}
    mine = lines.get(DEFAULT)
    if mine is None:
        return None
    if mine.to_gtol.oracle_calls is None and not summary.lowest_is_final:
        return _lowest(summary, lines)
    targets = [(f"|g| ≤ {summary.run['gtol']:g}", [line.to_gtol for line in summary.lines])]
    for k in reversed(range(len(GAPS))):
        targets.append((f"gap {GAPS[k]:.0e}", [line.to_gap[k] for line in summary.lines]))
    for target, all_reached in targets:
        reached = dict(zip(lines, all_reached, strict=True))
        calls = reached[DEFAULT].oracle_calls
        if calls is None:
            continue
        told = [f"{mine.label}, the default, took {calls:g} oracle calls to {target}"]
        for line in _beside(summary, lines):
            other = reached[line.key].oracle_calls
            took = f"more than {summary.run['budget']:g}" if other is None else f"{other:g}"
            told.append(f"{line.label} {took}{_tuning_cost(line)}")
        return "; ".join(told)
    return None


def _lowest(summary: Summary, lines: dict[str, Line]) -> str:
    """The headline of a run that is not finished: who met the tolerance, and the lowest values."""
    gtol = f"met |g| ≤ {summary.run['gtol']:g}"
    met = [f"{o.label} {gtol} after {o.to_gtol.oracle_calls:g} calls" for o in summary.converged]
    told = [
        f"{'; '.join(met) or f'No method {gtol}'}; within {summary.run['budget']:g} oracle calls "
        f"{lines[DEFAULT].label}, the default, came down to f = {_value(lines[DEFAULT])}"
    ]
    told += [f"{line.label} {_value(line)}{_tuning_cost(line)}" for line in _beside(summary, lines)]
    return "; ".join(told)


def _value(line: Line) -> str:
    return "-" if line.best is None else f"{line.best:.6g}"


def _beside(summary: Summary, lines: dict[str, Line]) -> list[Line]:
    """The paper's method for this problem, L-BFGS and Adam, if they were run."""
    keys = (get(summary.run["problem"]).scaling.lower(), *BESIDE)
    return [lines[key] for key in keys if key in lines]


def _tuning_cost(line: Line) -> str:
    tuning = line.tuning
    return "" if tuning is None else f" and {tuning['oracle_calls']:g} calls to tune it"


def winners(problem: str, grids: Sequence[Grid]) -> Table:
    """The table of winning step sizes."""
    shown = Table(title=f"{problem}: step sizes tuned")
    for k, name in enumerate(HEADERS):
        shown.add_column(name, justify="right" if k > 3 else "left", overflow="fold")
    for grid in grids:
        shown.add_row(*winner_cells(problem, grid))
    return shown


def trials(problem: str, tuning: Tuning) -> Table:
    """Each step size of a grid and how it ended; the winner has a star."""
    title = f"{problem}: {parse_choice(tuning.method).label}"
    shown = Table(title=title)
    for name in ("step size", "final objective", "ended", "oracle calls", "seconds"):
        shown.add_column(name, overflow="fold")
    for trial in tuning.trials:
        value = "-" if trial.value is None else f"{trial.value:.8g}"
        name = f"{trial.rate:g}" + (" *" if trial.rate == tuning.winner else "")
        ended = _ended(trial.status)
        shown.add_row(name, value, ended, f"{trial.oracle_calls:g}", f"{trial.seconds:.1f}")
    return shown


_EXTRA = (f"gap {GAPS[0]:.0e}", "calls", "step size", "+curv", "SPC/LPC/NC")


def headers(summary: Summary) -> list[str]:
    """The column names."""
    gaps = [f"gap {gap:.0e}" for gap in GAPS]
    tolerance = f"|g| ≤ {summary.run['gtol']:g}"
    rest = ["calls", "sec", "step size", "unit", "+curv", "SPC/LPC/NC", "tuning"]
    return ["method", *gaps, tolerance, *rest]


def ranked(summary: Summary) -> list[Line]:
    """Lines by how soon they met the tolerance, or else the tightest target they met."""

    def rank(line: Line) -> tuple[float, int, float]:
        met = [r.oracle_calls for r in line.to_gap if r.oracle_calls is not None]
        end = line.to_gtol.oracle_calls
        return math.inf if end is None else end, -len(met), met[-1] if met else 0.0

    return sorted(summary.lines, key=rank)


def cells(line: Line) -> list[str]:
    """One line of the table, as text."""
    return [
        line.label,
        *(_calls(r) for r in line.to_gap),
        _calls(line.to_gtol),
        f"{line.outcome['oracle_calls']:g}" if "value" in line.outcome else "failed",
        f"{line.outcome['seconds']:.1f}" if "value" in line.outcome else "",
        "" if line.rate is None else f"{line.rate:g}",
        _percent(line.unit_steps),
        _percent(line.curvature_condition),
        "/".join(str(n) for n in line.cases.values()),
        ""
        if line.tuning is None
        else f"{line.tuning['oracle_calls']:g}, {line.tuning['seconds']:.1f} s",
    ]


def _ended(status: str) -> str:
    """How a run ended, from the name of its status, in a word or two."""
    return "budget spent" if status.startswith("MAX_") else status.lower().replace("_", " ")


def _calls(reached: Reached) -> str:
    return "-" if reached.oracle_calls is None else f"{reached.oracle_calls:g}"


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.1f}%".replace(".0%", "%")

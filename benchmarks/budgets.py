"""A claim of the paper at two budgets: one verdict, and the calls at which methods cross.

A claim is judged three times by the words of `claims.py`: on a short run with as many rows as we
could afford, on a run with few rows and the whole budget of the paper, and on the first part of the
latter, cut where the short run ended. The third tells whether the budget or the size made the
difference. `verdict` was fixed, and committed, before any run at the whole budget was looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from claims import Line, Rows

from firstish.experiments.report.summary import Summary, summary_of
from firstish.result import Status

RULES = {
    "holds": "at the whole budget, and in the short run if there was one that decides it",
    "holds only late": "at the whole budget, but not in the short run, and the whole run, cut at "
    "the calls of the short one, does not contradict that: the budget makes the difference",
    "depends on the size": "the short run and the whole run disagree, and do so already at the "
    "calls of the short one: the budget is not what makes the difference, but the number of rows, "
    "or the step sizes that were tuned for each run",
    "does not hold": "at the whole budget, and it is not a case of *depends on the size*",
    "cannot be judged": "there is no run at the whole budget, or it does not decide the claim",
}

TIE = 1e-6
"""Of the decrease from the start to the lowest f: a smaller difference of two methods is a tie."""


def verdict(short: bool | None, early: bool | None, whole: bool | None) -> str:
    """The word of `RULES` for a claim.

    Args:
        short: whether it holds in the short run; None if that did not decide, or was not made.
        early: in the whole run, cut at the calls of the short one.
        whole: in the whole run.
    """
    if whole is None:
        return "cannot be judged"
    if short is None or short is whole:
        return "holds" if whole else "does not hold"
    if early is not None and early is not short:
        return "depends on the size"
    return "holds only late" if whole else "does not hold"


def cut(summary: Summary, calls: float) -> Summary:
    """The run as it would have been with a budget of so many calls; step sizes tuned for all."""
    rows = {key: _until(rows, calls) for key, rows in summary.rows.items()}
    outcomes = {
        line.key: {
            **line.outcome,
            "oracle_calls": rows[line.key][-1]["oracle_calls"],
            "seconds": rows[line.key][-1]["seconds"],
            "value": rows[line.key][-1]["value"],
        }
        for line in summary.lines
        if rows.get(line.key)
    }
    tunings = {line.key: line.tuning for line in summary.lines}
    return summary_of(summary.run, outcomes, rows, tunings)


def _until(rows: Rows, calls: float) -> Rows:
    """The rows whose point had been reached by then; of the last one, not the step from it."""
    return [row for row in rows if row["oracle_calls"] <= calls] or rows[:1]


@dataclass(frozen=True, slots=True)
class Crossing:
    """Which of two methods is lower at the end of the calls that both spent, and since when.

    Args:
        other: the label of the other method.
        ahead: True if ours is lower in the end, False if the other; None if they never differed.
        calls: from here on; None if the lead never changed.
        met: the calls at which the one that was passed had met the tolerance, if before that.
        changes: how often the lead changed.
        level: True if they differ no more at the end; `ahead` was so before.
    """

    other: str
    ahead: bool | None
    calls: float | None
    met: float | None = None
    changes: int = 0
    level: bool = False

    def sentence(self, ours: str) -> str:
        """In words."""
        level = f"{ours} and {self.other} end level"
        if self.ahead is None:
            return level
        first, second = (ours, self.other) if self.ahead else (self.other, ours)
        if self.calls is None:
            led = f"{first} is ahead of {second} throughout"
            return f"{level}; until then {led}" if self.level else led
        last = f", the last of {self.changes} changes of the lead" if self.changes > 1 else ""
        since = f"after {self.calls:,.0f} calls{last}"
        if self.level:
            return f"{level}; until then {first} is ahead {since}"
        if self.met is None:
            return f"{first} passes {second} {since}"
        return (
            f"{second} met the tolerance after {self.met:,.0f} calls, and {first} passed its f "
            f"after {self.calls:,.0f}{last}"
        )


def crossing(ours: Line, other: Line, rows: dict[str, Rows]) -> Crossing:
    """Where the lowest f so far of two methods crosses for the last time.

    A method that met the tolerance, or came to another end of its own, keeps its lowest f; of
    others, only the calls that both spent are compared. Differences of up to `TIE` change no lead,
    and two methods that end so are level.
    """
    curves = [_lowest(rows[line.key]) for line in (ours, other)]
    ends = [c[-1][0] for c, line in zip(curves, (ours, other), strict=True) if not _ended(line)]
    end = min(ends, default=max(c[-1][0] for c in curves))
    start = max(c[0][1] for c in curves)
    tie = TIE * (start - min(c[-1][1] for c in curves))
    ahead: bool | None = None
    changes: list[float] = []
    level = True
    for calls, x, y in _together(*curves):
        if calls > end:
            break
        level = abs(x - y) <= tie
        if not level and (x < y) is not ahead:
            changes += [] if ahead is None else [calls]
            ahead = x < y
    changed = changes[-1] if changes else None
    met = (other if ahead else ours).to_gtol.oracle_calls
    late = changed is not None and met is not None and met < changed
    return Crossing(other.label, ahead, changed, met if late else None, len(changes), level)


def _ended(line: Line) -> bool:
    """True if the budget was not what ended it."""
    budget = Status.MAX_ORACLE_CALLS.name
    return line.to_gtol.oracle_calls is not None or line.outcome.get("status", budget) != budget


def _lowest(rows: Rows) -> list[tuple[float, float]]:
    """Calls and the lowest f so far, where it fell."""
    found: list[tuple[float, float]] = []
    for row in rows:
        if row["value"] is not None and (not found or row["value"] < found[-1][1]):
            found.append((row["oracle_calls"], row["value"]))
    last = rows[-1]["oracle_calls"]
    return found if found[-1][0] == last else [*found, (last, found[-1][1])]


def _together(
    a: list[tuple[float, float]], b: list[tuple[float, float]]
) -> Iterator[tuple[float, float, float]]:
    """Calls, and the value of each curve by then, wherever one of them falls."""
    i = j = 0
    while True:
        yield max(a[i][0], b[j][0]), a[i][1], b[j][1]
        following = [c[k + 1][0] for c, k in ((a, i), (b, j)) if k + 1 < len(c)]
        if not following:
            return
        at = min(following)
        i += i + 1 < len(a) and a[i + 1][0] <= at
        j += j + 1 < len(b) and b[j + 1][0] <= at

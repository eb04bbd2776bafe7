"""The summary of a run: its rows, read once, and the numbers of the table."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from firstish.experiments.methods import parse_choice
from firstish.experiments.storage import files
from firstish.experiments.storage.ends import interrupted, read_ends
from firstish.experiments.storage.rows import Mark, read_rows

GAPS = (1e-2, 1e-4, 1e-6)
"""Targets: f at most f* + gap (f0 - f*), f* the lowest value any method of the run reached."""

UNFINISHED = "no method met the tolerance near the lowest f: gaps are to an unfinished run"
"""What has to be said of the gaps then."""

ETA = 0.9
"""The curvature condition is judged at this eta."""


@dataclass(frozen=True, slots=True)
class Reached:
    """When a method first met a target; None if it did not."""

    oracle_calls: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One method in the table."""

    key: str
    label: str
    rate: float | None
    outcome: dict[str, Any]
    tuning: dict[str, Any] | None
    best: float | None
    to_gap: tuple[Reached, ...]
    to_gtol: Reached
    unit_steps: float | None  # fraction of the steps
    curvature_condition: float | None  # fraction of the steps that are unit and satisfy it too
    backtracks: float | None  # per iteration
    cases: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The records of a run folder, and the numbers computed from them."""

    run: dict[str, Any]
    lowest: float | None
    lines: list[Line]
    rows: dict[str, list[dict[str, Any]]]
    note: str = ""  # what the user should know of the records

    @property
    def converged(self) -> list[Line]:
        """The methods that met the tolerance."""
        return [line for line in self.lines if line.to_gtol.oracle_calls is not None]

    @property
    def lowest_is_final(self) -> bool:
        """True if one of them came within the tightest gap of the lowest f."""
        return any(line.to_gap[-1].oracle_calls is not None for line in self.converged)


def summarise(folder: Path, *, unfinished: bool = False) -> Summary:
    """The summary of a run folder; `unfinished` includes methods that have not ended."""
    run = files.read_json(folder / "run.json", "problem", "methods", "budget", "gtol")
    ends = read_ends(folder)
    rows = _rows(folder, ends.methods, ends.records)
    rest = [key for key in run["methods"] if key not in ends.methods]
    begun = {k: found for k, found in _rows(folder, rest, {}).items() if found and unfinished}
    outcomes = ends.methods | {key: interrupted(folder, key, begun[key][-1]) for key in begun}
    tunings = {key: _tuning(folder, key) for key in outcomes}
    note = " ".join(filter(None, (ends.note, _missing(rest, begun))))
    return summary_of(run, outcomes, {**rows, **begun}, tunings, note)


def _missing(rest: list[str], begun: Container[str]) -> str:
    """A sentence on the methods that have not ended, if there are some."""
    if not rest:
        return ""
    told = ["The run is incomplete."]
    for state, keys in (
        ("Interrupted, shown as far as recorded", [key for key in rest if key in begun]),
        ("Not ended", [key for key in rest if key not in begun]),
    ):
        if keys:
            told.append(f"{state}: {', '.join(parse_choice(key).label for key in keys)}.")
    return " ".join([*told, "To go on, repeat its command with --resume."])


def summary_of(
    run: dict[str, Any],
    outcomes: dict[str, dict[str, Any]],
    rows: dict[str, list[dict[str, Any]]],
    tunings: dict[str, dict[str, Any] | None],
    note: str = "",
) -> Summary:
    """The summary of records that have been read: how each method ended, its rows, its grid."""
    lowest = _lowest([r for rs in rows.values() for r in rs])
    lines = [
        _line(key, outcome, rows.get(key, []), run["gtol"], lowest, tunings.get(key))
        for key, outcome in outcomes.items()
    ]
    return Summary(run=run, lowest=lowest, lines=lines, rows=rows, note=note)


def digest(summary: Summary) -> dict[str, Any]:
    """The table as plain values, ready for JSON: the run, the lowest value, a line per method."""
    return {
        "run": summary.run,
        "lowest": summary.lowest,
        "gaps": GAPS,
        "methods": [asdict(line) for line in summary.lines],
    }


def _lowest(rows: list[dict[str, Any]]) -> float | None:
    """The lowest finite value."""
    return min((r["value"] for r in rows if math.isfinite(r["value"])), default=None)


def _rows(
    folder: Path, keys: Iterable[str], written: dict[str, Mark]
) -> dict[str, list[dict[str, Any]]]:
    """The rows of each method that has any, their checksums verified."""
    found = {}
    for key in keys:
        path = folder / f"{key}.jsonl"
        if key in written:
            found[key] = read_rows(path, written[key])
        elif path.exists():  # of an older version, without the end of its rows
            found[key] = read_rows(path)
    return found


def _tuning(folder: Path, key: str) -> dict[str, Any] | None:
    path = folder / "tuning" / f"{key}.json"
    if not path.exists():
        return None
    return files.read_json(path, "method", "winner", "oracle_calls", "seconds", "trials")


def _line(
    key: str,
    outcome: dict[str, Any],
    rows: list[dict[str, Any]],
    gtol: float,
    lowest: float | None,
    tuning: dict[str, Any] | None,
) -> Line:
    steps = [r for r in rows if r["step_size"] is not None]
    curved = [r for r in steps if r["curvature"] is not None]
    scaled = [r for r in steps if r["curvature"] is not None or r["scaling"] is not None]
    searched = [r for r in steps if r["trials"] is not None]
    gaps = (
        ()
        if lowest is None or not rows
        else tuple(
            _first(rows, "value", lowest + gap * (rows[0]["value"] - lowest)) for gap in GAPS
        )
    )
    return Line(
        key=key,
        label=parse_choice(key).label,
        rate=outcome.get("rate"),
        outcome=outcome,
        tuning=tuning,
        best=_lowest(rows),
        to_gap=gaps or tuple(Reached(None, None) for _ in GAPS),
        to_gtol=_first(rows, "grad_norm", gtol),
        unit_steps=_fraction(scaled, _is_unit),
        curvature_condition=_fraction(scaled, _is_unit_and_curved),
        backtracks=sum(max(0, r["trials"] - 1) for r in searched) / len(searched)
        if searched
        else None,
        cases={c: sum(r["curvature"] == c for r in curved) for c in ("SPC", "LPC", "NC")}
        if curved
        else {},
    )


def _is_unit(row: dict[str, Any]) -> bool:
    return bool(row["step_size"] == 1)


def _is_unit_and_curved(row: dict[str, Any]) -> bool:
    ratio = row["slope_ratio"]
    return _is_unit(row) and ratio is not None and bool(ratio <= ETA)


def _fraction(rows: list[dict[str, Any]], test: Any) -> float | None:
    return sum(map(test, rows)) / len(rows) if rows else None


def _first(rows: list[dict[str, Any]], field: str, target: float) -> Reached:
    for row in rows:
        if row[field] <= target:
            return Reached(row["oracle_calls"], row["seconds"])
    return Reached(None, None)

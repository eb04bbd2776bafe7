"""How the methods of a run ended: `summary.json`, or what the records tell if that is lost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from firstish.experiments.methods import parse_choice
from firstish.experiments.storage import files
from firstish.experiments.storage.rows import Mark, end_of, read_rows

UNKNOWN = "UNKNOWN"
"""The status of a method that ended, in a way that its records do not tell."""

INTERRUPTED = "INTERRUPTED"
"""The status of a method that has not ended."""


class Ends(NamedTuple):
    """The methods that have ended.

    Attributes:
        methods: their outcomes by key.
        records: where their rows end.
        note: a sentence if this was rebuilt from the records, else empty.
    """

    methods: dict[str, dict[str, Any]]
    records: dict[str, Mark]
    note: str = ""


def read_ends(folder: Path, *, rebuild: bool = True) -> Ends:
    """The ends of the methods of a run; rebuilt from the records if `summary.json` is damaged.

    Args:
        folder: the run folder.
        rebuild: rebuild it also if it is missing. Without, that counts as a run in which no method
            has ended, unless the records of all of them are complete.
    """
    path = folder / "summary.json"
    if path.exists():
        try:
            found = files.read_json(path, "methods")
        except files.DamagedError as error:
            return _rebuilt(folder, error.fact)
        records = {key: Mark(*mark) for key, mark in found.get("records", {}).items()}
        return Ends(found["methods"], records)
    if not (folder / "run.json").exists():
        return Ends({}, {})
    ends = _rebuilt(folder, f"{path} is missing.")
    wanted = files.read_json(folder / "run.json", "methods")["methods"]
    if not ends.methods or not (rebuild or set(ends.methods) >= set(wanted)):
        return Ends({}, {})
    return ends


def write_ends(folder: Path, ends: Ends, order: list[str]) -> None:
    """Write `summary.json`, with the methods in this order."""

    def ordered(found: Mapping[str, object]) -> dict[str, object]:
        return {key: found[key] for key in order if key in found}

    summary = {"methods": ordered(ends.methods), "records": ordered(ends.records)}
    files.write_json(folder / "summary.json", summary)


def _rebuilt(folder: Path, fact: str) -> Ends:
    run = files.read_json(folder / "run.json", "methods")
    ends = Ends({}, {}, f"{fact} How the methods ended is read from their records.")
    for key in run["methods"]:
        path = folder / f"{key}.jsonl"
        if not path.exists() or (folder / "checkpoints" / f"{key}.npz").exists():
            continue  # it failed, or has not ended
        rows = read_rows(path)
        if rows and rows[-1]["step_size"] is None:  # the last row of a run has no step
            ends.methods[key] = _outcome(folder, key, run, rows[-1])
            ends.records[key] = end_of(path)
    return ends


def _outcome(
    folder: Path, key: str, run: Mapping[str, Any], last: Mapping[str, Any]
) -> dict[str, Any]:
    """The outcome of a method, from its last row."""
    status, message = UNKNOWN, "The record of how it ended was lost."
    if last["grad_norm"] <= run.get("gtol", 0.0):
        status, message = "CONVERGED", "The gradient norm is at most gtol."
    elif last["oracle_calls"] >= run.get("budget", math.inf):
        status, message = "MAX_ORACLE_CALLS", "The budget of oracle calls is spent."
    return _numbers(folder, key, status, message, last)


def interrupted(folder: Path, key: str, last: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome so far of a method that has not ended, from its last row."""
    return _numbers(folder, key, INTERRUPTED, "It was interrupted; --resume goes on.", last)


def _numbers(
    folder: Path, key: str, status: str, message: str, last: Mapping[str, Any]
) -> dict[str, Any]:
    names = ("oracle_calls", "passes", "seconds", "value", "grad_norm")
    return {
        "status": status,
        "message": message,
        "iterations": last["iteration"],
        **{name: last[name] for name in names},
        "rate": _rate(folder, key),
    }


def _rate(folder: Path, key: str) -> float | None:
    """The step size that was given or tuned; None if theory gave it, or there is none."""
    choice = parse_choice(key)
    tuned = folder / "tuning" / f"{choice.name}.json"
    if isinstance(choice.rate, float):
        return choice.rate
    return files.read_json(tuned, "winner")["winner"] if tuned.exists() else None

"""The sessions of a run, in run.json: versions, machine, and the first row of each method.

A run may be resumed with other versions or on another machine. Its numbers then differ in their
last bits, and its seconds are not comparable, so the page says so.
"""

from __future__ import annotations

import platform
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

import firstish
from firstish.experiments.storage import files


def versions() -> dict[str, Any]:
    """Versions and machine: what the numbers depend on besides the settings."""
    return {
        "firstish": firstish.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
    }


def now() -> str:
    """The time as records have it."""
    return time.strftime("%FT%T%z")


def begin(folder: Path) -> str:
    """Add this session to run.json; a sentence if it differs from the one before, or ''."""
    path = folder / "run.json"
    run = files.read_json(path)
    session = {"started": now(), **versions(), "from": {}}
    before = run.get("sessions", ())
    files.write_json(path, {**run, "sessions": [*before, session]})
    differs = _differences(_last(run), session)
    if not differs:
        return ""
    return f"{folder} goes on with {differs}: its records will be mixed, and its page says so."


def note_method(folder: Path, key: str, iteration: int) -> None:
    """Write to run.json at which row this session begins the records of a method."""
    path = folder / "run.json"
    run = files.read_json(path)
    run["sessions"][-1]["from"][key] = iteration
    files.write_json(path, run)


def changes(run: dict[str, Any]) -> list[str]:
    """A sentence for each session that differs from the one before.

    >>> changes({"torch": "2.5", "sessions": [
    ...     {"torch": "2.5", "started": "2026-01-01"},
    ...     {"torch": "2.6", "started": "2026-01-02", "from": {"cgmr": 30}}]})
    ['From 2026-01-02 on with torch 2.6 (before: 2.5): cgmr from row 30.']
    """
    found = []
    for before, session in pairwise(run.get("sessions", [])):
        if differs := _differences(before, session):
            rows = [f"{k} from row {i}" for k, i in session.get("from", {}).items()]
            made = f": {', '.join(rows)}" if rows else ""
            found.append(f"From {session['started']} on with {differs}{made}.")
    return found


def every(run: dict[str, Any], name: str) -> Any:
    """What all sessions had as the version of that name, as text; else the run's own."""
    found = dict.fromkeys(str(s[name]) for s in run.get("sessions", ()) if name in s)
    return ", then ".join(found) or run[name]


def _last(run: dict[str, Any]) -> dict[str, Any]:
    """The session before; runs of older versions have the first one's words alone."""
    return {**run, **(run.get("sessions") or [{}])[-1]}


def _differences(before: dict[str, Any], after: dict[str, Any]) -> str:
    """`torch 2.6 (before: 2.5), threads 2 (before: 1)`."""
    names = [n for n in versions() if n in before and n in after and before[n] != after[n]]
    return ", ".join(f"{n} {after[n]} (before: {before[n]})" for n in names)


def _processor() -> str:
    """The processor's model; what seconds and last bits depend on."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()

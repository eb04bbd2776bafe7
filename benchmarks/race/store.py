"""Results, a JSON line for each method on each problem; the last one of its kind counts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from race.traces import Outcome


@dataclass(frozen=True, slots=True)
class Key:
    """What a result is the result of."""

    problem: str
    method: str
    setting: str
    budget: float
    max_seconds: float


@dataclass(frozen=True, slots=True)
class Result:
    """An outcome, and the session in which it was measured.

    Seconds of different sessions were not measured side by side.
    """

    key: Key
    outcome: Outcome
    session: str


def write(path: Path, results: Iterable[Result]) -> None:
    """Append."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        for result in results:
            key = {name: getattr(result.key, name) for name in Key.__slots__}
            line = {**key, "session": result.session, "outcome": result.outcome.to_dict()}
            stream.write(json.dumps(line) + "\n")


def read(path: Path) -> dict[Key, Result]:
    """All results; a line that was cut short by a kill is left out."""
    found: dict[Key, Result] = {}
    if not path.exists():
        return found
    with path.open(encoding="utf-8") as stream:
        for text in stream:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            key = Key(**{name: line[name] for name in Key.__slots__})
            found[key] = Result(key, Outcome.from_dict(line["outcome"]), line["session"])
    return found

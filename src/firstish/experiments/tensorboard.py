"""The records as TensorBoard events, written while the run goes on.

The events of a method are always those of its records: they are written anew from the rows on disk
when the method begins or goes on, so that neither an interruption nor a step taken twice leaves a
point too many.
"""

from __future__ import annotations

import importlib
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from firstish.experiments.methods import Choice
from firstish.experiments.observers import Observer
from firstish.experiments.storage import files
from firstish.experiments.storage.ends import read_ends
from firstish.experiments.storage.rows import read_rows
from firstish.interface.extras import install
from firstish.result import Row
from firstish.scaling import Curvature

CASES = {Curvature.SPC.name: 1, Curvature.LPC.name: 0, Curvature.NC.name: -1}
"""A curvature case as the number TensorBoard shows."""

TAGS = {
    "value": "objective",
    "grad_norm": "gradient_norm",
    "scale": "scale",
    "step_size": "step_size",
    "curvature": "curvature",
}
"""Field of a row, and what TensorBoard calls it."""


def load() -> Any:
    """torch's writer of events, or an error that says what to install."""
    try:
        # Imported here: the command line works without it.
        return importlib.import_module("torch.utils.tensorboard").SummaryWriter
    except ImportError as error:
        raise ImportError(
            "--tensorboard needs a package that is not installed: "
            f"{install('tensorboard')} ({error})."
        ) from error


class TensorBoard(Observer):
    """An observer that writes DIR/tensorboard/METHOD.

    The step axis is oracle calls. The wall time of an event is that of its row, counted from when
    the run was started, so that TensorBoard's relative axis shows the seconds of the records.

    Args:
        folder: the run folder.
        flush_seconds: how soon a point shall be visible.
    """

    def __init__(self, folder: Path, flush_seconds: int = 5) -> None:
        self._kind = load()
        self._folder = folder
        self._flush_seconds = flush_seconds
        self._writer: Any = None
        self._start = 0.0
        self._last = -1

    def __enter__(self) -> TensorBoard:
        """Bring the methods that are already done up to date."""
        for key in read_ends(self._folder, rebuild=False).methods:
            self._finish(key)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def advanced(self, choice: Choice, row: Row) -> None:
        """A method has taken a step."""
        if self._writer is None:
            self._open(choice.key, before=row.iteration)
        self._write(row.to_dict())

    def ended(self, choice: Choice, outcome: dict[str, Any]) -> None:
        """A method has ended, or failed; its records are complete."""
        self._finish(choice.key)

    def _open(self, key: str, before: int) -> None:
        """Begin the events of a method anew, with the rows it has kept from an earlier run."""
        place = self._folder / "tensorboard" / key
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        started = files.read_json(self._folder / "run.json")["started"]
        self._start = datetime.strptime(started, "%Y-%m-%dT%H:%M:%S%z").timestamp()
        self._writer = self._kind(str(place), flush_secs=self._flush_seconds)
        self._last = -1
        self._catch_up(key, before)

    def _catch_up(self, key: str, before: int | None = None) -> None:
        records = self._folder / f"{key}.jsonl"
        for row in read_rows(records) if records.exists() else ():
            if self._last < row["iteration"] and (before is None or row["iteration"] < before):
                self._write(row)

    def _finish(self, key: str) -> None:
        """All rows on disk, and no more to come."""
        if self._writer is None:
            self._open(key, before=0)
        self._catch_up(key)
        self._close()

    def _write(self, row: dict[str, Any]) -> None:
        self._last = row["iteration"]
        for field, tag in TAGS.items():
            shown = CASES.get(row[field]) if field == "curvature" else row[field]
            if shown is not None:
                step, wall = round(row["oracle_calls"]), self._start + row["seconds"]
                self._writer.add_scalar(tag, shown, step, walltime=wall)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

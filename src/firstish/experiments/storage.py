"""A run folder on disk: rows as JSON lines, checkpoints as npz, everything else as JSON.

Nothing is pickled. Whatever must not be torn is written beside its place and renamed into it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from firstish.loop import Snapshot
from firstish.objectives.base import Meter
from firstish.records import Row


def write_json(path: Path, content: object) -> None:
    """Replace the file as a whole."""
    _replace(path, (json.dumps(content, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    """The inverse of `write_json`."""
    return json.loads(path.read_text())


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


class RowWriter:
    """Rows appended to a file, one JSON object a line."""

    def __init__(self, path: Path, keep: int) -> None:
        """Keep the first `keep` bytes of what is there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = path.open("r+b" if path.exists() else "w+b")
        self._file.truncate(keep)
        self._file.seek(keep)

    def write(self, row: Row) -> None:
        """Append one row."""
        self._file.write((json.dumps(row.to_dict()) + "\n").encode())

    def sync(self) -> int:
        """Bring all rows to the disk; how many bytes they are."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def save(self, path: Path, run: Snapshot) -> None:
        """A checkpoint of the run, all rows so far belonging to it."""
        save_checkpoint(path, run, self.sync())

    def close(self) -> None:
        """Flush and close."""
        self.sync()
        self._file.close()


class NoRows:
    """The same for a process that does not write."""

    def write(self, row: Row) -> None:
        """Nothing."""

    def save(self, path: Path, run: Snapshot) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; a torn last line, which a crash may leave, is left out."""
    rows = []
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            rows.append(json.loads(line))
    return rows


def save_checkpoint(path: Path, run: Snapshot, offset: int) -> None:
    """Write all that `load_checkpoint` needs; `offset` is the length of the rows so far."""
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "x": _array(run.x),
        "random": torch.get_rng_state().numpy(),
    }
    plain: dict[str, object] = {}
    for field in dataclasses.fields(run.state):
        _pack(f"state.{field.name}", getattr(run.state, field.name), arrays, plain)
    _pack("point", run.inherited, arrays, plain)
    header = {
        "iterations": run.iterations,
        "oracle_calls": run.spent.oracle_calls,
        "passes": run.spent.passes,
        "seconds": run.seconds,
        "offset": offset,
        "plain": plain,
    }
    beside = path.with_name(path.name + ".part")
    beside.parent.mkdir(parents=True, exist_ok=True)
    with beside.open("wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def load_checkpoint(path: Path, state: Any, like: Tensor) -> tuple[Snapshot, int]:
    """The run to go on with and the length of its rows.

    Args:
        path: what `save_checkpoint` wrote.
        state: a state of the same method, as a pattern.
        like: a tensor of the dtype and device of x.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(str(arrays["header"]))
    torch.set_rng_state(torch.from_numpy(arrays["random"]))
    names = [f.name for f in dataclasses.fields(state)]
    plain = header["plain"]
    fields = {n: _unpack(f"state.{n}", arrays, plain, like) for n in names}
    run = Snapshot(
        _tensor(arrays["x"], like),
        dataclasses.replace(state, **fields),
        header["iterations"],
        Meter(header["oracle_calls"], header["passes"]),
        header["seconds"],
        tuple(_unpack(f"point.{k}", arrays, plain, like) for k in range(plain["point"]["tuple"])),
    )
    return run, header["offset"]


def _pack(
    name: str, value: object, arrays: dict[str, np.ndarray[Any, Any]], plain: dict[str, object]
) -> None:
    if isinstance(value, Tensor):
        arrays[name] = _array(value)
    elif isinstance(value, tuple):
        plain[name] = {"tuple": len(value)}
        for k, item in enumerate(value):
            _pack(f"{name}.{k}", item, arrays, plain)
    elif value is None or isinstance(value, bool | int | float | str):
        plain[name] = value
    else:
        raise TypeError(
            f"The method's {name} is a {type(value).__name__}. "
            "A state holds tensors, numbers and tuples of them."
        )


def _unpack(
    name: str, arrays: dict[str, np.ndarray[Any, Any]], plain: dict[str, Any], like: Tensor
) -> object:
    if name in arrays:
        return _tensor(arrays[name], like)
    value = plain[name]
    if isinstance(value, dict):
        return tuple(_unpack(f"{name}.{k}", arrays, plain, like) for k in range(value["tuple"]))
    return value


def _array(value: Tensor) -> np.ndarray[Any, Any]:
    return value.detach().cpu().numpy()


def _tensor(value: np.ndarray[Any, Any], like: Tensor) -> Tensor:
    # In memory of torch's own: where an array begins may decide how BLAS sums.
    return torch.from_numpy(value).clone().to(like.device)

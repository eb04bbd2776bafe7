"""Checkpoints of a method: x, its state, the random state and the counters, as an npz file.

The last 64 bytes, which the zip format takes for a comment, are the SHA-256 of all before them. The
checkpoint before the last is kept beside it: KEY.npz and KEY.npz.before.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile

import numpy as np
import torch
from torch import Tensor

from firstish.experiments.storage.files import DamagedError, StorageError, named, replacing, sync
from firstish.experiments.storage.rows import Mark, check_rows
from firstish.loop import Snapshot
from firstish.objectives.base import Meter

_DIGEST, _PIECE = 64, 1 << 20

Arrays = dict[str, np.ndarray[Any, Any]]


def save(path: Path, run: Snapshot, rows: Mark) -> None:
    """Write a checkpoint; the one on disk becomes KEY.npz.before.

    Args:
        path: where.
        run: the run.
        rows: where its rows end.
    """
    arrays: Arrays = {"x": _array(run.x), "random": torch.get_rng_state().numpy()}
    plain: dict[str, object] = {}
    for field in dataclasses.fields(run.state):
        _pack(f"state.{field.name}", getattr(run.state, field.name), arrays, plain)
    _pack("point", run.inherited, arrays, plain)
    header = {
        "iterations": run.iterations,
        "oracle_calls": run.spent.oracle_calls,
        "passes": run.spent.passes,
        "seconds": run.seconds,
        "value_before": run.value_before,
        "first_norm": run.first_norm,
        "lowest_norm": run.lowest_norm,
        "idle": run.idle,
        "rows": rows,
        "plain": plain,
    }
    with replacing(path) as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]
        _seal(file)
        sync(file)  # before the one on disk is moved
        if path.exists():
            path.replace(_before(path))


def usable(path: Path, records: Path) -> tuple[Path | None, str]:
    """The checkpoint to resume from, and what the user should know about it.

    The last one, or the one before if the last is damaged or its rows are; None if there is none. A
    damaged one is put aside as KEY.npz.damaged.

    Args:
        path: where the last one is.
        records: the method's rows.
    """
    try:
        if path.exists():
            _check(path, records)
            return path, ""
    except DamagedError as error:
        if not _before(path).exists():
            raise
        _check(_before(path), records)
        path.replace(path.with_name(path.name + ".damaged"))
        return _before(path), f"{error.fact} Going on from the checkpoint before it."
    if not _before(path).exists():
        return None, ""
    _check(_before(path), records)  # a kill between the two renamings of `save`
    return _before(path), ""


def load(path: Path, state: Any, like: Tensor) -> tuple[Snapshot, Mark]:
    """The run to resume, and where its rows end.

    Args:
        path: what `save` wrote.
        state: a state of the same method, as a pattern.
        like: a tensor of the dtype and device of x.
    """
    with _opened(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(str(arrays["header"]))
    try:
        plain = header["plain"]
        names = [f.name for f in dataclasses.fields(state)]
        fields = {n: _unpack(f"state.{n}", arrays, plain, like) for n in names}
        count = range(plain["point"]["tuple"])
        run = Snapshot(
            _tensor(arrays["x"], like),
            dataclasses.replace(state, **fields),
            header["iterations"],
            Meter(header["oracle_calls"], header["passes"]),
            header["seconds"],
            tuple(_unpack(f"point.{k}", arrays, plain, like) for k in count),
            header["value_before"],
            header["first_norm"],
            header.get("lowest_norm", math.inf),
            header.get("idle", 0),
        )
    except KeyError as missing:
        raise StorageError(
            f"{path} has no {missing}: another version of firstish wrote it. Go on with that "
            f"version, or delete it to start {_method(path)} again."
        ) from None
    torch.set_rng_state(torch.from_numpy(arrays["random"]))
    return run, Mark(*header["rows"])


def delete(path: Path) -> None:
    """Delete the checkpoints of a method that has ended."""
    for name in (path.name, f"{path.name}.before", f"{path.name}.damaged", f"{path.name}.part"):
        with named(path.with_name(name), "delete"):
            path.with_name(name).unlink(missing_ok=True)


def _before(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".before") + ".before")


def _method(path: Path) -> str:
    return path.name.partition(".npz")[0]


def _check(path: Path, records: Path) -> None:
    """Raise if the checkpoint or the rows that belong to it are damaged."""
    with _opened(path) as archive:
        header = json.loads(str(archive["header"]))
    rows = Mark(*header["rows"])
    if rows.bytes:
        check_rows(records, rows)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The arrays of a checkpoint, its checksum verified."""
    with named(path, "read"), path.open("rb") as file:
        if _written(file) != _digest(file):
            raise DamagedError(
                f"{path} is damaged, or an older version wrote it: its checksum does not match.",
                f"Restore it from a copy, or delete it to start {_method(path)} again.",
            )
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            yield archive


def _seal(file: BinaryIO) -> None:
    with ZipFile(file, "a") as archive:
        archive.comment = bytes(_DIGEST)  # room for it
    digest = _digest(file)
    file.seek(-_DIGEST, 2)
    file.write(digest)


def _written(file: BinaryIO) -> bytes:
    size = file.seek(0, 2)
    file.seek(max(0, size - _DIGEST))
    return file.read()


def _digest(file: BinaryIO) -> bytes:
    """The SHA-256 of all bytes before it, in hexadecimal; read in pieces to save memory."""
    left, total = file.seek(0, 2) - _DIGEST, hashlib.sha256()
    file.seek(0)
    while left > 0:
        piece = file.read(min(_PIECE, left))
        total.update(piece)
        left -= len(piece)
    return total.hexdigest().encode()


def _pack(name: str, value: object, arrays: Arrays, plain: dict[str, object]) -> None:
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


def _unpack(name: str, arrays: Arrays, plain: dict[str, Any], like: Tensor) -> object:
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

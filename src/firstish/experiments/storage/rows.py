"""Files of JSON lines to which a run appends, each with a checksum of it and all lines before.

A line that was changed, lost or moved is detected, and named by its number. Only the last line may
be torn, by a kill. Files of older versions have no checksums.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from firstish.experiments.storage.files import DamagedError, named, read, sync

_START, _SEAL = b', "check": "', b', "check": "%08x"}\n'
_LENGTH = len(_SEAL % 0)
_REMEDY = "Restore the file from a copy, or run again into another folder."


class Mark(NamedTuple):
    """A position in a file of rows: the bytes before it, and the checksum of their last line."""

    bytes: int = 0
    check: int = 0


class RowWriter:
    """Appends rows to a file.

    Args:
        path: the file.
        keep: where to continue; what follows is cut off.
    """

    def __init__(self, path: Path, keep: Mark) -> None:
        self._path, self._mark = path, keep
        with named(path, "write"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = path.open("r+b" if path.exists() else "w+b")
            self._file.truncate(keep.bytes)
            self._file.seek(keep.bytes)

    def write(self, row: Mapping[str, object]) -> None:
        """Append one row."""
        body = json.dumps(row).encode()[:-1]
        check = zlib.crc32(body, self._mark.check)
        with named(self._path, "write"):
            self._file.write(body + _SEAL % check)
        self._mark = Mark(self._mark.bytes + len(body) + _LENGTH, check)

    def sync(self) -> Mark:
        """Flush all rows to the disk; where they end."""
        with named(self._path, "write"):
            sync(self._file)
        return self._mark

    def close(self) -> Mark:
        """Sync and close; where the rows end."""
        try:
            return self.sync()
        finally:
            with named(self._path, "write"):
                self._file.close()


class NoRows:
    """A `RowWriter` for a rank that does not write."""

    def write(self, row: Mapping[str, object]) -> None:
        """Do nothing."""

    def sync(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def read_rows(path: Path, written: Mark | None = None) -> list[dict[str, Any]]:
    """The rows of a file.

    Args:
        path: the file.
        written: where its rows are known to end; without it, a torn last line is dropped.
    """
    lines = _lines(path, read(path), written)
    return [_parsed(path, number, line) for number, line in enumerate(lines, 1)]


def check_rows(path: Path, written: Mark) -> None:
    """Raise if the file's first lines are not those that were written."""
    _lines(path, read(path)[: written.bytes], written)


def end_of(path: Path) -> Mark:
    """Where the complete lines of a file end; `Mark()` if there is no file."""
    lines = _lines(path, read(path), None) if path.exists() else []
    if not lines:
        return Mark()
    if not _is_sealed(lines):
        raise DamagedError(f"{path} has no checksums: an older version wrote it.", "Delete it.")
    return Mark(sum(map(len, lines)), int(lines[-1][-_LENGTH:][len(_START) :][:8], 16))


def _lines(path: Path, content: bytes, written: Mark | None) -> list[bytes]:
    """The complete lines, their checksums verified."""
    lines, check = content.splitlines(keepends=True), 0
    if written is None and lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    if written is None and not _is_sealed(lines):
        return lines
    for number, line in enumerate(lines, 1):
        check = zlib.crc32(line[:-_LENGTH], check)
        if line[-_LENGTH:] != _SEAL % check:
            raise DamagedError(f"{path}, line {number}: its checksum does not match.", _REMEDY)
    if written is not None and Mark(len(content), check) != written:
        raise DamagedError(f"{path}, line {len(lines) + 1}: missing.", _REMEDY)
    return lines


def _is_sealed(lines: list[bytes]) -> bool:
    return any(line[-_LENGTH:].startswith(_START) for line in lines)


def _parsed(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise DamagedError(f"{path}, line {number}: not a JSON object.", _REMEDY)
    row.pop("check", None)
    return row

"""Files that are replaced atomically, with a checksum that detects damage.

Every JSON file ends with a field `check`, the CRC-32 of everything before it. Files of older
versions have none, and are read without it. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO


class StorageError(OSError):
    """A file that cannot be read or written. It is never a method's failure."""


class DamagedError(StorageError):
    """A file whose content is not what was written.

    Args:
        fact: a sentence that names the file.
        remedy: a sentence that says what to do.
    """

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(f"{fact} {remedy}")
        self.fact = fact


@contextmanager
def named(path: Path, doing: str) -> Iterator[None]:
    """Raise OSErrors of the block as errors that name the file; that of a full disk does not."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"Cannot {doing} {path}: {error.strerror or error}.") from error


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that replaces `path` when the block succeeds; otherwise nothing changes."""
    beside = path.with_name(path.name + ".part")
    with named(path, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("w+b") as file:
                yield file
                sync(file)
            beside.replace(path)
        except BaseException:
            with suppress(OSError):
                beside.unlink(missing_ok=True)  # a full disk needs the room
            raise
        _sync_folder(path.parent)


def sync(file: BinaryIO) -> None:
    """Flush what was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Flush a renaming to the disk, before anything is deleted that relies on it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> bytes:
    """All bytes of a file."""
    with named(path, "read"):
        return path.read_bytes()


_END = ',\n "check": "%08x"\n}\n'


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Replace the file by an object of at least one field."""
    body = json.dumps(content, indent=1).removesuffix("\n}")
    text = body + _END % zlib.crc32(body.encode())
    with replacing(path) as file:
        file.write(text.encode())


def read_json(path: Path, *needed: str) -> dict[str, Any]:
    """The inverse of `write_json`; a file without a field of `needed` counts as damaged."""
    content = read(path)
    try:
        found = json.loads(content)
    except ValueError as error:
        raise _damaged(path, f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _damaged(path, "it is not a JSON object")
    if found.pop("check", None) is not None:
        body = content[: -len(_END % 0)]
        if content != body + (_END % zlib.crc32(body)).encode():
            raise _damaged(path, "its checksum does not match")
    if missing := [name for name in needed if name not in found]:
        raise _damaged(path, f"it has no {missing[0]!r}")
    return found


def _damaged(path: Path, how: str) -> DamagedError:
    return DamagedError(f"{path} is damaged: {how}.", "Restore it from a copy.")

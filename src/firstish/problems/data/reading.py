"""The bytes of a file: read once, checked as they were read, and never more than a bound."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import os
import zlib
from pathlib import Path
from typing import Literal, NamedTuple

from firstish.problems.data.errors import DataError, refused
from firstish.problems.data.files import File


class Content(NamedTuple):
    """Bytes, and where they came from: the name an error calls them by."""

    where: str
    data: bytes | memoryview


def read_file(path: Path, file: File) -> Content:
    """The content of a file; refused if it is too long, or if its bytes are not the expected ones.

    The bytes that were checked are the bytes returned, so it does not matter what becomes of the
    file meanwhile.
    """
    content = read_bounded(path, file.most)
    check_bytes(content, file)
    return content


def read_bounded(path: Path, most: int) -> Content:
    """The content of a file, or its first `most + 1` bytes if it has more than `most`."""
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size  # `read` makes room for what it is asked for
            return Content(str(path), stream.read(min(size, most) + 1))
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}). Make it a file that you may read, or name "
            "another folder with --data."
        ) from error


def check_bytes(content: Content, file: File) -> None:
    """Refuse bytes that are too many or, where size or checksum are binding, not the expected."""
    where, data = content
    found = "more" if len(data) > file.most else f"{len(data):,}"
    if file.exact and file.size is not None and len(data) != file.size:
        raise refused(where, expected=f"{file.size:,} bytes", found=found)
    if len(data) > file.most:
        raise refused(where, expected=f"at most {file.most:,} bytes", found=found)
    if file.exact and file.checksum is not None:
        check_digest(content, file.checksum)


def check_digest(content: Content, checksum: str) -> None:
    """Refuse bytes with another checksum than "md5:..." or "sha1:..."."""
    algorithm, _, expected = checksum.partition(":")
    found = hashlib.new(algorithm, content.data, usedforsecurity=False).hexdigest()
    if found != expected:
        raise refused(content.where, expected=f"{algorithm} {expected}", found=found)


def unpack(content: Content, kind: Literal["gzip", "bzip2"], most: int) -> Content:
    """The content unpacked; refused if it is damaged, or has more than `most` bytes unpacked.

    No more than that is ever held: a small file may unpack to more than the memory there is.
    """
    packed = io.BytesIO(content.data)
    try:
        with gzip.open(packed) if kind == "gzip" else bz2.open(packed) as stream:
            data = stream.read(most + 1)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise refused(content.where, expected=f"a whole {kind} file", found=str(error)) from error
    if len(data) > most:
        raise refused(content.where, expected=f"at most {most:,} bytes unpacked", found="more")
    return Content(content.where, data)

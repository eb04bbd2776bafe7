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

from firstish.problems.datasets.errors import DataError, refused
from firstish.problems.datasets.files import File


class Content(NamedTuple):
    """Bytes, and where they came from: the name an error calls them by."""

    where: str
    data: bytes | memoryview


def read_file(path: Path, file: File) -> Content:
    """The content of a file; refused if it is too long, or if its bytes are not the expected ones.

    The bytes that were checked are the bytes returned, so it does not matter what becomes of the
    file meanwhile.
    """
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size  # `read` allocates as much as its argument
            content = Content(str(path), stream.read(min(size, file.most) + 1))
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}). Make it readable, or name "
            "another folder with --data."
        ) from error
    check_bytes(content, file)
    return content


def check_bytes(content: Content, file: File) -> None:
    """Refuse bytes that are too many or, where the file is exact, not the expected ones."""
    where, data = content
    found = "more" if len(data) > file.most else f"{len(data):,}"
    if file.exact and len(data) != file.size:
        raise refused(where, expected=f"{file.size:,} bytes", found=found)
    if len(data) > file.most:
        raise refused(where, expected=f"at most {file.most:,} bytes", found=found)
    if file.exact:
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
    try:
        data = _UNPACKERS[kind](content.data, most + 1)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise refused(content.where, expected=f"a whole {kind} file", found=str(error)) from error
    if len(data) > most:
        raise refused(content.where, expected=f"at most {most:,} bytes unpacked", found="more")
    return Content(content.where, data)


def _gunzip(packed: bytes | memoryview, most: int) -> bytes:
    with gzip.open(io.BytesIO(packed)) as stream:
        return stream.read(most)


def _bunzip2(packed: bytes | memoryview, most: int) -> bytes:
    """At most so many bytes of streams one after the other.

    Not `bz2.open`: it takes a damaged second stream for the end, and says nothing.
    """
    data, at = bytearray(), 0
    while at < len(packed) and len(data) < most:
        stream = bz2.BZ2Decompressor()
        while not stream.eof and len(data) < most:
            block = packed[at : at + _BLOCK] if stream.needs_input else b""
            if stream.needs_input and not block:
                raise EOFError("the end within a stream")
            at += len(block)
            data += stream.decompress(block, most - len(data))
        at -= len(stream.unused_data)
    return bytes(data)


_BLOCK = 1 << 13
_UNPACKERS = {"gzip": _gunzip, "bzip2": _bunzip2}

"""Regular files of a tar archive in memory.

Not Python's `tarfile`: there a header of a few bytes makes a reader of hostile archives allocate
(sparse files, extended headers of a stated size), search or loop without end (CVE-2024-6232,
CVE-2025-8194, in the versions that many still run). The archives read here hold regular files with
short names, which takes no more than this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstish.problems.datasets.errors import DataError, refused
from firstish.problems.datasets.readers.limits import Content

_BLOCK = 512
_REGULAR = (b"0", b"\0")
_OCTAL = re.compile(rb" *([0-7]+)[ \0]*")


def members(archive: Content) -> Iterator[tuple[str, memoryview]]:
    """Name and content of each regular file, in order, without a copy.

    Links, devices, folders and extended headers are passed over. A name that takes an extended
    header is cut off, as in the header of the file itself.
    """
    data, at = memoryview(archive.data), 0
    while at < len(data):
        header = bytes(data[at : at + _BLOCK])
        if not any(header):
            return
        name, size = _name(header), _number(header, 124, 136)
        if _number(header, 148, 156) != sum(header[:148]) + sum(header[156:]) + 8 * ord(" "):
            raise _broken(archive, at, "a header with a wrong checksum")
        if size is None or size > len(data) - at - _BLOCK:
            raise _broken(archive, at, "a size beyond the end")
        if header[156:157] in _REGULAR:
            yield name, data[at + _BLOCK : at + _BLOCK + size]
        at += _BLOCK + -(-size // _BLOCK) * _BLOCK


def _name(header: bytes) -> str:
    parts = [header[:100].partition(b"\0")[0]]
    if header[257:263] == b"ustar\0":  # the first part of a long name
        parts.insert(0, header[345:500].partition(b"\0")[0])
    return b"/".join(filter(None, parts)).decode("utf-8", "backslashreplace")


def _number(header: bytes, start: int, end: int) -> int | None:
    found = _OCTAL.fullmatch(header, start, end)
    return int(found[1], 8) if found else None


def _broken(archive: Content, at: int, found: str) -> DataError:
    return refused(archive.where, expected="a whole tar archive", found=f"{found} at byte {at:,}")

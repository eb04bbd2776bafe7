"""The files of an archive, by name. Nothing is ever unpacked to a disk."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from firstish.problems.datasets.errors import refused
from firstish.problems.datasets.readers.limits import Content, unpack
from firstish.problems.datasets.readers.tar import members

Read = Callable[[], Content]
Files = Mapping[str, Read]
"""Names, and what reads the content of each."""


def tar_files(content: Content, most: int) -> Files:
    """The files of a tar.gz archive; refused if it unpacks to more bytes than `most`."""
    where = content.where
    found = members(unpack(content, "gzip", most))
    return _once(((n, partial(Content, f"{where}: {n}", data)) for n, data in found), where)


def zip_files(content: Content) -> Files:
    """The files of a zip archive without compression, which cannot unpack to more than it is."""
    where = content.where
    try:
        archive = zipfile.ZipFile(io.BytesIO(content.data))
    except Exception as error:  # zipfile has no one error for damaged files
        raise refused(where, expected="a whole archive", found=str(error)) from error
    found = [entry for entry in archive.infolist() if not entry.orig_filename.endswith("/")]
    for entry in found:
        if entry.compress_type != zipfile.ZIP_STORED:
            raise refused(where, expected="files without compression", found=entry.filename)
    return _once(((e.orig_filename, partial(_stored, archive, e, where)) for e in found), where)


def _stored(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, where: str) -> Content:
    try:
        return Content(f"{where}: {entry.filename}", archive.read(entry))
    except Exception as error:  # as above; the sum of the bytes is compared, too
        raise refused(where, expected="a whole archive", found=str(error)) from error


def _once(found: Iterable[tuple[str, Read]], where: str) -> Files:
    """Files by name: of two with one name, readers would disagree which it is."""
    files: dict[str, Read] = {}
    for name, read in found:
        if name in files:
            raise refused(where, expected="every name once", found=f"{name!r} twice")
        files[name] = read
    return files

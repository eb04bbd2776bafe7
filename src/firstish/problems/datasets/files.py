"""Files of a data set: where they lie, how large they are, what their bytes must be."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Part = Literal["train", "test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a data set.

    Args:
        path: where it lies below a data folder; directly in the folder is found as well.
        size: in bytes.
        checksum: "md5:..." or "sha1:...", of bytes that were held or as a publisher states it.
        exact: whether other bytes are refused. Where False, copies of the same data with other
            bytes exist (line ends), and the reader's own checks decide.
        limit: the most bytes it may have where it is not exact.
        url: where its publisher offers it, https only.
    """

    path: str
    size: int
    checksum: str
    exact: bool = True
    limit: int = 1 << 28
    url: str | None = None

    def __post_init__(self) -> None:
        if self.url is not None and not self.url.startswith("https://"):
            raise ValueError(f"`File(url=...)` must begin with https://, got {self.url!r}.")

    @property
    def most(self) -> int:
        """The most bytes it may have: no more are read or fetched."""
        return self.size if self.exact else self.limit

    def find(self, folder: Path) -> Path | None:
        """Its path in that folder; None if it is not there."""
        places = (folder / self.path, folder / Path(self.path).name)
        return next((path for path in places if path.is_file()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to hold a data set; it takes all of its files.

    Args:
        name: the key of its reader.
        title: what it is, for a reader.
        files: in the order that its reader expects.
        parts: which parts of the data set it holds.
    """

    name: str
    title: str
    files: tuple[File, ...]
    parts: tuple[Part, ...] = ("train",)

    def find(self, folder: Path) -> tuple[Path, ...] | None:
        """The paths of its files in that folder; None unless all are there."""
        paths = tuple(path for file in self.files if (path := file.find(folder)) is not None)
        return paths if len(paths) == len(self.files) else None

    @property
    def offered(self) -> bool:
        """Whether the publisher offers it for download."""
        return all(file.url is not None for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A data set and the forms it may be held in, the preferred one first."""

    name: str
    title: str
    publisher: str
    page: str
    licence: str
    how: str
    forms: tuple[Form, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """What is known of one file of a data set in one folder.

    Args:
        path: where it is, or should be.
        present: whether it is there.
        size: its size in bytes; None if it is absent.
        checksum_ok: whether size and checksum are as they should be; None if it is absent, or if
            they are not but other bytes may be as good.
    """

    path: Path
    present: bool
    size: int | None = None
    checksum_ok: bool | None = None


def digest(path: Path, algorithm: str) -> str:
    """The checksum of a file, in hexadecimal."""
    state = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def inspect(file: File, folder: Path) -> FileStatus:
    """What is known of that file in that folder."""
    path = file.find(folder)
    if path is None:
        return FileStatus(path=folder / file.path, present=False)
    size = path.stat().st_size
    return FileStatus(path=path, present=True, size=size, checksum_ok=_matches(path, size, file))


def _matches(path: Path, size: int, file: File) -> bool | None:
    algorithm, _, expected = file.checksum.partition(":")
    good = size == file.size and digest(path, algorithm) == expected
    return good if good or file.exact else None

"""Files of a data set: where they lie, how large they are, what their bytes must be."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Part = Literal["train", "test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file, or one folder of images.

    Args:
        path: where it lies below a data folder; straight in the folder will do as well.
        size: in bytes, where it is known.
        about: the size in words, where only that is stated.
        checksum: "md5:..." or "sha1:...", of bytes that were held or as a publisher states it.
        exact: whether other bytes are refused. Where False, copies of the same data with other
            bytes exist (line ends), and the reader's own checks decide.
        limit: the most bytes it may have where `size` is not binding.
        url: where its publisher offers it, https only.
        is_folder: whether it is a folder of images.
    """

    path: str
    size: int | None = None
    about: str = ""
    checksum: str | None = None
    exact: bool = True
    limit: int = 1 << 28
    url: str | None = None
    is_folder: bool = False

    def __post_init__(self) -> None:
        if self.url is not None and not self.url.startswith("https://"):
            raise ValueError(f"`File(url=...)` must begin with https://, got {self.url!r}.")

    @property
    def most(self) -> int:
        """The most bytes it may have: no more are read or fetched."""
        return self.size if self.exact and self.size is not None else self.limit

    @property
    def words(self) -> str:
        """Its size for a reader."""
        if self.size is None:
            return self.about or "size not stated"
        return f"{self.size:,} bytes"

    def find(self, folder: Path) -> Path | None:
        """Where it is in that folder, if it is."""
        for path in self._places(folder):
            if path.is_dir() if self.is_folder else path.is_file():
                return path
        return None

    def obstacle(self, folder: Path) -> str | None:
        """A sentence on what lies in its place and is something else, if it is not there itself."""
        wanted = "folder" if self.is_folder else "file"
        for path in self._places(folder) if self.find(folder) is None else ():
            if os.path.lexists(path):
                return f"{path} is {_kind(path)}, not a {wanted}."
        return None

    def _places(self, folder: Path) -> tuple[Path, Path]:
        return folder / self.path, folder / Path(self.path).name


def _kind(path: Path) -> str:
    if path.is_dir():
        return "a folder"
    if path.is_file():
        return "a file"
    return "a pipe or a device" if path.exists() else "a link to nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to hold a data set; it takes all of its files.

    Args:
        name: what the loader knows it by.
        title: what it is, for a reader.
        files: in the order the loader wants them.
        parts: which parts of the data set it holds.
    """

    name: str
    title: str
    files: tuple[File, ...]
    parts: tuple[Part, ...] = ("train",)

    def find(self, folder: Path) -> tuple[Path, ...] | None:
        """Where its files are in that folder, if all are."""
        paths = tuple(path for file in self.files if (path := file.find(folder)) is not None)
        return paths if len(paths) == len(self.files) else None

    def obstacles(self, folder: Path) -> list[str]:
        """Sentences on what lies in the place of its files and is something else."""
        return [told for file in self.files if (told := file.obstacle(folder)) is not None]

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
        size: its size in bytes; None if it is absent, or a folder.
        checksum_ok: whether size and checksum are as they should be; None where nothing can be
            said: it is absent, no checksum is known, or other bytes may be as good.
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
    if file.is_folder:
        return FileStatus(path=path, present=True)
    size = path.stat().st_size
    return FileStatus(path=path, present=True, size=size, checksum_ok=_matches(path, size, file))


def _matches(path: Path, size: int, file: File) -> bool | None:
    if file.checksum is None:
        return None
    algorithm, _, expected = file.checksum.partition(":")
    good = (file.size is None or size == file.size) and digest(path, algorithm) == expected
    return good if good or file.exact else None

"""CIFAR-10: the binary version, packed or not, and lossless sheets. Never the pickles."""

from __future__ import annotations

import hashlib
import math
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firstish.problems.data.catalogue import CIFAR10_BATCHES
from firstish.problems.data.errors import refused
from firstish.problems.data.images import LabelledImages, check_labels, open_image
from firstish.problems.data.locate import Copy, locate

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
RECORDS = 10_000  # in a batch
_LINES = len(CIFAR10_BATCHES) + 1  # of labels: the test batch has one too
_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
_RECORD = 1 + _PIXELS  # a label, then the red, the green and the blue plane


def read_batch(content: bytes, where: Path | str, records: int = RECORDS) -> LabelledImages:
    """One batch of the binary version: records of a label byte and three planes of 1,024 bytes.

    Args:
        content: the bytes of the file.
        where: what to call it in the error.
        records: how many it should hold.
    """
    if len(content) % _RECORD:
        raise refused(
            where,
            expected=f"whole records of {_RECORD} bytes",
            found=f"{len(content):,} bytes, {len(content) % _RECORD} over",
        )
    if len(content) != records * _RECORD:
        found = len(content) // _RECORD
        raise refused(where, expected=f"{records:,} records", found=f"{found:,}")
    rows = np.frombuffer(content, np.uint8).reshape(records, _RECORD)
    labels = check_labels(rows[:, 0], len(CLASSES), where)
    return LabelledImages(rows[:, 1:].reshape(records, 3, _SIDE, _SIDE), labels, CLASSES)


def read_sheet(path: Path, digits: str) -> bytes:
    """A WebP sheet and its labels, as the binary version would hold them.

    Args:
        path: the sheet: as many rows of images of 32x32 as images in a row, left to right, top to
            bottom.
        digits: a digit for each image.
    """
    tiles = math.isqrt(len(digits))
    image = open_image(path.read_bytes(), "WEBP", path)
    side = tiles * _SIDE
    if image.size != (side, side) or image.mode != "RGB":
        found = f"{image.width}x{image.height} {image.mode}"
        raise refused(path, expected=f"{side}x{side} RGB", found=found)
    sheet: NDArray[np.uint8] = np.asarray(image)
    grid = sheet.reshape(tiles, _SIDE, tiles, _SIDE, 3)
    rows = np.empty((tiles * tiles, _RECORD), np.uint8)
    rows[:, 0] = np.frombuffer(digits.encode("ascii"), np.uint8) - ord("0")
    rows[:, 1:] = grid.transpose(0, 2, 4, 1, 3).reshape(tiles * tiles, _PIXELS)
    return rows.tobytes()


def read_digits(path: Path, length: int = RECORDS) -> list[str]:
    """The labels that go with the sheets: a line of digits for each batch, the test batch last."""
    found = path.read_bytes().decode("latin-1").splitlines()
    if len(found) != _LINES:
        raise refused(path, expected=f"{_LINES} lines", found=len(found))
    for number, line in enumerate(found, start=1):
        if len(line) != length or not (line.isascii() and line.isdigit()):
            raise refused(
                path,
                expected=f"{length:,} digits in line {number}",
                found=f"{len(line):,} characters, {line[:10]!r}...",
            )
    return found


def load_cifar10(data: Path | None = None, rows: int | None = None) -> LabelledImages:
    """CIFAR-10: the 50,000 training images, (3, 32, 32) each, in the order of the five batches.

    Args:
        data: the folder to look in; None for the usual places.
        rows: only the first so many; later batches are not read.
    """
    if rows is not None and rows < 1:
        raise ValueError(f"`load_cifar10(rows=...)` must be at least 1, got {rows}.")
    copy = locate("cifar10", "train", data)
    total = RECORDS * len(CIFAR10_BATCHES)
    rows = total if rows is None else min(rows, total)
    count = -(-rows // RECORDS)
    batches = []
    contents = _READERS[copy.form.name](copy, count)
    for (where, content), checksum in zip(contents, CIFAR10_BATCHES[:count], strict=True):
        batches.append(read_batch(content, where, RECORDS))
        _check_batch(content, checksum, where)
    images = np.concatenate([batch.images for batch in batches])[:rows]
    labels = np.concatenate([batch.labels for batch in batches])[:rows]
    return LabelledImages(images, labels, CLASSES)


def _check_batch(content: bytes, checksum: str, where: str) -> None:
    found = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    if f"sha1:{found}" != checksum:
        raise refused(where, expected=checksum.replace(":", " "), found=found)


def _from_binary(copy: Copy, count: int) -> Iterator[tuple[str, bytes]]:
    for path in copy.paths[:count]:
        yield str(path), path.read_bytes()


def _from_sheets(copy: Copy, count: int) -> Iterator[tuple[str, bytes]]:
    copy.verify()
    *sheets, labels = copy.paths
    for path, digits in zip(sheets[:count], read_digits(labels, RECORDS)[:count], strict=True):
        yield str(path), read_sheet(path, digits)


def _from_archive(copy: Copy, count: int) -> Iterator[tuple[str, bytes]]:
    (path,) = copy.verify().paths
    names = [f"cifar-10-batches-bin/data_batch_{k}.bin" for k in range(1, count + 1)]
    found = read_members(path, names)
    for name in names:
        yield f"{path}: {name}", found[name]


def read_members(path: Path, names: list[str]) -> dict[str, bytes]:
    """The contents of some files of a tar archive, in one pass and without unpacking it."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if member.name in names and member.isreg():
                    stream = archive.extractfile(member)
                    assert stream is not None
                    found[member.name] = stream.read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise refused(path, expected="a whole tar.gz archive", found=str(error)) from error
    missing = [name for name in names if name not in found]
    if missing:
        raise refused(path, expected=f"a file {missing[0]} in it", found="none")
    return found


_READERS = {"binary": _from_binary, "archive": _from_archive, "sheets": _from_sheets}

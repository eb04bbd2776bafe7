"""CIFAR-10: the archive of the binary version, or lossless sheets. Never the pickles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firstish._validate import check_count
from firstish.problems.datasets.errors import refused
from firstish.problems.datasets.locate import Copy, locate
from firstish.problems.datasets.readers.archives import tar_files
from firstish.problems.datasets.readers.images import LabelledImages, check_labels, open_image
from firstish.problems.datasets.readers.limits import Content, check_digest
from firstish.problems.datasets.registry import CIFAR10_BATCHES

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
_BESIDES = 1 << 14  # bytes in the archive for each batch: headers, padding, what goes with it


def read_batch(content: Content, records: int = RECORDS) -> LabelledImages:
    """One batch of the binary version: records of a label byte and three planes of 1,024 bytes.

    Args:
        content: of the file.
        records: how many it should hold.
    """
    where, data = content
    if len(data) % _RECORD:
        raise refused(
            where,
            expected=f"whole records of {_RECORD} bytes",
            found=f"{len(data):,} bytes, {len(data) % _RECORD} over",
        )
    if len(data) != records * _RECORD:
        raise refused(where, expected=f"{records:,} records", found=f"{len(data) // _RECORD:,}")
    rows = np.frombuffer(data, np.uint8).reshape(records, _RECORD)
    labels = check_labels(rows[:, 0], len(CLASSES), where)
    return LabelledImages(rows[:, 1:].reshape(records, 3, _SIDE, _SIDE), labels, CLASSES)


def read_sheet(content: Content, digits: str) -> Content:
    """A WebP sheet and its labels, as the binary version would hold them.

    Args:
        content: the sheet: as many rows of images of 32x32 as images in a row, left to right, top
            to bottom.
        digits: a digit for each image.
    """
    tiles = math.isqrt(len(digits))
    side = tiles * _SIDE
    image = open_image(content, "WEBP", side * side)
    if image.size != (side, side) or image.mode != "RGB":
        found = f"{image.width}x{image.height} {image.mode}"
        raise refused(content.where, expected=f"{side}x{side} RGB", found=found)
    sheet: NDArray[np.uint8] = np.asarray(image)
    grid = sheet.reshape(tiles, _SIDE, tiles, _SIDE, 3)
    rows = np.empty((tiles * tiles, _RECORD), np.uint8)
    rows[:, 0] = np.frombuffer(digits.encode("ascii"), np.uint8) - ord("0")
    rows[:, 1:] = grid.transpose(0, 2, 4, 1, 3).reshape(tiles * tiles, _PIXELS)
    return Content(content.where, rows.tobytes())


def read_digits(content: Content, length: int = RECORDS) -> list[str]:
    """The labels that go with the sheets: a line of digits for each batch, the test batch last."""
    found = bytes(content.data).decode("latin-1").splitlines()
    if len(found) != _LINES:
        raise refused(content.where, expected=f"{_LINES} lines", found=len(found))
    for number, line in enumerate(found, start=1):
        if len(line) != length or not (line.isascii() and line.isdigit()):
            raise refused(
                content.where,
                expected=f"{length:,} digits in line {number}",
                found=f"{len(line):,} characters, {line[:10]!r}...",
            )
    return found


def read_archive(content: Content, count: int, records: int = RECORDS) -> list[Content]:
    """The first batches of the binary version as it is published, a tar.gz archive.

    Args:
        content: of the archive.
        count: how many batches.
        records: how many a batch should hold; no more is unpacked.
    """
    files = tar_files(content, _LINES * (records * _RECORD + _BESIDES))
    names = [f"cifar-10-batches-bin/data_batch_{k}.bin" for k in range(1, count + 1)]
    for name in names:
        if name not in files:
            raise refused(content.where, expected=f"a file {name} in it", found="none")
    return [files[name]() for name in names]


def load_cifar10(data: Path | None = None, rows: int | None = None) -> LabelledImages:
    """CIFAR-10: the 50,000 training images, (3, 32, 32) each, in the order of the five batches.

    Args:
        data: the folder to search; None for the default folders.
        rows: only the first so many; later batches are not read.
    """
    if rows is not None:
        check_count("load_cifar10", "rows", rows)
    copy = locate("cifar10", "train", data)
    total = RECORDS * len(CIFAR10_BATCHES)
    rows = total if rows is None else min(rows, total)
    count = -(-rows // RECORDS)
    batches = []
    contents = _READERS[copy.form.name](copy, count)
    for content, checksum in zip(contents, CIFAR10_BATCHES[:count], strict=True):
        batches.append(read_batch(content, RECORDS))
        check_digest(content, checksum)
    images = np.concatenate([batch.images for batch in batches])[:rows]
    labels = np.concatenate([batch.labels for batch in batches])[:rows]
    return LabelledImages(images, labels, CLASSES)


def _from_sheets(copy: Copy, count: int) -> Iterator[Content]:
    lines = read_digits(copy.read(len(copy.paths) - 1), RECORDS)
    return (read_sheet(copy.read(k), lines[k]) for k in range(count))


def _from_archive(copy: Copy, count: int) -> Iterator[Content]:
    return iter(read_archive(copy.read(), count, RECORDS))


_READERS = {"archive": _from_archive, "sheets": _from_sheets}

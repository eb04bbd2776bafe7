"""FashionMNIST: gzip-compressed IDX files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firstish.problems.datasets.errors import refused
from firstish.problems.datasets.files import Part
from firstish.problems.datasets.locate import locate
from firstish.problems.datasets.readers.images import LabelledImages, check_labels
from firstish.problems.datasets.readers.limits import Content, unpack

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
ROWS: dict[Part, int] = {"train": 60_000, "test": 10_000}
SIDE = 28


def read_idx(content: Content, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """An array of bytes from a gzip-compressed IDX file.

    The format: two zero bytes, 8 for unsigned bytes, the number of dimensions; each dimension in
    four bytes, the highest first; the entries, the last index fastest.

    Args:
        content: of the file.
        shape: what it should have; no more is unpacked.
    """
    begin = bytes((0, 0, 8, len(shape)))
    head = len(begin) + 4 * len(shape)
    where, data = unpack(content, "gzip", head + math.prod(shape))
    if data[:4] != begin:
        found = data[:4].hex() or "none"
        raise refused(where, expected=f"IDX magic {begin.hex()}", found=found)
    if len(data) < head:
        raise refused(where, expected=f"{len(shape)} dimensions", found="the end within the header")
    stated = tuple(int(n) for n in np.frombuffer(data, ">u4", len(shape), offset=4))
    if stated != shape:
        raise refused(where, expected=_times(shape), found=_times(stated))
    if len(data) != head + math.prod(shape):
        found = f"{len(data) - head:,} bytes of them"
        raise refused(where, expected=f"{_times(shape)} entries", found=found)
    entries: NDArray[np.uint8] = np.frombuffer(data, np.uint8, offset=head).reshape(shape).copy()
    return entries  # a copy, because torch wants it writable


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def read_fashion_mnist(
    images: Content, labels: Content, rows: int, side: int = SIDE
) -> LabelledImages:
    """Images and labels from a pair of IDX files.

    Args:
        images: the file of images.
        labels: the file of labels.
        rows: how many there should be of each.
        side: height and width of an image.
    """
    pictures, numbers = read_idx(images, (rows, side, side)), read_idx(labels, (rows,))
    return LabelledImages(pictures, check_labels(numbers, len(CLASSES), labels.where), CLASSES)


def load_fashion_mnist(part: Part = "train", data: Path | None = None) -> LabelledImages:
    """FashionMNIST: 60,000 training or 10,000 test images of 28x28, in the order of the file.

    Args:
        part: "train" or "test".
        data: the folder to search; None for the default folders.
    """
    copy = locate("fashion-mnist", part, data)
    return read_fashion_mnist(copy.read(0), copy.read(1), ROWS[part])

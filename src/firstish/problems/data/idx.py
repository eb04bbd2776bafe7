"""FashionMNIST: gzip-compressed IDX files."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firstish.problems.data.errors import refused
from firstish.problems.data.files import Part
from firstish.problems.data.images import LabelledImages, check_labels
from firstish.problems.data.locate import locate

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


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An array of bytes from a gzip-compressed IDX file.

    The format: two zero bytes, 8 for unsigned bytes, the number of dimensions; each dimension in
    four bytes, the highest first; the entries, the last index fastest.

    Args:
        path: the file.
        dimensions: how many it should have: 3 for images, 1 for labels.
    """
    magic = bytes((0, 0, 8, dimensions))
    try:
        with gzip.open(path, "rb") as stream:
            found = stream.read(4)
            if found != magic:
                raise refused(
                    path, expected=f"IDX magic {magic.hex()}", found=found.hex() or "none"
                )
            header = stream.read(4 * dimensions)
            if len(header) < 4 * dimensions:
                raise refused(
                    path, expected=f"{dimensions} dimensions", found="the end within the header"
                )
            shape = tuple(int(n) for n in np.frombuffer(header, ">u4"))
            content = stream.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise refused(path, expected="a whole gzip file", found=str(error)) from error
    if len(content) != math.prod(shape):
        wanted = " x ".join(map(str, shape))
        raise refused(path, expected=f"{wanted} entries", found=f"{len(content):,} bytes of them")
    entries: NDArray[np.uint8] = np.frombuffer(content, np.uint8).reshape(shape).copy()
    return entries  # a copy, because torch wants it writable


def read_fashion_mnist(
    images: Path, labels: Path, rows: int | None = None, side: int = SIDE
) -> LabelledImages:
    """Images and labels from a pair of IDX files.

    Args:
        images: the file of images.
        labels: the file of labels.
        rows: how many there should be; None for as many as there are.
        side: height and width of an image.
    """
    pictures, numbers = read_idx(images, 3), read_idx(labels, 1)
    rows = len(pictures) if rows is None else rows
    if pictures.shape != (rows, side, side):
        found = " x ".join(map(str, pictures.shape))
        raise refused(images, expected=f"{rows} x {side} x {side} pixels", found=found)
    if len(numbers) != rows:
        raise refused(labels, expected=f"{rows} labels, one for each image", found=len(numbers))
    return LabelledImages(pictures, check_labels(numbers, len(CLASSES), labels), CLASSES)


def load_fashion_mnist(part: Part = "train", data: Path | None = None) -> LabelledImages:
    """FashionMNIST: 60,000 training or 10,000 test images of 28x28, in the order of the file.

    Args:
        part: "train" or "test".
        data: the folder to look in; None for the usual places.
    """
    images, labels = locate("fashion-mnist", part, data).verify().paths
    return read_fashion_mnist(images, labels, ROWS[part])

"""Labelled images, and reading one with Pillow."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from firstish.problems.datasets.errors import DataError, refused
from firstish.problems.datasets.extras import need
from firstish.problems.datasets.readers.limits import Content

# One takes 16 bytes and a pass over the image, so a small file may take minutes; ten are usual.
_SCANS = 100


@dataclass(frozen=True, slots=True)
class LabelledImages:
    """Images and what they show.

    Args:
        images: uint8, one image per row: (n, height, width), or (n, 3, height, width) for RGB.
        labels: the class of each, from 0.
        classes: the names of the classes.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]


def open_image(content: Content, kind: Literal["JPEG", "WEBP"], pixels: int) -> Any:
    """A Pillow image, read to its end.

    Args:
        content: of the file; another format than `kind` is refused.
        kind: "JPEG", or "WEBP" in its lossless form without animation.
        pixels: the most it may have. A larger one is refused before room is made for it.
    """
    image_module = need("PIL.Image", f"Reading {kind} images")
    if kind == "WEBP":  # Pillow makes room for all of it when it opens the file
        _check_size(_webp_size(content), pixels, content)
    if kind == "JPEG" and bytes(content.data).count(b"\xff\xda") > _SCANS:
        raise _no_image(content, kind, f"more than {_SCANS} scans")
    try:
        image = image_module.open(io.BytesIO(content.data), formats=(kind,))
        _check_size(image.size, pixels, content)
        image.load()
    except DataError:
        raise
    except Exception as error:  # Pillow has no one error for damaged files
        raise _no_image(content, kind, str(error)) from error
    return image


def _webp_size(content: Content) -> tuple[int, int]:
    """Width and height in the header of a lossless WebP image: 14 bits each, less one."""
    data = bytes(content.data[:25])
    if data[:4] + data[8:16] + data[20:21] != b"RIFFWEBPVP8L\x2f":
        raise _no_image(content, "WEBP", "another format")
    bits = int.from_bytes(data[21:25], "little")
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1


def _check_size(size: tuple[int, int], pixels: int, content: Content) -> None:
    width, height = size
    if width * height > pixels:
        found = f"{width}x{height}"
        raise refused(content.where, expected=f"at most {pixels:,} pixels", found=found)


def _no_image(content: Content, kind: str, found: str) -> DataError:
    return refused(content.where, expected=f"a whole {kind} image", found=found)


def check_labels(labels: NDArray[np.uint8], classes: int, where: str) -> NDArray[np.int64]:
    """Labels as integers; refused if one names no class."""
    wrong = np.flatnonzero(labels >= classes)
    if wrong.size:
        raise refused(
            where,
            expected=f"labels 0 to {classes - 1}",
            found=f"{int(labels[wrong[0]])} in row {int(wrong[0])}",
        )
    return labels.astype(np.int64)

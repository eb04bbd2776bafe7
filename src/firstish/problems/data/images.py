"""Labelled images, and reading one with Pillow."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstish.problems.data.errors import refused
from firstish.problems.data.extras import need


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


def open_image(content: bytes, kind: str, where: Path | str) -> Any:
    """A Pillow image, read to its end.

    Args:
        content: the bytes of the file.
        kind: "JPEG" or "WEBP"; anything else is refused.
        where: what to call it in the error.
    """
    image_module = need("PIL.Image", f"Reading {kind} images")
    bomb = image_module.DecompressionBombError
    try:
        image = image_module.open(io.BytesIO(content), formats=(kind,))
        image.load()
    except (OSError, SyntaxError, ValueError, bomb) as error:
        raise refused(where, expected=f"a whole {kind} image", found=str(error)) from error
    return image


def check_labels(labels: NDArray[np.uint8], classes: int, where: Path | str) -> NDArray[np.int64]:
    """Labels as integers; refused if one names no class."""
    wrong = np.flatnonzero(labels >= classes)
    if wrong.size:
        raise refused(
            where,
            expected=f"labels 0 to {classes - 1}",
            found=f"{int(labels[wrong[0]])} in row {int(wrong[0])}",
        )
    return labels.astype(np.int64)

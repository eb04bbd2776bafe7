"""Imagenette: JPEG images by class, in a zip file or in a tar archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from firstish.problems.datasets.errors import refused
from firstish.problems.datasets.extras import need
from firstish.problems.datasets.files import Part
from firstish.problems.datasets.locate import Copy, locate
from firstish.problems.datasets.readers.archives import Files, tar_files, zip_files
from firstish.problems.datasets.readers.images import LabelledImages, open_image
from firstish.problems.datasets.readers.limits import Content

# WordNet's number of each class, its name, and how many images the two parts hold.
_TABLE = (
    ("n01440764", "tench", 963, 387),
    ("n02102040", "English springer", 955, 395),
    ("n02979186", "cassette player", 993, 357),
    ("n03000684", "chain saw", 858, 386),
    ("n03028079", "church", 941, 409),
    ("n03394916", "French horn", 956, 394),
    ("n03417042", "garbage truck", 961, 389),
    ("n03425413", "gas pump", 931, 419),
    ("n03445777", "golf ball", 951, 399),
    ("n03888257", "parachute", 960, 390),
)
CLASSES = tuple(name for _, name, _, _ in _TABLE)
COUNTS: dict[Part, dict[str, int]] = {
    "train": {wnid: train for wnid, _, train, _ in _TABLE},
    "test": {wnid: test for wnid, _, _, test in _TABLE},
}
ROWS: dict[Part, int] = {part: sum(counts.values()) for part, counts in COUNTS.items()}
_FOLDERS: dict[Part, str] = {"train": "train", "test": "val"}

_BYTES = 1 << 20  # the most an image may have; those of 160 px have some 10,000
_PIXELS = 1 << 22  # the most an image may have
_UNPACKED = 1 << 28  # the most bytes of an archive: 99 MB of JPEG images hardly grow


def list_images(
    names: Iterable[str], part: Part, counts: Mapping[str, int], where: str
) -> list[str]:
    """The images of a part, sorted by class and name; refused if any is missing or out of place.

    Args:
        names: of all files, such as train/n01440764/x.JPEG or imagenette2-160/train/...
        part: "train" or "test".
        counts: how many images each class should have.
        where: what to call it in the error.
    """
    found: dict[tuple[str, ...], str] = {}
    for name in names:
        pieces = PurePosixPath(name).parts
        inside = pieces[pieces.index(_FOLDERS[part]) :] if _FOLDERS[part] in pieces[:2] else ()
        if not inside or any(piece.startswith(".") for piece in pieces):
            continue  # the other part, lists of noisy labels, what a file manager left
        known = len(inside) == 3 and inside[1] in counts and inside[2].endswith(".JPEG")
        if not known or inside[1:] in found:
            raise refused(
                where,
                expected="files such as train/n01440764/name.JPEG of the known classes",
                found=repr(name),
            )
        found[inside[1:]] = name
    here = Counter(wnid for wnid, _ in found)
    for wnid, count in counts.items():
        if here[wnid] != count:
            place = f"{_FOLDERS[part]}/{wnid}"
            raise refused(where, expected=f"{count} images in {place}", found=here[wnid])
    return [found[key] for key in sorted(found)]


def read_imagenette(
    files: Files,
    where: str,
    part: Part = "train",
    *,
    size: int,
    rows: Sequence[int] | NDArray[np.intp] | None = None,
    counts: Mapping[str, int] | None = None,
) -> LabelledImages:
    """Images resized to squares.

    Resized with Pillow's box filter, each new pixel the mean of those it covers; the aspect ratio
    is not kept. Grey images become RGB.

    Args:
        files: of an archive.
        where: what to call it in an error.
        part: "train", or "test" for what the folders call val.
        size: height and width of the images returned.
        rows: which images, in which order, counted in the list sorted by class and name.
        counts: how many images each class should have; as published by default.
    """
    counts = COUNTS[part] if counts is None else counts
    names = list_images(files, part, counts, where)
    chosen = [names[row] for row in (range(len(names)) if rows is None else rows)]
    images = np.empty((len(chosen), 3, size, size), np.uint8)
    for image, name in zip(images, chosen, strict=True):
        image[:] = _pixels(files[name](), size)
    order = list(COUNTS[part])
    labels = np.array([order.index(PurePosixPath(name).parts[-2]) for name in chosen], np.int64)
    return LabelledImages(images, labels, CLASSES)


def _pixels(content: Content, size: int) -> NDArray[np.uint8]:
    """One image, (3, size, size)."""
    if len(content.data) > _BYTES:
        raise refused(content.where, expected=f"at most {_BYTES:,} bytes", found="more")
    box = need("PIL.Image", "Reading JPEG images").Resampling.BOX
    image = open_image(content, "JPEG", _PIXELS).convert("RGB").resize((size, size), box)
    pixels: NDArray[np.uint8] = np.asarray(image).transpose(2, 0, 1)
    return pixels


def load_imagenette(
    part: Part = "train",
    data: Path | None = None,
    *,
    size: int,
    rows: Sequence[int] | NDArray[np.intp] | None = None,
) -> LabelledImages:
    """Imagenette; see `read_imagenette` for `size` and `rows`.

    Args:
        part: "train" (9,469 images) or "test" (3,925).
        data: the folder to search; None for the default folders.
        size: height and width of the images returned.
        rows: which images, in which order.
    """
    copy = locate("imagenette", part, data)
    return read_imagenette(
        _READERS[copy.form.name](copy), str(copy.paths[0]), part, size=size, rows=rows
    )


_READERS: dict[str, Callable[[Copy], Files]] = {
    "zip": lambda copy: zip_files(copy.read()),
    "archive": lambda copy: tar_files(copy.read(), _UNPACKED),
}

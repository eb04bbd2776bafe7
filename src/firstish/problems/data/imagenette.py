"""Imagenette: a folder of JPEG images by class, the same in a zip file, or in a tar archive."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from firstish.problems.data.errors import refused
from firstish.problems.data.extras import need
from firstish.problems.data.files import Part
from firstish.problems.data.images import LabelledImages, open_image
from firstish.problems.data.locate import locate

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

Visit = Callable[[str, bytes], None]


class _Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> Iterator[str]:
        for path in self.path.rglob("*"):
            if path.is_file():
                yield path.relative_to(self.path).as_posix()

    def read(self, names: Iterable[str], visit: Visit) -> None:
        for name in names:
            visit(name, (self.path / name).read_bytes())


class _Zip:
    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> Iterator[str]:
        with zipfile.ZipFile(self.path) as archive:
            yield from (entry.filename for entry in archive.infolist() if not entry.is_dir())

    def read(self, names: Iterable[str], visit: Visit) -> None:
        with zipfile.ZipFile(self.path) as archive:
            for name in names:
                visit(name, archive.read(name))


class _Tar:
    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> Iterator[str]:
        with tarfile.open(self.path, "r:gz") as archive:
            yield from (member.name for member in archive if member.isreg())

    def read(self, names: Iterable[str], visit: Visit) -> None:
        wanted = set(names)
        with tarfile.open(self.path, "r:gz") as archive:
            for member in archive:  # in its own order: going back would unpack it again
                if member.name in wanted and member.isreg():
                    stream = archive.extractfile(member)
                    assert stream is not None
                    visit(member.name, stream.read())


def _source(path: Path) -> _Folder | _Zip | _Tar:
    if path.is_dir():
        return _Folder(path)
    return _Zip(path) if path.suffix == ".zip" else _Tar(path)


def list_images(
    names: Iterable[str], part: Part, counts: Mapping[str, int], where: Path
) -> list[str]:
    """The images of a part, sorted by class and name; refused if any is missing or out of place.

    Args:
        names: of all files, such as train/n01440764/x.JPEG or imagenette2-160/train/...
        part: "train" or "test".
        counts: how many images each class should have.
        where: what to call it in the error.
    """
    found: dict[tuple[str, str], str] = {}
    for name in names:
        pieces = PurePosixPath(name).parts
        inside = pieces[pieces.index(_FOLDERS[part]) :] if _FOLDERS[part] in pieces[:2] else ()
        if not inside or any(piece.startswith(".") for piece in pieces):
            continue  # the other part, lists of noisy labels, what a file manager left
        if len(inside) != 3 or inside[1] not in counts or not inside[2].endswith(".JPEG"):
            raise refused(
                where,
                expected="files such as train/n01440764/name.JPEG of the known classes",
                found=name,
            )
        found[inside[1], inside[2]] = name
    here = Counter(wnid for wnid, _ in found)
    for wnid, count in counts.items():
        if here[wnid] != count:
            place = f"{_FOLDERS[part]}/{wnid}"
            raise refused(where, expected=f"{count} images in {place}", found=here[wnid])
    return [found[key] for key in sorted(found)]


def read_imagenette(
    path: Path,
    part: Part = "train",
    *,
    size: int,
    rows: Sequence[int] | NDArray[np.intp] | None = None,
    counts: Mapping[str, int] | None = None,
) -> LabelledImages:
    """Images from a folder, a .zip or a .tgz, resized to squares.

    Resized with Pillow's box filter, each new pixel the mean of those it covers; the aspect ratio
    is not kept. Grey images become RGB.

    Args:
        path: the folder or the archive.
        part: "train", or "test" for what the folders call val.
        size: height and width of the images returned.
        rows: which images, in which order, counted in the list sorted by class and name.
        counts: how many images each class should have; as published by default.
    """
    counts = COUNTS[part] if counts is None else counts
    source = _source(path)
    try:
        names = list_images(source.names(), part, counts, path)
        chosen = [names[row] for row in (range(len(names)) if rows is None else rows)]
        pixels = _pixels(source, chosen, size)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error) as error:
        raise refused(path, expected="a whole archive", found=str(error)) from error
    order = list(COUNTS[part])
    labels = np.array([order.index(PurePosixPath(name).parts[-2]) for name in chosen], np.int64)
    return LabelledImages(pixels, labels, CLASSES)


def _pixels(source: _Folder | _Zip | _Tar, names: Sequence[str], size: int) -> NDArray[np.uint8]:
    box = need("PIL.Image", "Reading JPEG images").Resampling.BOX
    images = np.empty((len(names), 3, size, size), np.uint8)
    place = {name: row for row, name in enumerate(names)}

    def visit(name: str, content: bytes) -> None:
        image = open_image(content, "JPEG", f"{source.path}: {name}").convert("RGB")
        images[place[name]] = np.asarray(image.resize((size, size), box)).transpose(2, 0, 1)

    source.read(names, visit)
    return images


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
        data: the folder to look in; None for the usual places.
        size: height and width of the images returned.
        rows: which images, in which order.
    """
    (path,) = locate("imagenette", part, data).verify().paths
    return read_imagenette(path, part, size=size, rows=rows)

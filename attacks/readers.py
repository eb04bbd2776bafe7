"""The readers of data files as an attacker sees them: bytes in, arrays or a refusal out."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firstish.problems.datasets import (
    LabelledImages,
    load_cifar10,
    load_fashion_mnist,
    load_imagenette,
    load_libsvm,
)
from firstish.problems.datasets.readers.archives import Files, tar_files, zip_files
from firstish.problems.datasets.readers.cifar import (
    read_archive,
    read_batch,
    read_digits,
    read_sheet,
)
from firstish.problems.datasets.readers.idx import read_fashion_mnist
from firstish.problems.datasets.readers.imagenette import read_imagenette
from firstish.problems.datasets.readers.libsvm import Shape, check_shape, read_libsvm
from firstish.problems.datasets.readers.limits import Content, check_digest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "problems"))

import tinyfiles as tiny

Arrays = tuple[NDArray[np.float64], ...]
ROOM = 1 << 20  # bytes that the archive of pictures may unpack to
ROWS = 4


@dataclass(frozen=True)
class Reader:
    """One reader and one small file that it reads.

    Args:
        name: of the format, in the table.
        path: where the front door looks for such a file below a data folder.
        load: the front door.
        valid: the small file.
        read: parses bytes as the front door does, but for the checksum of the whole file.
        right: whether the arrays are what the bytes say. Where the format has a checksum of its
            own they must be those of the valid file.
        pack: packs the bytes that are changed; they are the file itself where nothing packs it.
        beside: the other files without which the front door would not look at it.
    """

    name: str
    path: str
    load: Callable[[Path], object]
    valid: bytes
    read: Callable[[bytes], Arrays]
    right: Callable[[bytes, Arrays], bool]
    pack: Callable[[bytes], bytes] = bytes
    beside: tuple[str, ...] = ()


def same(one: Arrays, other: Arrays) -> bool:
    """Whether the arrays are equal to the bit."""
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def equal_to(wanted: Arrays) -> Callable[[bytes, Arrays], bool]:
    """What `right` is for a format that notices every change."""
    return lambda data, found: same(found, wanted)


def _arrays(found: LabelledImages) -> Arrays:
    return found.images.astype(float), found.labels.astype(float)


def readers(folder: Path) -> list[Reader]:
    """Every reader, with small files made in that folder."""
    return [*_libsvm(), *_fashion(folder), *_cifar(folder), *_imagenette(folder)]


# LIBSVM ---------------------------------------------------------------------------------------

_TEXT = b"1 1:0.5 4:-2e-3\n2\n1 2:1 3:1 6:7\n2 3:0.25 # remark\n2 1:1 2:1 3:1 4:1 5:1 6:1\n"
_SHAPE = Shape(features=6, labels={1: 2, 2: 3})
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _libsvm() -> list[Reader]:
    def read(data: bytes) -> Arrays:
        content = Content("file", data)
        found = check_shape(read_libsvm(content, 6, _SHAPE.most), _SHAPE, "file")
        return found.features.toarray(), found.labels

    def load(folder: Path) -> object:
        return load_libsvm("mushrooms", data=folder)

    def load_packed(folder: Path) -> object:
        return load_libsvm("ijcnn1", data=folder)

    def says(data: bytes, found: Arrays) -> bool:
        return same(found, _parse(bz2.decompress(data) if data[:3] == b"BZh" else data))

    wanted = _parse(_TEXT)
    packed = bz2.compress(_TEXT)
    return [
        Reader("LIBSVM text", "mushrooms", load, _TEXT, read, says),
        Reader("LIBSVM bzip2", "ijcnn1.bz2", load_packed, packed, read, equal_to(wanted)),
    ]


def _parse(text: bytes) -> Arrays:
    """The text read in another way than the library does, for comparison."""
    rows, labels = [], []
    for line in text.split(b"\n"):
        fields = line.split(b"#")[0].split()
        if fields:
            labels.append(_value(fields[0]))
            rows.append([0.0] * 6)
        for field in fields[1:]:
            index, _, value = field.partition(b":")
            rows[-1][int(index) - 1] = _value(value)
    return np.array(rows), np.array(labels)


def _value(text: bytes) -> float:
    return float(text) if _NUMBER.fullmatch(text) else float("nan")


# FashionMNIST ---------------------------------------------------------------------------------


def _fashion(folder: Path) -> list[Reader]:
    rng = np.random.RandomState(0)
    pixels, numbers = rng.randint(0, 256, (ROWS, 28, 28)), np.array([0, 9, 3, 1])
    images = tiny.write_idx(folder / "images", pixels).read_bytes()
    labels = tiny.write_idx(folder / "labels", numbers).read_bytes()

    def read(images: bytes, labels: bytes) -> Arrays:
        pair = Content("file", images), Content("file", labels)
        return _arrays(read_fashion_mnist(*pair, ROWS))

    def says(data: bytes, found: Arrays) -> bool:
        pixels = np.frombuffer(gzip.decompress(data)[16:], np.uint8)
        return bool(np.array_equal(found[0].ravel(), pixels))

    names = tuple(f"train-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
    right = equal_to((pixels, numbers))
    return [
        Reader(name, path, _load_fashion, valid, parse, *more, beside=names)
        for name, path, valid, parse, *more in (
            ("IDX images, gzip", names[0], images, lambda data: read(data, labels), right),
            ("IDX labels, gzip", names[1], labels, lambda data: read(images, data), right),
            (
                "IDX images before gzip",
                names[0],
                gzip.decompress(images),
                lambda data: read(data, labels),
                says,
                gzip.compress,
            ),
        )
    ]


def _load_fashion(folder: Path) -> object:
    return load_fashion_mnist(data=folder)


# CIFAR-10 -------------------------------------------------------------------------------------

_BATCHES = "cifar-10-batches-bin/"


def _cifar(folder: Path) -> list[Reader]:
    images, labels, batch = tiny.cifar_batch(ROWS)
    files = {f"{_BATCHES}readme.html": b"hello", f"{_BATCHES}data_batch_1.bin": batch}
    archive = tiny.write_tar(folder / "x.tar.gz", files).read_bytes()
    sheet = tiny.write_sheet(folder / "x.webp", images).read_bytes()
    digits = "".join(map(str, labels))
    lines = "\n".join([digits, *["0000"] * 5]).encode()
    checksum = "sha1:" + hashlib.sha1(batch).hexdigest()
    wanted = images.astype(float), labels.astype(float)

    def checked(content: Content) -> Arrays:
        found = read_batch(content, ROWS)
        check_digest(content, checksum)
        return _arrays(found)

    def from_archive(data: bytes) -> Arrays:
        return checked(read_archive(Content("file", data), 1, ROWS)[0])

    def from_sheet(data: bytes) -> Arrays:
        return checked(read_sheet(Content("file", data), digits))

    def from_lines(data: bytes) -> Arrays:
        return checked(read_sheet(Content("file", sheet), read_digits(Content("file", data), 4)[0]))

    sheets = ("labels.txt", *(f"data_batch_{k}.webp" for k in range(1, 6)))
    right, name = equal_to(wanted), "cifar-10-binary.tar.gz"
    inside = gzip.decompress(archive)
    return [
        Reader("CIFAR-10 tar.gz", name, load_cifar10, archive, from_archive, right),
        Reader(
            "CIFAR-10 tar before gzip",
            name,
            load_cifar10,
            inside,
            from_archive,
            right,
            gzip.compress,
        ),
        Reader(
            "CIFAR-10 WebP sheet", sheets[1], load_cifar10, sheet, from_sheet, right, beside=sheets
        ),
        Reader("CIFAR-10 labels", sheets[0], load_cifar10, lines, from_lines, right, beside=sheets),
    ]


# Imagenette -----------------------------------------------------------------------------------


def _imagenette(folder: Path) -> list[Reader]:
    files = tiny.picture_files()
    archive = tiny.write_tar(folder / "x.tgz", files, "imagenette2-160/").read_bytes()
    zipped = tiny.write_zip(folder / "x.zip", files).read_bytes()
    name = "train/n01440764/a.JPEG"

    def pictures(files: Files) -> Arrays:
        return _arrays(read_imagenette(files, "file", size=4, counts=tiny.COUNTS))

    def from_zip(data: bytes) -> Arrays:
        return pictures(zip_files(Content("file", data)))

    def zip_with(data: bytes) -> bytes:
        return tiny.write_zip(folder / "y.zip", {**files, name: data}).read_bytes()

    def load(folder: Path) -> object:
        return load_imagenette(data=folder, size=4)

    def from_tar(data: bytes) -> Arrays:
        return pictures(tar_files(Content("file", data), ROOM))

    wanted = from_zip(zipped)

    def well_formed(data: bytes, found: Arrays) -> bool:
        return all(a.shape == b.shape for a, b in zip(found, wanted, strict=True))

    def all_but_one(data: bytes, found: Arrays) -> bool:
        """A JPEG file has no checksum; the others must not have changed."""
        return well_formed(data, found) and same(
            (found[0][1:], found[1]), (wanted[0][1:], wanted[1])
        )

    def known_pictures(data: bytes, found: Arrays) -> bool:
        """The sums of a zip file are of contents: a changed name may change the order."""
        each = [(image.tobytes(), label) for image, label in zip(*wanted, strict=True)]
        return well_formed(data, found) and all(
            (image.tobytes(), label) in each for image, label in zip(*found, strict=True)
        )

    return [
        Reader(
            "Imagenette zip",
            "imagenette2-64.zip",
            load,
            zipped,
            from_zip,
            known_pictures,
        ),
        Reader("Imagenette tgz", "imagenette2-160.tgz", load, archive, from_tar, equal_to(wanted)),
        Reader(
            "Imagenette tar before gzip",
            "imagenette2-160.tgz",
            load,
            gzip.decompress(archive),
            from_tar,
            well_formed,
            gzip.compress,
        ),
        Reader(
            "Imagenette JPEG",
            "imagenette2-64.zip",
            load,
            files[name],
            from_zip,
            all_but_one,
            zip_with,
        ),
    ]

"""Files made to do harm: each is refused by name, within a bound on memory, and nothing is written.

These come through the front doors. Behind them, `attacks/archives.py` tries thousands more.
"""

import bz2
import dataclasses
import gzip
import hashlib
import io
import os
import struct
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest
import tinyfiles as tiny
from PIL import Image

from firstish.problems.datasets import (
    CATALOGUE,
    DataError,
    load_cifar10,
    load_fashion_mnist,
    load_imagenette,
    load_libsvm,
)
from firstish.problems.datasets.readers import cifar, idx, imagenette
from firstish.problems.datasets.readers.libsvm import SHAPES, Shape

MEGABYTE = 1 << 20


@pytest.fixture
def lenient(monkeypatch):
    """No size and no checksum is binding, and the sets are small: every byte reaches a reader."""
    for name, dataset in CATALOGUE.items():
        forms = tuple(
            dataclasses.replace(
                form, files=tuple(dataclasses.replace(file, exact=False) for file in form.files)
            )
            for form in dataset.forms
        )
        monkeypatch.setitem(CATALOGUE, name, dataclasses.replace(dataset, forms=forms))
    monkeypatch.setattr(idx, "ROWS", {"train": 3, "test": 2})
    monkeypatch.setattr(cifar, "RECORDS", 4)
    monkeypatch.setattr(imagenette, "COUNTS", {"train": tiny.COUNTS})
    monkeypatch.setattr(imagenette, "_UNPACKED", MEGABYTE)


def refused(load, name, most=64 * MEGABYTE):
    """The error names the file, and no more memory was taken on the way than stated."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=name):
            load()
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


# Small files that unpack to a great deal ------------------------------------------------------


def zeros(compress, megabytes, head=b""):
    """Packed zeros after a head: many streams one after the other, which the formats allow."""
    return compress(head) + compress(bytes(10 * MEGABYTE)) * (megabytes // 10)


def test_bzip2_bomb(tmp_path, monkeypatch):
    monkeypatch.setitem(SHAPES, ("ijcnn1", "train"), Shape(features=22, labels={1: 8000}))
    bomb = zeros(bz2.compress, 3000)
    assert len(bomb) < 20_000
    (tmp_path / "ijcnn1.bz2").write_bytes(bomb)
    refused(lambda: load_libsvm("ijcnn1", data=tmp_path), r"ijcnn1\.bz2: .* at most 8,192,000")


def test_gzip_bomb(tmp_path, lenient):
    head = struct.pack(">4B3I", 0, 0, 8, 3, 3, 28, 28)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(zeros(gzip.compress, 1000, head))
    tiny.write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.arange(3))
    refused(lambda: load_fashion_mnist(data=tmp_path), "train-images-idx3-ubyte.gz")


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("cifar-10-binary.tar.gz", load_cifar10),
        ("imagenette2-160.tgz", lambda data: load_imagenette(data=data, size=4)),
    ],
)
def test_tar_bombs(tmp_path, lenient, name, load):
    (tmp_path / name).write_bytes(zeros(gzip.compress, 1000, b"not zero"))
    refused(lambda: load(tmp_path), rf"{name}: expected at most .* bytes unpacked")


def test_zip_bomb(tmp_path, lenient):
    with zipfile.ZipFile(tmp_path / "imagenette2-64.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in tiny.picture_files().items():
            archive.writestr(name, content + bytes(100 * MEGABYTE * (name[-6:] == "b.JPEG")))
    refused(lambda: load_imagenette(data=tmp_path, size=4), r"imagenette2-64\.zip.*compression")


def test_a_file_longer_than_it_may_be_is_not_read(tmp_path):
    with (tmp_path / "mushrooms").open("wb") as stream:
        stream.truncate(1 << 40)  # a hole: it takes no room on the disk
    refused(lambda: load_libsvm("mushrooms", data=tmp_path), "mushrooms: expected at most 7,037")


def test_a_damaged_second_stream_is_not_taken_for_the_end(tmp_path, monkeypatch):
    """`bz2.open` and `bz2.decompress` leave out what follows the first stream, and say nothing."""
    shape = Shape(features=4, labels={1: 1, 2: 1})
    monkeypatch.setitem(SHAPES, ("ijcnn1", "train"), shape)
    first, second = bz2.compress(b"1 1:1\n2 1:1 2:1"), bz2.compress(b" 3:1 4:1\n")
    path = tmp_path / "ijcnn1.bz2"
    path.write_bytes(first + second)
    assert load_libsvm("ijcnn1", data=tmp_path).features.sum() == 5
    for damaged in (b"XX" + second[2:], second[:-1], b"something else"):
        path.write_bytes(first + damaged)
        refused(lambda: load_libsvm("ijcnn1", data=tmp_path), r"ijcnn1\.bz2.*whole bzip2")


# Headers that promise much --------------------------------------------------------------------


def test_idx_header_of_terabytes(tmp_path, lenient):
    head = struct.pack(">4B3I", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + bytes(784)))
    tiny.write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.arange(3))
    refused(lambda: load_fashion_mnist(data=tmp_path), "expected 3 x 28 x 28, found 4294967295 x")


def entry(name, size, kind=tarfile.REGTYPE, **more):
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    for key, value in more.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT)


BATCH = "cifar-10-batches-bin/data_batch_1.bin"


@pytest.mark.parametrize(
    "head",
    [
        entry(BATCH, 1 << 33),
        entry(BATCH, 1 << 62),
        entry(BATCH, -(1 << 40)),
        entry("././@PaxHeader", 1 << 33, tarfile.XHDTYPE),
        entry("././@LongLink", 1 << 62, tarfile.GNUTYPE_LONGNAME),
        entry(BATCH, 1 << 62, tarfile.GNUTYPE_SPARSE),
        entry(BATCH, 0, tarfile.SYMTYPE, linkname="/etc/passwd"),
        entry(BATCH, 0, tarfile.LNKTYPE, linkname="cifar-10-batches-bin/data_batch_2.bin"),
        entry(BATCH, 0, tarfile.CHRTYPE, devmajor=1, devminor=5),
        entry(BATCH, 0, tarfile.FIFOTYPE),
        entry(f"/{BATCH}", 0),
        entry(f"../{BATCH}", 0),
    ],
)
def test_tar_headers(tmp_path, lenient, head):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(head + bytes(10240)))
    refused(lambda: load_cifar10(tmp_path), "cifar-10-binary.tar.gz", 4 * MEGABYTE)
    assert [path.name for path in tmp_path.rglob("*")] == ["cifar-10-binary.tar.gz"]


def test_sparse_tar_member_of_a_terabyte(tmp_path, lenient):
    """Its map of holes says one terabyte, its data are two bytes."""
    info = tarfile.TarInfo(BATCH)
    info.size = 512
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": BATCH,
        "GNU.sparse.realsize": str(1 << 40),
    }
    archive = info.tobuf(tarfile.PAX_FORMAT) + b"0\n".ljust(512, b"\0") + bytes(10240)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(archive))
    refused(lambda: load_cifar10(tmp_path), "cifar-10-binary.tar.gz", 4 * MEGABYTE)


def test_two_tar_members_of_one_name(tmp_path, lenient):
    path = tmp_path / "cifar-10-binary.tar.gz"
    good, other = tiny.cifar_batch(4, 0)[2], tiny.cifar_batch(4, 1)[2]
    blocks = [entry(BATCH, len(b)) + b + bytes(-len(b) % 512) for b in (good, other)]
    path.write_bytes(gzip.compress(b"".join(blocks) + bytes(1024)))
    refused(lambda: load_cifar10(tmp_path, rows=4), "expected every name once, found '.*' twice")


def test_two_zip_members_of_one_name(tmp_path, lenient):
    files = tiny.picture_files()
    with zipfile.ZipFile(tmp_path / "imagenette2-64.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("train/n01440764/a.JPEG", files["train/n01440764/b.JPEG"])
    refused(lambda: load_imagenette(data=tmp_path, size=4), "every name once")


def test_zip_member_without_a_name(tmp_path, lenient):
    nameless = zipfile.ZipInfo("x")
    nameless.filename = ""
    with zipfile.ZipFile(tmp_path / "imagenette2-64.zip", "w") as archive:
        for name, content in tiny.picture_files().items():
            archive.writestr(name, content)
        archive.writestr(nameless, b"")
    assert len(load_imagenette(data=tmp_path, size=4).labels) == 3


# Images ---------------------------------------------------------------------------------------


def large(kind, size, **options):
    stream = io.BytesIO()
    Image.new("RGB", size).save(stream, kind, **options)
    return stream.getvalue()


def test_jpeg_of_too_many_pixels(tmp_path, lenient):
    files = {**tiny.picture_files(), "train/n01440764/a.JPEG": large("JPEG", (4000, 4000))}
    tiny.write_zip(tmp_path / "imagenette2-64.zip", files)
    name = r"a\.JPEG: expected at most 4,194,304 pixels, found 4000x4000"
    refused(lambda: load_imagenette(data=tmp_path, size=4), name)


def test_jpeg_of_too_many_bytes(tmp_path, lenient):
    files = {**tiny.picture_files(), "train/n01440764/a.JPEG": tiny.jpeg(3) + bytes(MEGABYTE)}
    tiny.write_zip(tmp_path / "imagenette2-64.zip", files)
    name = r"a\.JPEG: expected at most 1,048,576 bytes"
    refused(lambda: load_imagenette(data=tmp_path, size=4), name)


def test_jpeg_of_too_many_scans(tmp_path, lenient):
    """A megabyte has room for 65,000 of them: minutes for one image of 4,194,304 pixels."""
    image = large("JPEG", (64, 64), progressive=True)
    start = image.rindex(b"\xff\xda")
    files = tiny.picture_files()
    place = tmp_path / "imagenette2-64.zip"
    files["train/n01440764/a.JPEG"] = image
    tiny.write_zip(place, files)
    load_imagenette(data=tmp_path, size=4)  # progressive as such is fine
    files["train/n01440764/a.JPEG"] = image[:start] + image[start:-2] * 101 + image[-2:]
    tiny.write_zip(place, files)
    refused(lambda: load_imagenette(data=tmp_path, size=4), r"a\.JPEG: .* more than 100 scans")


@pytest.mark.parametrize("animated", [False, True])
def test_webp_of_too_many_pixels(tmp_path, lenient, animated):
    (tmp_path / "labels.txt").write_text("0000\n" * 6)
    more = {"save_all": True, "append_images": [Image.new("RGB", (4000, 4000), "red")]}
    sheet = large("WEBP", (4000, 4000), lossless=True, method=0, **(more if animated else {}))
    for k in range(1, 6):
        (tmp_path / f"data_batch_{k}.webp").write_bytes(sheet)
    refused(lambda: load_cifar10(tmp_path), r"data_batch_1\.webp", 8 * MEGABYTE)


# What is checked is what is read --------------------------------------------------------------


def test_a_file_changed_after_it_was_checked_does_no_harm(tmp_path, monkeypatch):
    """The checksum is of the bytes that are parsed, whatever becomes of the file meanwhile."""
    path = tiny.write_zip(tmp_path / "imagenette2-64.zip", tiny.picture_files())
    content, new = path.read_bytes(), hashlib.new
    forms = [f for f in CATALOGUE["imagenette"].forms if f.name == "zip"]
    checksum = "md5:" + hashlib.md5(content).hexdigest()
    file = dataclasses.replace(forms[0].files[0], size=len(content), checksum=checksum)
    form = dataclasses.replace(forms[0], files=(file,))
    dataset = dataclasses.replace(CATALOGUE["imagenette"], forms=(form,))
    monkeypatch.setitem(CATALOGUE, "imagenette", dataset)
    monkeypatch.setattr(imagenette, "COUNTS", {"train": tiny.COUNTS})
    wanted = load_imagenette(data=tmp_path, size=4).images

    class Swap:
        def __init__(self, *arguments, **options):
            self.state = new(*arguments, **options)
            self.update = self.state.update

        def hexdigest(self):
            others = {name: tiny.jpeg((1, 2, 3)) for name in tiny.picture_files()}
            tiny.write_zip(path, others)
            return self.state.hexdigest()

    monkeypatch.setattr(hashlib, "new", Swap)
    np.testing.assert_array_equal(load_imagenette(data=tmp_path, size=4).images, wanted)
    with pytest.raises(DataError, match=r"imagenette2-64\.zip"):
        load_imagenette(data=tmp_path, size=4)  # now it has the other bytes from the start


# LIBSVM text ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "1 1:1_0",  # Python's own 10
        "1_0 1:1",
        "1 " + "9" * 5000 + ":1",  # too long for Python's int
        "1 " + "9" * 25 + ":1",  # too long for an array
        "1 ١:1",  # an Arabic 1
        "1 1:١",
        "1 1:0x1",
        "1 1:1e999",
        "1 1:nan",
        "1 1:-Infinity",
        "1 1:1\0",
        "1 +1:1",
        "1 1 :1",
        "1 1:1,2:1",
    ],
)
def test_libsvm_numbers(tmp_path, line):
    (tmp_path / "mushrooms").write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"mushrooms, line 1: expected") as caught:
        load_libsvm("mushrooms", data=tmp_path)
    assert len(str(caught.value)) < 1000


def test_libsvm_line_of_a_million_entries(tmp_path):
    (tmp_path / "mushrooms").write_text("1 " + "1:1 " * 1_500_000)
    refused(lambda: load_libsvm("mushrooms", data=tmp_path), "mushrooms, line 1", 24 * MEGABYTE)


# Files that are none --------------------------------------------------------------------------


def test_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "mushrooms")
    with pytest.raises(FileNotFoundError, match="libsvm/mushrooms"):
        load_libsvm("mushrooms", data=tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path):
    (tmp_path / "mushrooms").touch(mode=0)
    with pytest.raises(DataError, match=r"mushrooms cannot be read \(Permission denied\)"):
        load_libsvm("mushrooms", data=tmp_path)


def test_a_file_that_cannot_be_opened(tmp_path, monkeypatch):
    (tmp_path / "mushrooms").write_text("1 1:1\n")
    monkeypatch.setattr("pathlib.Path.open", lambda *_: (_ for _ in ()).throw(IsADirectoryError()))
    with pytest.raises(DataError, match="mushrooms cannot be read"):
        load_libsvm("mushrooms", data=tmp_path)

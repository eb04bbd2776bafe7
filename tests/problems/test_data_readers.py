"""Each reader gives back what was written, and refuses what is broken, with the reason."""

import bz2
import gzip
import io
import re
import struct
import tarfile

import numpy as np
import pytest
import tinyfiles as tiny
from sklearn.datasets import load_svmlight_file

from firstish.problems.datasets import DataError
from firstish.problems.datasets.readers.archives import tar_files, zip_files
from firstish.problems.datasets.readers.cifar import (
    read_archive,
    read_batch,
    read_digits,
    read_sheet,
)
from firstish.problems.datasets.readers.idx import read_fashion_mnist, read_idx
from firstish.problems.datasets.readers.imagenette import CLASSES, read_imagenette
from firstish.problems.datasets.readers.libsvm import SHAPES, check_shape, read_libsvm
from firstish.problems.datasets.readers.limits import Content
from firstish.problems.datasets.readers.tar import members


def refuses(*words):
    """The error names the file, and each of the words in this order."""
    return pytest.raises(DataError, match="(?s)" + ".*".join(re.escape(w) for w in words))


def content(path):
    return Content(str(path), path.read_bytes())


# IDX ------------------------------------------------------------------------------------------


@pytest.fixture
def fashion(tmp_path):
    rng = np.random.RandomState(0)
    images = rng.randint(0, 256, (7, 28, 28)).astype(np.uint8)
    labels = np.array([0, 9, 3, 3, 1, 2, 8], np.uint8)
    paths = tmp_path / "images.gz", tmp_path / "labels.gz"
    tiny.write_idx(paths[0], images)
    tiny.write_idx(paths[1], labels)
    return *paths, images, labels


def test_idx_round_trip(fashion):
    images, labels, wanted, numbers = fashion
    found = read_fashion_mnist(content(images), content(labels), 7)
    np.testing.assert_array_equal(found.images, wanted)
    np.testing.assert_array_equal(found.labels, numbers)
    assert found.images.dtype == np.uint8
    assert found.labels.dtype == np.int64
    assert found.classes[9] == "Ankle boot"


def test_idx_dimensions_are_read_with_the_highest_byte_first(tmp_path):
    path = tiny.write_idx(tmp_path / "x.gz", np.arange(300).reshape(300, 1, 1))
    assert read_idx(content(path), (300, 1, 1)).shape == (300, 1, 1)


def test_idx_wrong_magic(fashion):
    images, labels, *_ = fashion
    with refuses("labels.gz", "magic 00000803", "00000801"):
        read_idx(content(labels), (7, 28, 28))
    tiny.write_idx(images, np.zeros((2, 28, 28)), magic=b"\0\0\x0d\3")  # float
    with refuses("magic 00000803", "00000d03"):
        read_idx(content(images), (2, 28, 28))


def test_idx_images_and_labels_mistaken_for_each_other(fashion):
    images, labels, *_ = fashion
    with refuses("labels.gz"):
        read_fashion_mnist(content(labels), content(images), 7)


def test_idx_wrong_length(tmp_path):
    head = struct.pack(">4B3I", 0, 0, 8, 3, 2, 28, 28)
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(head + bytes(2 * 784 - 1)))
    with refuses("x.gz", "2 x 28 x 28 entries", "1,567 bytes"):
        read_idx(content(path), (2, 28, 28))
    path.write_bytes(gzip.compress(head + bytes(2 * 784 + 1)))
    with refuses("x.gz", "at most 1,584 bytes unpacked", "more"):
        read_idx(content(path), (2, 28, 28))


def test_idx_ends_within_the_header(tmp_path):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes((0, 0, 8, 3, 0, 0))))
    with refuses("x.gz", "3 dimensions", "header"):
        read_idx(content(path), (2, 28, 28))


def test_idx_truncated_corrupt_or_no_gzip(fashion):
    images, *_ = fashion
    whole = images.read_bytes()
    images.write_bytes(whole[:-100])
    with refuses("images.gz", "whole gzip", "end"):
        read_idx(content(images), (7, 28, 28))
    images.write_bytes(whole[:2000] + bytes([whole[2000] ^ 255]) + whole[2001:])
    with refuses("images.gz", "whole gzip"):
        read_idx(content(images), (7, 28, 28))
    images.write_bytes(gzip.decompress(whole))
    with refuses("images.gz", "whole gzip", "Not a gzipped file"):
        read_idx(content(images), (7, 28, 28))


def test_fashion_label_without_a_class(fashion):
    images, labels, _, numbers = fashion
    numbers[4] = 10
    tiny.write_idx(labels, numbers)
    with refuses("labels.gz", "labels 0 to 9", "10 in row 4"):
        read_fashion_mnist(content(images), content(labels), 7)


def test_fashion_wrong_number_of_rows_or_size(fashion):
    images, labels, *_ = fashion
    with refuses("images.gz", "8 x 28 x 28", "7 x 28 x 28"):
        read_fashion_mnist(content(images), content(labels), 8)
    tiny.write_idx(labels, np.zeros(6))
    with refuses("labels.gz", "expected 7", "6"):
        read_fashion_mnist(content(images), content(labels), 7)
    tiny.write_idx(images, np.zeros((7, 8, 8)))
    with refuses("images.gz", "7 x 28 x 28", "7 x 8 x 8"):
        read_fashion_mnist(content(images), content(labels), 7)


# CIFAR-10 -------------------------------------------------------------------------------------


def test_cifar_batch_round_trip():
    images, labels, data = tiny.cifar_batch(50)
    found = read_batch(Content("x.bin", data), 50)
    np.testing.assert_array_equal(found.images, images)
    np.testing.assert_array_equal(found.labels, labels)
    assert found.classes[0] == "airplane"


def test_cifar_batch_of_another_length():
    _, _, data = tiny.cifar_batch(5)
    with refuses("x.bin", "records of 3073 bytes", "3072 over"):
        read_batch(Content("x.bin", data[:-1]), 5)
    with refuses("x.bin", "10,000 records", "5"):
        read_batch(Content("x.bin", data))
    with refuses("x.bin", "4 records", "5"):
        read_batch(Content("x.bin", data), 4)


def test_cifar_label_without_a_class():
    _, _, data = tiny.cifar_batch(5)
    with refuses("x.bin", "labels 0 to 9", "77 in row 2"):
        read_batch(Content("x.bin", data[: 2 * 3073] + b"M" + data[2 * 3073 + 1 :]), 5)


def test_cifar_sheet_is_the_binary_version(tmp_path):
    images, labels, data = tiny.cifar_batch(9)
    path = tiny.write_sheet(tmp_path / "x.webp", images)
    assert read_sheet(content(path), "".join(map(str, labels))).data == data


def test_cifar_sheet_broken(tmp_path):
    images, *_ = tiny.cifar_batch(9)
    path = tiny.write_sheet(tmp_path / "x.webp", images)
    with refuses("x.webp", "128x128 RGB", "96x96 RGB"):
        read_sheet(content(path), "0" * 16)
    with refuses("x.webp", "at most 4,096 pixels", "96x96"):
        read_sheet(content(path), "0" * 4)
    path.write_bytes(path.read_bytes()[:5000])
    with refuses("x.webp", "a whole WEBP image"):
        read_sheet(content(path), "0" * 9)
    path.write_bytes(tiny.jpeg((1, 2, 3), (96, 96)))  # no WebP, whatever its name
    with refuses("x.webp", "a whole WEBP image"):
        read_sheet(content(path), "0" * 9)


def test_cifar_digits(tmp_path):
    path = tmp_path / "labels.txt"
    lines = ["0123", "4567", "8901", "2345", "6789", "0000"]
    path.write_text("\n".join(lines) + "\n")
    assert read_digits(content(path), 4) == lines
    path.write_text("\n".join(lines[:5]))
    with refuses("labels.txt", "6 lines", "5"):
        read_digits(content(path), 4)
    for wrong in ("01234", "012", "01x3", "01²3"):
        path.write_text("\n".join([*lines[:3], wrong, *lines[4:]]), encoding="latin-1")
        with refuses("labels.txt", "4 digits in line 4"):
            read_digits(content(path), 4)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar_members_are_those_of_tarfile(form):
    """In each format, with a time that takes an extended header and a name that takes a prefix."""
    files = {"a/one": b"1", "a/two": b"2" * 512, "a/empty": b"", "x" * 90 + "/" + "y" * 60: b"3"}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
        archive.addfile(tarfile.TarInfo("a/"))
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), 1.5 if form == tarfile.PAX_FORMAT else 1
            archive.addfile(entry, io.BytesIO(data))
    found = {name: bytes(data) for name, data in members(Content("x", stream.getvalue()))}
    if form != tarfile.USTAR_FORMAT:  # there a long name is in an extended header, and cut off
        *_, (long, data) = files.items()
        files = {**dict(list(files.items())[:3]), long[:100]: data}
    found.pop("a/", None)
    assert found == files


def test_cifar_archive(tmp_path):
    batches = [tiny.cifar_batch(2, seed)[2] for seed in range(2)]
    files = {f"cifar-10-batches-bin/data_batch_{k}.bin": b for k, b in enumerate(batches, 1)}
    path = tiny.write_tar(tmp_path / "x.tar.gz", {"cifar-10-batches-bin/readme.html": b"", **files})
    assert [found.data for found in read_archive(content(path), 2, 2)] == batches
    with refuses("x.tar.gz", "a file cifar-10-batches-bin/data_batch_3.bin in it", "none"):
        read_archive(content(path), 3, 2)
    with refuses("x.tar.gz: cifar-10-batches-bin/data_batch_1.bin", "3 records", "2"):
        read_batch(read_archive(content(path), 1, 3)[0], 3)
    path.write_bytes(path.read_bytes()[:60])
    with refuses("x.tar.gz", "a whole gzip file"):
        read_archive(content(path), 2, 2)


# LIBSVM ---------------------------------------------------------------------------------------

TEXT = "+1 1:0.5 4:-2e-3 # a remark\n-1\n\n# only a remark\n-1 2:1 3:1 4:7\n+1 3:0.25\n"


@pytest.mark.parametrize("pack", [bytes, bz2.compress])
def test_libsvm_agrees_with_scikit_learn(tmp_path, pack):
    path = tmp_path / "x"
    path.write_text(TEXT)
    wanted, labels = load_svmlight_file(str(path), zero_based=False)
    path.write_bytes(pack(TEXT.encode()))
    found = read_libsvm(content(path), 4, 9999)
    np.testing.assert_array_equal(found.features.toarray(), wanted.toarray())
    np.testing.assert_array_equal(found.labels, labels)
    assert found.classes == ("-1", "1")
    assert read_libsvm(content(path), 9, 9999).features.shape == (4, 9)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 3:1 4", "index:value"),
        ("1 3:1 4:", "a number"),
        ("1 3:one", "a number, found 'one'"),
        ("one 3:1", "a number, found 'one'"),
        ("1 0:1", "indices from 1, found '0:1'"),
        ("1 -2:1", "an index from 1, found '-2:1'"),
        ("1 2.5:1", "an index from 1, found '2.5:1'"),
        ("1 qid:3 4:1", "an index from 1, found 'qid:3'"),
        ("1 5:1 3:1", "an index above 5, found '3:1'"),
        ("1 5:1 5:1", "an index above 5, found '5:1'"),
        ("1 6:1", "indices up to 5, found '6:1'"),
        ("1 3:nan", "a finite number"),
        ("inf 3:1", "a finite number"),
        ("1 3:1:2", "a number, found '1:2'"),
        ("1\xa03:1", "a number"),
    ],
)
def test_libsvm_parse_errors_name_the_line(tmp_path, line, reason):
    path = tmp_path / "x"
    path.write_text(f"1 1:1\n2 2:1\n{line}\n1 1:1\n", encoding="latin-1")
    with refuses("x, line 3: ", "expected", reason):
        read_libsvm(content(path), 5, 9999)


def test_libsvm_empty_or_truncated(tmp_path):
    path = tmp_path / "x"
    path.write_text("# nothing\n")
    with refuses("x", "rows of data", "none"):
        read_libsvm(content(path), 5, 9999)
    path.write_bytes(bz2.compress(TEXT.encode() * 100)[:-20])
    with refuses("x", "whole bzip2"):
        read_libsvm(content(path), 5, 9999)


def test_libsvm_shape(tmp_path):
    path, shape = tmp_path / "x", SHAPES["mushrooms", "train"]
    lines = tiny.mushrooms().splitlines()

    def check(changed):
        path.write_text("\n".join(changed))
        return check_shape(read_libsvm(content(path), shape.features, shape.most), shape, path)

    assert check(lines).classes == ("poisonous", "edible")
    with refuses("x", "labels 1, 2", "found 3"):
        check([*lines[:-1], "3" + lines[-1][1:]])
    with refuses("x", "8,124 (3,916 of label 1, 4,208 of label 2)", "8,123 (3,916"):
        check(lines[:-1])
    with refuses("x", "3,916 of label 1", "3,915 of label 1"):
        check(["2" + lines[0][1:], *lines[1:]])
    with refuses("x", "21 entries in every row", "20 in row 6"):
        check([*lines[:5], lines[5].rpartition(" ")[0], *lines[6:]])
    with refuses("x", "no entry but 1"):
        check([lines[0].replace(":1 ", ":2 ", 1), *lines[1:]])


# Imagenette -----------------------------------------------------------------------------------

WRITERS = {
    "x.zip": tiny.write_zip,
    "x.tgz": lambda path, files: tiny.write_tar(path, files, "imagenette2-160/"),
}


def read_pictures(path, part="train", **choices):
    packed = content(path)
    files = zip_files(packed) if path.suffix == ".zip" else tar_files(packed, 1 << 20)
    return read_imagenette(files, str(path), part, **choices)


@pytest.fixture(params=WRITERS)
def write(request, tmp_path):
    return lambda files: WRITERS[request.param](tmp_path / request.param, files)


def test_imagenette_round_trip(write):
    extra = {"noisy_imagenette.csv": b"", "train/.DS_Store": b"", "train/n01440764/._b.JPEG": b""}
    path = write({**tiny.picture_files(), **extra})
    found = read_pictures(path, size=8, counts=tiny.COUNTS)
    assert found.images.shape == (3, 3, 8, 8)
    assert found.images.dtype == np.uint8
    assert [found.classes[label] for label in found.labels] == ["tench", "tench", "parachute"]
    colours = found.images.mean((2, 3))  # a.JPEG comes before b.JPEG
    np.testing.assert_allclose(colours, [(90, 90, 90), (200, 10, 10), (10, 10, 200)], atol=4)
    test = read_pictures(path, "test", size=8, counts={"n03888257": 1})
    assert test.labels.tolist() == [9]


def test_imagenette_rows_are_in_the_order_asked_for(write):
    path = write(tiny.picture_files())
    whole = read_pictures(path, size=4, counts=tiny.COUNTS)
    found = read_pictures(path, size=4, counts=tiny.COUNTS, rows=[2, 0])
    np.testing.assert_array_equal(found.images, whole.images[[2, 0]])
    np.testing.assert_array_equal(found.labels, whole.labels[[2, 0]])


def test_imagenette_resizing_takes_means(tmp_path):
    from PIL import Image

    grid = np.random.RandomState(0).randint(0, 256, (64, 64, 3)).astype(np.uint8)
    Image.fromarray(grid).save(tmp_path / "x.jpg", "JPEG", quality=90)
    files = {"train/n01440764/a.JPEG": (tmp_path / "x.jpg").read_bytes()}
    path = tiny.write_zip(tmp_path / "x.zip", files)
    found = read_pictures(path, size=32, counts={"n01440764": 1}).images[0]
    pixels = np.asarray(Image.open(tmp_path / "x.jpg"), float)
    means = pixels.reshape(32, 2, 32, 2, 3).mean((1, 3)).transpose(2, 0, 1)
    np.testing.assert_allclose(found, means, atol=1)


def test_imagenette_missing_images(write):
    path = write(tiny.picture_files())
    with refuses("x", "3 images in train/n01440764", "2"):
        read_pictures(path, size=4, counts={**tiny.COUNTS, "n01440764": 3})
    with refuses("x", "963 images in train/n01440764", "2"):  # as published
        read_pictures(path, size=4)


@pytest.mark.parametrize(
    "name",
    ["train/n00000000/a.JPEG", "train/a.JPEG", "train/n01440764/a.png", "train/n01440764/b/a.JPEG"],
)
def test_imagenette_files_out_of_place(write, name):
    path = write({**tiny.picture_files(), name: tiny.jpeg(1, mode="L")})
    with refuses("x", "train/n01440764/name.JPEG", name):
        read_pictures(path, size=4, counts=tiny.COUNTS)


def test_imagenette_broken_image(write):
    files = tiny.picture_files()
    name = "train/n03888257/c.JPEG"
    with refuses("x", name, "a whole JPEG image"):
        read_pictures(write({**files, name: files[name][:-300]}), size=4, counts=tiny.COUNTS)


def test_imagenette_image_of_another_format(write, tmp_path):
    images, *_ = tiny.cifar_batch(1)
    other = tiny.write_sheet(tmp_path / "y.webp", images).read_bytes()
    files = {**tiny.picture_files(), "train/n03888257/c.JPEG": other}
    with refuses("x", "c.JPEG", "a whole JPEG image"):
        read_pictures(write(files), size=4, counts=tiny.COUNTS)


@pytest.mark.parametrize("kind", ["x.zip", "x.tgz"])
def test_imagenette_broken_archive(tmp_path, kind):
    path = WRITERS[kind](tmp_path / kind, tiny.picture_files())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with refuses(kind, "a whole "):
        read_pictures(path, size=4, counts=tiny.COUNTS)
    path.write_bytes(b"no archive at all")
    with refuses(kind, "a whole "):
        read_pictures(path, size=4, counts=tiny.COUNTS)


def test_imagenette_classes():
    assert len(CLASSES) == 10
    assert CLASSES[1] == "English springer"

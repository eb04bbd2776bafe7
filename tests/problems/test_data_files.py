"""Where files are looked for, how they are fetched, and what is said when they are missing."""

import dataclasses
import hashlib
import io
import sys
import urllib.request
from http.client import IncompleteRead
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import tinyfiles as tiny

from firstish.problems import Options, get
from firstish.problems.datasets import (
    CATALOGUE,
    DataError,
    File,
    FileStatus,
    MissingDataError,
    download,
    folders,
    load_cifar10,
    load_digits,
    load_fashion_mnist,
    load_imagenette,
    load_libsvm,
    registry,
    status,
)
from firstish.problems.datasets.folders import cache
from firstish.problems.datasets.readers import cifar, idx
from firstish.problems.datasets.readers.limits import read_file


def md5(content):
    return "md5:" + hashlib.md5(content).hexdigest()


def sha1(content):
    return "sha1:" + hashlib.sha1(content).hexdigest()


# The catalogue --------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", CATALOGUE.values(), ids=CATALOGUE)
def test_catalogue_is_complete(dataset):
    assert dataset.title
    assert dataset.publisher
    assert dataset.licence
    assert dataset.how
    assert dataset.page.startswith("https://")
    parts = {part for form in dataset.forms for part in form.parts}
    for part in parts:
        assert any(form.offered for form in dataset.forms if part in form.parts)
    for file in (file for form in dataset.forms for file in form.files):
        algorithm, _, value = file.checksum.partition(":")
        assert len(value) == {"md5": 32, "sha1": 40}[algorithm]
        int(value, 16)


def test_catalogue_unknown_name():
    with pytest.raises(
        ValueError, match=r"Unknown data set 'mnist'. Use one of: digits, mushrooms"
    ):
        status("mnist", Path())


def test_only_https():
    with pytest.raises(ValueError, match=r"`File\(url=...\)` must begin with https://"):
        File(path="x", size=1, checksum="", url="http://example.org/x")


def test_status(tmp_path):
    everything = status("fashion-mnist", tmp_path)
    assert everything[0].path.name == "train-images-idx3-ubyte.gz"
    assert len(everything) == 4
    assert not any(s.present for s in everything)
    labels = everything[1].path
    assert labels == tmp_path / "FashionMNIST" / "raw" / "train-labels-idx1-ubyte.gz"
    labels.parent.mkdir(parents=True)
    labels.write_bytes(b"no labels")
    found = status("fashion-mnist", tmp_path)[1]
    assert found == FileStatus(path=labels, present=True, size=9, checksum_ok=False)
    assert status("digits", tmp_path) == []


def test_status_where_other_bytes_may_be_as_good(tmp_path):
    (tmp_path / "mushrooms").write_text(tiny.mushrooms())  # straight in the folder
    found = status("mushrooms", tmp_path)[0]
    assert found.present
    assert found.path == tmp_path / "mushrooms"
    assert found.checksum_ok is None


def test_a_folder_is_not_taken_for_a_file(tmp_path):
    (tmp_path / "mushrooms").mkdir()
    assert not any(s.present for s in status("mushrooms", tmp_path))


# Folders --------------------------------------------------------------------------------------


def test_folders_in_order(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    assert folders() == [tmp_path / "cache" / "firstish"] == [cache()]
    monkeypatch.setenv("FIRSTISH_DATA", str(there))
    assert folders() == [there, cache()]
    assert folders(here) == [here]
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert folders() == [there, Path.home() / ".cache" / "firstish"]


def test_folder_that_is_none(tmp_path, monkeypatch):
    with pytest.raises(NotADirectoryError, match=r"`--data`.*not a folder. Create it"):
        folders(tmp_path / "nowhere")
    monkeypatch.setenv("FIRSTISH_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match="FIRSTISH_DATA names"):
        folders()


def test_each_place_is_found(tmp_path, monkeypatch):
    text = tiny.mushrooms()
    for place in (tmp_path / "explicit", tmp_path / "env", cache()):
        (place / "libsvm").mkdir(parents=True)
    changed = {
        "explicit": text.replace("\n", "  \n"),
        "env": text.replace("\n", " \n"),
    }  # other bytes, the same data
    (cache() / "libsvm" / "mushrooms").write_text(text)
    assert load_libsvm("mushrooms").features.shape == (8124, 112)
    for name, content in changed.items():
        (tmp_path / name / "libsvm" / "mushrooms").write_text(content)
    monkeypatch.setenv("FIRSTISH_DATA", str(tmp_path / "env"))
    assert load_libsvm("mushrooms").classes == ("poisonous", "edible")
    (tmp_path / "env" / "libsvm" / "mushrooms").write_text("broken")
    with pytest.raises(DataError, match="env/libsvm/mushrooms, line 1"):
        load_libsvm("mushrooms")
    load_libsvm("mushrooms", data=tmp_path / "explicit")


# Directions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (
            load_fashion_mnist,
            ["FashionMNIST/raw/train-images-idx3-ubyte.gz (26,421,880 bytes), from https://raw."],
        ),
        (
            load_cifar10,
            [
                "cifar-10-binary.tar.gz (170,052,171 bytes), from https://www.cs.toronto.edu/",
                "CIFAR10/labels.txt (60,006 bytes)",
            ],
        ),
        (lambda: load_libsvm("mushrooms"), ["libsvm/mushrooms (879,712 bytes), from https://"]),
        (
            lambda: load_imagenette(size=32),
            ["imagenette64/imagenette2-64.zip (30,481,098 bytes)", "imagenette2-160.tgz (99,003"],
        ),
    ],
)
def test_missing_files_are_named(load, words):
    with pytest.raises(MissingDataError) as caught:
        load()
    for word in [*words, f"into {cache()}", "--data or FIRSTISH_DATA", "FIRSTISH_OFFLINE is set"]:
        assert word in str(caught.value)


def test_directions_name_the_folder_the_user_named(tmp_path):
    with pytest.raises(
        MissingDataError, match=f"not found in {tmp_path}, .*(?s:.*)into {tmp_path},"
    ):
        get("fashion-mlp").load(Options(data=tmp_path))


def test_part_of_a_form_is_not_enough(tmp_path):
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"")
    with pytest.raises(MissingDataError, match="train-labels"):
        load_fashion_mnist(data=tmp_path)


def test_wrong_bytes_are_refused_before_they_are_read(tmp_path):
    for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"):
        (tmp_path / name).write_bytes(b"short")
    with pytest.raises(DataError, match=r"train-images.*expected 26,421,880 bytes, found 5"):
        load_fashion_mnist(data=tmp_path)
    (tmp_path / "imagenette2-64.zip").write_bytes(bytes(30_481_098))
    with pytest.raises(DataError, match=r"imagenette2-64\.zip: expected md5 58d82f0e.*Delete it"):
        load_imagenette(data=tmp_path, size=32)


def test_mnist_under_the_same_name_is_refused(tmp_path):
    path = tiny.write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.zeros(60_000))
    file = CATALOGUE["fashion-mnist"].forms[0].files[1]
    with pytest.raises(DataError, match="expected md5 25c81989"):
        read_file(path, dataclasses.replace(file, size=path.stat().st_size))


# Whole loaders on tiny data -------------------------------------------------------------------


def replaced(name, form, **changes):
    """The data set with other values in the files of a form."""
    dataset = CATALOGUE[name]
    forms = tuple(
        dataclasses.replace(
            f, files=tuple(dataclasses.replace(file, **changes) for file in f.files)
        )
        if f.name == form
        else f
        for f in dataset.forms
    )
    return dataclasses.replace(dataset, forms=forms)


@pytest.fixture
def small_cifar(monkeypatch):
    """Five batches of nine images, taken for the real ones."""
    batches = [tiny.cifar_batch(9, seed) for seed in range(5)]
    monkeypatch.setattr(cifar, "RECORDS", 9)
    monkeypatch.setattr(cifar, "CIFAR10_BATCHES", tuple(sha1(b[2]) for b in batches))
    for form in ("archive", "sheets"):
        dataset = replaced("cifar10", form, exact=False)
        monkeypatch.setitem(CATALOGUE, "cifar10", dataset)
    return batches


def write_archive(folder, batches):
    files = {f"cifar-10-batches-bin/data_batch_{k}.bin": b[2] for k, b in enumerate(batches, 1)}
    tiny.write_tar(folder / "cifar-10-binary.tar.gz", dict(reversed(files.items())))


def write_sheets(folder, batches):
    (folder / "CIFAR10").mkdir()
    lines = []
    for k, (images, labels, _) in enumerate(batches, start=1):
        tiny.write_sheet(folder / "CIFAR10" / f"data_batch_{k}.webp", images)
        lines.append("".join(map(str, labels)))
    (folder / "CIFAR10" / "labels.txt").write_text("\n".join([*lines, "0" * 9]))


@pytest.mark.parametrize("write", [write_archive, write_sheets])
def test_cifar_in_each_form(tmp_path, small_cifar, write):
    write(tmp_path, small_cifar)
    found = load_cifar10(tmp_path)
    np.testing.assert_array_equal(found.images, np.concatenate([b[0] for b in small_cifar]))
    np.testing.assert_array_equal(found.labels, np.concatenate([b[1] for b in small_cifar]))
    part = load_cifar10(tmp_path, rows=13)
    np.testing.assert_array_equal(part.images, found.images[:13])
    np.testing.assert_array_equal(part.labels, found.labels[:13])


def test_cifar_one_changed_pixel_is_refused(tmp_path, small_cifar):
    images, labels, content = small_cifar[2]
    changed = bytearray(content)
    changed[1000] ^= 1
    write_archive(tmp_path, [*small_cifar[:2], (images, labels, changed), *small_cifar[3:]])
    with pytest.raises(DataError, match=r"data_batch_3\.bin: expected sha1 "):
        load_cifar10(tmp_path)
    load_cifar10(tmp_path, rows=18)  # the third batch is not read


def test_cifar_batches_in_another_order_are_refused(tmp_path, small_cifar):
    write_archive(tmp_path, [small_cifar[k] for k in (1, 0, 2, 3, 4)])
    with pytest.raises(DataError, match=r"data_batch_1\.bin: expected sha1"):
        load_cifar10(tmp_path)


def test_cifar_another_archive_is_refused(tmp_path):
    write_archive(tmp_path, [tiny.cifar_batch(1)] * 5)
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: expected 170,052,171 bytes"):
        load_cifar10(tmp_path)


def test_cifar_rows():
    with pytest.raises(ValueError, match=r"`load_cifar10\(rows=...\)` must be at least 1, got 0"):
        load_cifar10(rows=0)


def test_fashion_whole(tmp_path, monkeypatch):
    monkeypatch.setitem(CATALOGUE, "fashion-mnist", replaced("fashion-mnist", "idx", exact=False))
    monkeypatch.setattr(idx, "ROWS", {"train": 3, "test": 2})
    for head, rows in (("train", 3), ("t10k", 2)):
        tiny.write_idx(tmp_path / f"{head}-images-idx3-ubyte.gz", np.full((rows, 28, 28), rows))
        tiny.write_idx(tmp_path / f"{head}-labels-idx1-ubyte.gz", np.arange(rows))
    assert load_fashion_mnist("train", tmp_path).images.shape == (3, 28, 28)
    assert load_fashion_mnist("test", tmp_path).labels.tolist() == [0, 1]


def test_libsvm_unknown_name():
    with pytest.raises(ValueError, match=r"no 'rcv1' \(train\). Use one of: mushrooms \(train\)"):
        load_libsvm("rcv1")


# Downloads ------------------------------------------------------------------------------------


class Answer(io.BytesIO):
    def __init__(self, content, stated=None):
        super().__init__(content)
        self.headers = {"Content-Length": str(len(content) if stated is None else stated)}


@pytest.fixture
def network(monkeypatch):
    """A network with one page; returns how to set it, and keeps the addresses asked for."""
    monkeypatch.delenv("FIRSTISH_OFFLINE")
    asked = []

    def serve(make):
        def answer(url):
            asked.append(url)
            return make()

        monkeypatch.setattr(download, "_open", answer)
        return asked

    return serve


CONTENT = b"some bytes" * 1000
FILE = File(path="a/x", size=len(CONTENT), checksum=md5(CONTENT), url="https://example.org/x")


def left(folder):
    return [p for p in folder.rglob("*") if p.is_file()]


def test_fetch(tmp_path, network):
    asked = network(lambda: Answer(CONTENT))
    seen = []
    download.fetch(FILE, tmp_path / "a" / "x", progress=lambda *now: seen.append(now))
    assert (tmp_path / "a" / "x").read_bytes() == CONTENT
    assert left(tmp_path) == [tmp_path / "a" / "x"]
    assert asked == [FILE.url]
    assert seen[-1] == (len(CONTENT), len(CONTENT))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda: Answer(CONTENT[:-1]), "expected 10,000 bytes, found 9,999"),
        (lambda: Answer(CONTENT[:-1], stated=10_000), "expected 10,000 bytes, found 9,999"),
        (lambda: Answer(CONTENT * 20, stated="?"), "at most 10,000 bytes, found more"),
        (lambda: Answer(CONTENT[::-1]), "expected md5 "),
        (lambda: Answer(b"<html>not found"), "expected 10,000 bytes, found 15"),
    ],
)
def test_fetch_refuses_other_bytes_and_leaves_nothing(tmp_path, network, answer, reason):
    network(answer)
    with pytest.raises(DataError, match=f"https://example.org/x: .*{reason}"):
        download.fetch(FILE, tmp_path / "x")
    assert left(tmp_path) == []


def test_fetch_does_not_touch_a_good_file_when_it_fails(tmp_path, network):
    (tmp_path / "x").write_bytes(CONTENT)
    network(lambda: Answer(CONTENT[::-1]))
    with pytest.raises(DataError):
        download.fetch(FILE, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_fetch_of_a_file_that_is_not_exact_has_a_limit(tmp_path, network):
    network(lambda: Answer(CONTENT))
    with pytest.raises(DataError, match="at most 5,000 bytes"):
        download.fetch(dataclasses.replace(FILE, exact=False, limit=5_000), tmp_path / "x")
    with pytest.raises(ValueError, match="no URL"):
        download.fetch(dataclasses.replace(FILE, url=None), tmp_path / "x")


def test_https_is_not_left():
    handler, request = download._HttpsOnly(), urllib.request.Request("https://example.org/x")
    arguments = (request, io.BytesIO(), 302, "Found", {})
    with pytest.raises(URLError, match="which is not https"):
        handler.redirect_request(*arguments, "http://example.org/x")
    assert handler.redirect_request(*arguments, "https://example.org/y").full_url.endswith("/y")


def test_a_missing_data_set_is_fetched_into_the_cache(network):
    text = tiny.mushrooms().encode()
    asked = network(lambda: Answer(text))
    for _ in range(2):
        assert load_libsvm("mushrooms").features.sum() == 8124 * 21
    assert asked == ["https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/mushrooms"]
    assert left(cache()) == [cache() / "libsvm" / "mushrooms"]


def test_a_missing_data_set_is_fetched_into_the_folder_named(tmp_path, network):
    network(lambda: Answer(tiny.mushrooms().encode()))
    load_libsvm("mushrooms", data=tmp_path)
    assert left(tmp_path) == [tmp_path / "libsvm" / "mushrooms"]


def test_a_data_set_is_not_fetched_into_the_folder_of_the_variable(tmp_path, network, monkeypatch):
    (tmp_path / "theirs").mkdir()  # it may be shared, and read-only
    monkeypatch.setenv("FIRSTISH_DATA", str(tmp_path / "theirs"))
    network(lambda: Answer(tiny.mushrooms().encode()))
    load_libsvm("mushrooms")
    assert left(tmp_path / "theirs") == []
    assert left(cache()) == [cache() / "libsvm" / "mushrooms"]


def test_structure_is_checked_before_a_file_is_kept(network):
    text = tiny.mushrooms().encode()
    network(lambda: Answer(text[: len(text) // 2]))
    with pytest.raises(DataError):
        load_libsvm("mushrooms")
    assert left(cache()) == []


@pytest.mark.parametrize(
    "error", [URLError("no route"), TimeoutError("timed out"), IncompleteRead(b"")]
)
def test_a_failing_network_gives_directions(network, error):
    class Broken(Answer):
        def read(self, size=-1):
            raise error

    network(lambda: Broken(b"x", stated=10))
    with pytest.raises(MissingDataError, match="libsvm/mushrooms"):
        load_libsvm("mushrooms")
    assert left(cache()) == []


def test_a_folder_that_cannot_be_written_gives_directions(network, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("in the way")
    network(lambda: Answer(b""))
    with pytest.raises(MissingDataError, match="libsvm/mushrooms"):
        load_libsvm("mushrooms")


def test_directions_are_sentences():
    with pytest.raises(MissingDataError) as caught:
        load_libsvm("mushrooms")
    assert "(FIRSTISH_OFFLINE is set)" in str(caught.value)  # not Python's <urlopen error ...>


# Packages that are not there ------------------------------------------------------------------


def test_missing_packages_name_the_extra(tmp_path, monkeypatch):
    tiny.write_zip(tmp_path / "imagenette2-64.zip", tiny.picture_files())
    (tmp_path / "mushrooms").write_text(tiny.mushrooms())
    monkeypatch.setitem(CATALOGUE, "imagenette", replaced("imagenette", "zip", exact=False))
    monkeypatch.setattr(
        "firstish.problems.datasets.readers.imagenette.COUNTS", {"train": tiny.COUNTS}
    )
    for module, package, load in [
        ("sklearn.datasets", "scikit-learn", load_digits),
        ("PIL.Image", "pillow", lambda: load_imagenette(data=tmp_path, size=4)),
        ("scipy.sparse", "scipy", lambda: load_libsvm("mushrooms", data=tmp_path)),
    ]:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=rf"needs {package}.*pip install '\.\[data\]'"):
            load()


def test_data_are_never_unpickled():
    source = Path(registry.__file__).parent
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "import pickle" not in text
        assert "allow_pickle=True" not in text
        assert "torch.load" not in text

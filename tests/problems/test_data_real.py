"""The real files, where they are: checksums, shapes, label counts, and one form against another."""

import hashlib

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

from firstish.problems.datasets import (
    CATALOGUE,
    load_cifar10,
    load_digits,
    load_fashion_mnist,
    load_imagenette,
    load_libsvm,
    status,
)
from firstish.problems.datasets.readers.imagenette import COUNTS
from firstish.problems.datasets.registry import CIFAR10_BATCHES


@pytest.mark.parametrize("name", [n for n in CATALOGUE if n != "digits"])
def test_status_of_the_real_files(real_data, name):
    found = [s for s in status(name, real_data) if s.present]
    assert found
    assert all(s.checksum_ok is True for s in found)


def test_digits():
    found = load_digits()
    assert found.images.shape == (1797, 8, 8)
    assert set(found.labels[:20]) == set(range(10))  # mixed from the start


@pytest.mark.parametrize(("part", "rows"), [("train", 60_000), ("test", 10_000)])
def test_fashion_mnist(real_data, part, rows):
    found = load_fashion_mnist(part, real_data)
    assert found.images.shape == (rows, 28, 28)
    assert np.bincount(found.labels).tolist() == [rows // 10] * 10
    assert len(np.unique(found.labels[:100])) == 10


def test_cifar10(real_data):
    found = load_cifar10(real_data)
    assert found.images.shape == (50_000, 3, 32, 32)
    assert np.bincount(found.labels).tolist() == [5000] * 10
    assert len(np.unique(found.labels[:100])) == 10

    # Written back in the layout of the official file.
    images, labels = found.images[:10_000], found.labels[:10_000].astype(np.uint8)
    rows = np.concatenate([labels[:, None], images.reshape(10_000, -1)], axis=1)
    assert "sha1:" + hashlib.sha1(rows.tobytes()).hexdigest() == CIFAR10_BATCHES[0]


@pytest.mark.parametrize(
    ("name", "part", "file"),
    [
        ("mushrooms", "train", "mushrooms"),
        ("phishing", "train", "phishing"),
        ("a9a", "train", "a9a"),
        ("a9a", "test", "a9a.t"),
        ("w8a", "train", "w8a"),
        ("ijcnn1", "train", "ijcnn1.bz2"),
    ],
)
def test_libsvm_agrees_with_scikit_learn(real_data, name, part, file):
    found = load_libsvm(name, part, real_data)
    width = found.features.shape[1]
    wanted, labels = load_svmlight_file(str(real_data / "libsvm" / file), n_features=width)
    assert (found.features != wanted).nnz == 0
    np.testing.assert_array_equal(found.labels, labels)


def test_imagenette(real_data):
    found = load_imagenette("train", real_data, size=32, rows=[0, 962, 963, 9468])
    assert found.images.shape == (4, 3, 32, 32)
    assert [found.classes[k] for k in found.labels] == [
        "tench",
        "tench",
        "English springer",
        "parachute",
    ]
    assert found.images.std() > 20
    assert sum(COUNTS["train"].values()) == 9469
    assert sum(COUNTS["test"].values()) == 3925
    test = load_imagenette("test", real_data, size=32, rows=[3924])
    assert test.classes[test.labels[0]] == "parachute"

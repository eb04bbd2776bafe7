"""LIBSVM text files, plain or packed with bzip2."""

from __future__ import annotations

import io
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstish.problems.datasets.errors import DataError, refused
from firstish.problems.datasets.extras import need
from firstish.problems.datasets.files import Part
from firstish.problems.datasets.locate import locate
from firstish.problems.datasets.readers.limits import Content, unpack

_ROW = 1024  # bytes a row may take on average; those of phishing, the longest here, take 330
_DIGITS = 18  # of an index, leading zeros included
_SHOWN = 40  # bytes of a field, in an error


@dataclass(frozen=True, slots=True)
class SparseData:
    """Rows of features and their labels.

    Args:
        features: a SciPy CSR matrix, float64.
        labels: as the file has them.
        classes: what the labels mean, the lowest first.
    """

    features: Any
    labels: NDArray[np.float64]
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a file must hold.

    Args:
        features: columns; a higher index is refused.
        labels: how many rows have each label, the lowest first.
        ones: how many entries each row has, all of them 1; None where rows differ.
        classes: what the labels mean; the labels themselves by default.
    """

    features: int
    labels: Mapping[float, int]
    ones: int | None = None
    classes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What the labels mean."""
        return self.classes or tuple(f"{label:g}" for label in self.labels)

    @property
    def most(self) -> int:
        """How many bytes of text it may hold."""
        return _ROW * sum(self.labels.values())


SHAPES: dict[tuple[str, Part], Shape] = {
    ("mushrooms", "train"): Shape(
        features=112, labels={1: 3916, 2: 4208}, ones=21, classes=("poisonous", "edible")
    ),
    ("phishing", "train"): Shape(features=68, labels={0: 4898, 1: 6157}),
    ("a9a", "train"): Shape(features=123, labels={-1: 24_720, 1: 7_841}),
    ("a9a", "test"): Shape(features=123, labels={-1: 12_435, 1: 3_846}),
    ("w8a", "train"): Shape(features=300, labels={-1: 48_270, 1: 1_479}),
    ("ijcnn1", "train"): Shape(features=22, labels={-1: 45_137, 1: 4_853}),
}


def read_libsvm(content: Content, features: int, most: int) -> SparseData:
    """A LIBSVM file: on each line a label, then `index:value` with ascending indices from 1.

    What follows a # is left out, and so are empty lines.

    Args:
        content: of the file, plain or packed with bzip2 (detected by its bytes).
        features: how many columns.
        most: how many bytes of text it may hold; no more is unpacked.
    """
    where, text = _text(content, most)
    labels, values = array("d"), array("d")
    columns, ends = array("q"), array("q", [0])
    for number, line in enumerate(io.BytesIO(text), start=1):
        fields = line.partition(b"#")[0].split(maxsplit=features + 1)
        if not fields:
            continue
        try:
            labels.append(_number(fields[0]))
            last = 0
            for field in fields[1:]:
                last, value = _entry(field, last, features)
                columns.append(last - 1)
                values.append(value)
        except ValueError as error:
            raise DataError(f"{where}, line {number}: {error}. Get the file again.") from None
        ends.append(len(columns))
    if not labels:
        raise refused(where, expected="rows of data", found="none")
    sparse = need("scipy.sparse", "Reading LIBSVM files")
    matrix = sparse.csr_matrix(
        (np.array(values), np.array(columns), np.array(ends)), shape=(len(labels), features)
    )
    numbers: NDArray[np.float64] = np.array(labels)
    return SparseData(matrix, numbers, tuple(f"{label:g}" for label in np.unique(numbers)))


def _text(content: Content, most: int) -> Content:
    if bytes(content.data[:3]) == b"BZh":
        return unpack(content, "bzip2", most)
    if len(content.data) > most:
        raise refused(content.where, expected=f"at most {most:,} bytes of text", found="more")
    return content


def _number(text: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        value = None
    if value is None or b"_" in text:  # 1_000 is a number in Python only
        raise ValueError(f"expected a number, found {_shown(text)}")
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {_shown(text)}")
    return value


def _entry(field: bytes, last: int, limit: int) -> tuple[int, float]:
    """An index and its value; the index must be above the last one and within the limit."""
    head, colon, tail = field.partition(b":")
    if not colon or not head.isdigit():
        raise ValueError(f"expected index:value with an index from 1, found {_shown(field)}")
    index = int(head[:_DIGITS])
    if index <= last:
        reason = f"an index above {last}" if last else "indices from 1"
        raise ValueError(f"expected {reason}, found {_shown(field)}")
    if index > limit or len(head) > _DIGITS:
        raise ValueError(f"expected indices up to {limit}, found {_shown(field)}")
    return index, _number(tail)


def _shown(text: bytes) -> str:
    return repr(text[:_SHOWN].decode("ascii", "backslashreplace")) + "..." * (len(text) > _SHOWN)


def check_shape(found: SparseData, shape: Shape, where: str) -> SparseData:
    """Refuse data whose labels, rows or entries are not what they must be."""
    labels, counts = np.unique(found.labels, return_counts=True)
    here = {float(label): int(count) for label, count in zip(labels, counts, strict=True)}
    unknown = [label for label in here if label not in shape.labels]
    if unknown:
        known = ", ".join(f"{label:g}" for label in shape.labels)
        raise refused(where, expected=f"labels {known}", found=f"{unknown[0]:g}")
    if here != dict(shape.labels):
        raise refused(where, expected=f"rows {_counted(shape.labels)}", found=_counted(here))
    if shape.ones is not None:
        entries = np.diff(found.features.indptr)
        wrong = np.flatnonzero(entries != shape.ones)
        if wrong.size:
            raise refused(
                where,
                expected=f"{shape.ones} entries in every row",
                found=f"{int(entries[wrong[0]])} in row {int(wrong[0]) + 1}",
            )
        if not np.all(found.features.data == 1):
            raise refused(where, expected="no entry but 1", found="others")
    return SparseData(found.features, found.labels, shape.names)


def _counted(labels: Mapping[float, int]) -> str:
    total = sum(labels.values())
    each = ", ".join(f"{count:,} of label {label:g}" for label, count in labels.items())
    return f"{total:,} ({each})"


def load_libsvm(name: str, part: Part = "train", data: Path | None = None) -> SparseData:
    """A data set of the LIBSVM collection, in the order of the file.

    Args:
        name: mushrooms, phishing, a9a, w8a or ijcnn1.
        part: "train", or for a9a also "test".
        data: the folder to search; None for the default folders.
    """
    if (name, part) not in SHAPES:
        known = ", ".join(f"{n} ({p})" for n, p in SHAPES)
        raise ValueError(f"`load_libsvm` has no {name!r} ({part}). Use one of: {known}.")
    shape = SHAPES[name, part]

    def read(content: Content) -> SparseData:
        found = read_libsvm(content, shape.features, shape.most)
        return check_shape(found, shape, content.where)

    return read(locate(name, part, data, check=read).read())

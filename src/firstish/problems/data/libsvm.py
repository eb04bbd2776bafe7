"""LIBSVM text files, plain or packed with bzip2."""

from __future__ import annotations

import bz2
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstish.problems.data.errors import DataError, refused
from firstish.problems.data.extras import need
from firstish.problems.data.files import Part
from firstish.problems.data.locate import locate


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


def read_libsvm(path: Path, features: int | None = None) -> SparseData:
    """A LIBSVM file: on each line a label, then `index:value` with ascending indices from 1.

    What follows a # is left out, and so are empty lines.

    Args:
        path: the file, plain or packed with bzip2 (told by its bytes, not its name).
        features: how many columns; None for the highest index.
    """
    labels, values = array("d"), array("d")
    columns, ends = array("q"), array("q", [0])
    limit = math.inf if features is None else features
    for number, line in enumerate(_text(path).split(b"\n"), start=1):
        fields = line.partition(b"#")[0].split()
        if not fields:
            continue
        try:
            labels.append(_number(fields[0]))
            last = 0
            for field in fields[1:]:
                last, value = _entry(field, last, limit)
                columns.append(last - 1)
                values.append(value)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}. Get the file again.") from None
        ends.append(len(columns))
    if not labels:
        raise refused(path, expected="rows of data", found="none")
    width = features if features is not None else max(columns, default=-1) + 1
    sparse = need("scipy.sparse", "Reading LIBSVM files")
    matrix = sparse.csr_matrix(
        (np.array(values), np.array(columns), np.array(ends)), shape=(len(labels), width)
    )
    numbers: NDArray[np.float64] = np.array(labels)
    return SparseData(matrix, numbers, tuple(f"{label:g}" for label in np.unique(numbers)))


def _text(path: Path) -> bytes:
    content = path.read_bytes()
    if not content.startswith(b"BZh"):
        return content
    try:
        return bz2.decompress(content)
    except (OSError, ValueError, EOFError) as error:
        raise refused(path, expected="a whole bzip2 file", found=str(error)) from error


def _number(text: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"expected a number, found {_shown(text)}") from None
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {_shown(text)}")
    return value


def _entry(field: bytes, last: int, limit: float) -> tuple[int, float]:
    """An index and its value; the index must be above the last one and within the limit."""
    head, colon, tail = field.partition(b":")
    if not colon or not head.isdigit():
        raise ValueError(f"expected index:value with an index from 1, found {_shown(field)}")
    index = int(head)
    if index <= last:
        reason = f"an index above {last}" if last else "indices from 1"
        raise ValueError(f"expected {reason}, found {_shown(field)}")
    if index > limit:
        raise ValueError(f"expected indices up to {limit}, found {_shown(field)}")
    return index, _number(tail)


def _shown(text: bytes) -> str:
    return repr(text.decode("ascii", "backslashreplace"))


def check_shape(found: SparseData, shape: Shape, path: Path) -> SparseData:
    """Refuse data whose labels, rows or entries are not what they must be."""
    labels, counts = np.unique(found.labels, return_counts=True)
    here = {float(label): int(count) for label, count in zip(labels, counts, strict=True)}
    unknown = [label for label in here if label not in shape.labels]
    if unknown:
        known = ", ".join(f"{label:g}" for label in shape.labels)
        raise refused(path, expected=f"labels {known}", found=f"{unknown[0]:g}")
    if here != dict(shape.labels):
        raise refused(path, expected=f"rows {_counted(shape.labels)}", found=_counted(here))
    if shape.ones is not None:
        entries = np.diff(found.features.indptr)
        wrong = np.flatnonzero(entries != shape.ones)
        if wrong.size:
            raise refused(
                path,
                expected=f"{shape.ones} entries in every row",
                found=f"{int(entries[wrong[0]])} in row {int(wrong[0]) + 1}",
            )
        if not np.all(found.features.data == 1):
            raise refused(path, expected="no entry but 1", found="others")
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
        data: the folder to look in; None for the usual places.
    """
    if (name, part) not in SHAPES:
        known = ", ".join(f"{n} ({p})" for n, p in SHAPES)
        raise ValueError(f"`load_libsvm` has no {name!r} ({part}). Use one of: {known}.")
    shape = SHAPES[name, part]

    def read(path: Path) -> SparseData:
        return check_shape(read_libsvm(path, shape.features), shape, path)

    (path,) = locate(name, part, data, check=read).paths
    return read(path)

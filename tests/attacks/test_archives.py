"""The attack on readers of data sees what it is there to see."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from attacks.archives import _judge, _Watch
from attacks.readers import Reader, equal_to
from attacks.tally import Tally
from firstish.problems.datasets import DataError

WANTED = (np.zeros(2),)


def _raise(error: Exception) -> tuple[np.ndarray, ...]:
    raise error


def _out_of_memory() -> tuple[np.ndarray, ...]:
    raise DataError("file: broken") from MemoryError()


@pytest.fixture(scope="module")
def watch() -> _Watch:
    return _Watch()  # Python has no way to take it back


@pytest.mark.parametrize(
    ("read", "ends"),
    [
        (lambda path: WANTED, "survived"),
        (lambda path: _raise(DataError("file: broken")), "refused"),
        (lambda path: (np.ones(2),), "other arrays"),
        (lambda path: _raise(DataError("broken")), "not clear"),
        (lambda path: _raise(DataError("file: " + "x" * 5000)), "not clear"),
        (lambda path: _raise(ValueError("file: broken")), "ValueError"),
        (lambda path: _raise(MemoryError()), "MemoryError"),
        (lambda path: _out_of_memory(), "broken"),
        (lambda path: path.write_text("") and WANTED, "open"),
        (lambda path: path.mkdir() or WANTED, "os.mkdir"),
        (lambda path: (path.parent / "link").symlink_to("/etc") or WANTED, "os.symlink"),
    ],
)
def test_judgement(tmp_path: Path, watch: _Watch, read, ends: str) -> None:
    reader = Reader(
        "x", "x", lambda folder: None, b"", lambda data: read(tmp_path / "x"), equal_to(WANTED)
    )
    tally = Tally("x")
    _judge(reader, "a trial", b"", watch, tally)
    assert tally.tried == 1
    if ends in ("refused", "survived"):
        assert getattr(tally, ends) == 1
    else:
        assert ends in tally.lost[0]

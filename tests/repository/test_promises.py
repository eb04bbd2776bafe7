"""Every promise of docs/promises.md names tests, and each of them exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_the_named_test_exists(file, test):
    assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8")


def test_every_promise_names_a_test():
    promises = re.findall(r"^\*\*.*?(?=^\*\*|^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert len(promises) >= 10
    for promise in promises:
        assert "*Tried by* `tests/" in promise, promise

"""The list of faults still fits the source; `run.py` shows that each is caught."""

from pathlib import Path

import pytest
from faults import FAULTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_line_occurs_exactly_once(fault):
    text = (ROOT / "src" / "firstish" / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.original) == 1
    assert fault.faulty != fault.original
    compile(text.replace(fault.original, fault.faulty), fault.file, "exec")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_named_test_exists(fault):
    path, name = fault.test.split("::")
    function = name.partition("[")[0]
    assert f"\ndef {function}(" in (ROOT / path).read_text(encoding="utf-8")


def test_there_are_enough_and_each_has_its_own_name():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 18

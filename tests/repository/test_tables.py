"""Tables of the documents: as many cells in every row, and numbers aligned to the right."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md",
    *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md")),
]
RULE = re.compile(r"\|(\s*:?-+:?\s*\|)+")
NUMBER = re.compile(r"[-−<>+]?\s?\d[\d,]*(\.\d+)?(e[-+]?\d+)?(\s?(%|×))?( \[.*\])?")
NOTHING = ("", "-", "none")


def cells(line):
    return [cell.strip(" *") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def tables(text):
    """The rule of each table and the rows under it."""
    lines = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M).splitlines()
    for k, line in enumerate(lines):
        if RULE.fullmatch(line.strip()):
            end = next(
                (j for j in range(k + 1, len(lines)) if not lines[j].startswith("|")), len(lines)
            )
            yield cells(line), [cells(row) for row in lines[k + 1 : end]]


def numeric(column):
    told = [cell for cell in column if cell not in NOTHING]
    return bool(told) and all(NUMBER.fullmatch(cell) for cell in told)


def misaligned(text):
    """The numbers of the tables that have a column of numbers aligned to the left."""
    return [
        column
        for rule, rows in tables(text)
        for mark, *column in zip(rule[1:], *(row[1:] for row in rows), strict=True)
        if numeric(column) and not mark.endswith(":")
    ]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_numbers_are_aligned_to_the_right(name):
    assert misaligned((ROOT / name).read_text(encoding="utf-8")) == []


def test_a_column_of_numbers_on_the_left_is_seen():
    table = "| a | b | c |\n|---|---|--:|\n| x | 1,000 | 2 |\n| y | - | 3.5 % |\n"
    assert misaligned(table) == [["1,000", "-"]]

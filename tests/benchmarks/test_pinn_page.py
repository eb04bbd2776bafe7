"""The table of docs/physics-informed.md is that of the runs, whose ends lie beside it."""

import csv
from pathlib import Path
from statistics import median

import pytest
from race.learning.pinns import EQUATIONS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "physics-informed.md").read_text(encoding="utf-8")
METHODS = {
    "**lazy**, the default": "lazy",
    "torch's L-BFGS, its default": "torch-lbfgs",
    "Adam, then L-BFGS": "adam-lbfgs",
    "SciPy's L-BFGS-B, its default": "scipy-lbfgsb",
    "SciPy's BFGS": "scipy-bfgs",
}


@pytest.mark.parametrize("label", METHODS)
def test_a_line_of_the_table_is_what_the_runs_came_to(label):
    with (DOCS / "assets" / "race-pinns.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == METHODS[label]]
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {label} |"))
    cells = [cell.strip() for cell in line.strip("|").split("|")][1:]
    for equation, cell in zip(EQUATIONS, cells, strict=True):
        ends = [row for row in rows if row["problem"].rsplit("-", 1)[0] == equation.name]
        both = (median(float(end[key]) for end in ends) for key in ("loss", "error"))
        assert cell == " / ".join(f"{number:.1e}" for number in both)

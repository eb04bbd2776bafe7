"""The numbers of docs/which-method.md are those of the race, whose costs lie beside its figure."""

import csv
import math
import re
from pathlib import Path
from statistics import fmean

import pytest
from race.problem import held_out

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "which-method.md").read_text(encoding="utf-8")
METHODS = {
    "**lazy**, the default": "lazy",
    "torch's L-BFGS, its default: 100 pairs": "torch-lbfgs",
    "torch's L-BFGS, 10 pairs": "torch-lbfgs-10",
    "SciPy's L-BFGS-B, its default: 10 pairs": "scipy-lbfgsb",
    "SciPy's L-BFGS-B, 100 pairs": "scipy-lbfgsb-100",
    "SciPy's BFGS": "scipy-bfgs",
    "pytorch-minimize's BFGS": "torchmin-bfgs",
    "pytorch-minimize's L-BFGS, 100 pairs": "torchmin-lbfgs",
    "torchzero's BFGS, strong Wolfe": "torchzero-bfgs-wolfe",
    "Adam for a third of the calls, then torch's L-BFGS": "adam-lbfgs",
    "**plane**": "plane",
    "**CGMR**": "cgmr",
    "Adam, the best of five step sizes on each problem": "adam",
    "Adam, its grid charged": "adam +grid",
    "SciPy's Newton-CG": "scipy-newton-cg",
    "SciPy's trust-ncg": "scipy-trust-ncg",
    "SciPy's trust-krylov": "scipy-trust-krylov",
    "pytorch-minimize's Newton-CG": "torchmin-newton-cg",
    "pytorch-minimize's trust-ncg": "torchmin-trust-ncg",
}
OTHERS = {
    "torch's L-BFGS": "torch-lbfgs",
    "torch's L-BFGS, 10 pairs": "torch-lbfgs-10",
    "SciPy's L-BFGS-B": "scipy-lbfgsb",
    "SciPy's L-BFGS-B, 100 pairs": "scipy-lbfgsb-100",
    "SciPy's BFGS": "scipy-bfgs",
}
RATIOS = {
    **{
        f"lazy / {label}, {unit}": ("lazy", name, unit)
        for label, name in OTHERS.items()
        for unit in ("calls", "seconds")
    },
    "plane / CGMR, calls": ("plane", "cgmr", "calls"),
}


@pytest.fixture(scope="module")
def costs():
    with (DOCS / "assets" / "race-held-out.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["problem"] for row in rows} == {
        r["problem"] for r in rows if held_out(r["problem"])
    }
    found = {}
    for row in rows:
        found.setdefault((row["method"], float(row["tau"])), []).append(row)
    return found


def cells(label):
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {label} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def mean(rows, unit):
    return math.exp(fmean(math.log(float(row[f"charged_{unit}"])) for row in rows))


@pytest.mark.parametrize("label", METHODS)
def test_a_line_of_the_table_is_what_the_costs_say(label, costs):
    shown = [float(cell.replace(",", "")) for cell in cells(label)]
    for tau, three in ((1e-6, shown[:3]), (1e-9, shown[3:])):
        rows = costs[METHODS[label], tau]
        assert f"On {len(rows)} held-out problems" in PAGE
        assert three[0] == sum(row["calls"] != "" for row in rows)
        assert three[1] == round(mean(rows, "calls"))
        assert three[2] == pytest.approx(mean(rows, "seconds"), abs=5.1e-5)


@pytest.mark.parametrize("label", RATIOS)
def test_a_ratio_is_what_the_costs_say(label, costs):
    ours, theirs, unit = RATIOS[label]
    for tau, cell in zip((1e-3, 1e-6, 1e-9), cells(label), strict=True):
        shown, low, high = map(float, re.fullmatch(r"(.*) \[(.*), (.*)\]", cell).groups())
        ratio = mean(costs[ours, tau], unit) / mean(costs[theirs, tau], unit)
        assert shown == pytest.approx(ratio, abs=0.0051)
        assert low < ratio < high


def test_nothing_of_the_tables_is_left_unchecked():
    lines = [x for x in PAGE.splitlines() if re.match(r"\|.*\| [0-9.,]+( \[.*\])? \|$", x)]
    assert len(lines) == len(METHODS) + len(RATIOS)

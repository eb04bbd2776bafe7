"""Whatever stands in the records, there are a table, figures and a page."""

import json
import math
import re

import matplotlib.pyplot as plt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

pytest.importorskip("sklearn", reason="scikit-learn carries the digits")
from firstish.experiments.commands import report
from firstish.experiments.report.curves import window
from firstish.experiments.report.figures import FIGURES
from firstish.experiments.report.summary import digest, summarise
from firstish.experiments.storage import files, plain_json
from firstish.result import Row, Status
from firstish_command.app import app

HUGE, TINY = 1.7e308, 5e-324
METHODS = (
    "cgmr",
    "cg",
    "mr",
    "pono",
    "heavy-ball@10.0",
    "line-search-full@1.0",
    "line-search-full",
)
# Any float, and often the ones that break things.
FLOATS = (
    st.sampled_from(
        [0.0, -1.0, 1.0, TINY, 1e-300, 1e264, 1e300, HUGE, -HUGE, math.inf, -math.inf, math.nan]
    )
    | st.floats()
)


def row(iteration, value, grad_norm, scale, step_size, **more):
    told = Row(
        iteration=iteration,
        oracle_calls=2.0 + 3 * iteration,
        passes=2.0 + 3 * iteration,
        seconds=1e-3 * iteration,
        value=value,
        grad_norm=grad_norm,
        scale=scale,
        step_size=step_size,
    )
    return {**told.to_dict(), **more}


def write(folder, rows):
    """A run folder in which every method left these rows."""
    last = rows[-1]
    outcome = {"status": Status.NON_FINITE.name, "message": Status.NON_FINITE.value, "rate": None}
    outcome |= {k: last[k] for k in ("oracle_calls", "passes", "seconds", "value", "grad_norm")}
    outcome["iterations"] = last["iteration"]
    run = {"problem": "digits-mlp", "methods": list(METHODS), "gtol": 1e-4, "budget": 100}
    files.write_json(folder / "run.json", run)
    files.write_json(folder / "summary.json", {"methods": dict.fromkeys(METHODS, outcome)})
    for name in METHODS:
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def curve(values):
    return [row(k, v, abs(v), 1.0, 1.0) for k, v in enumerate(values)]


HOSTILE = {
    "diverging to the end of floats": curve([2.0, 1e100, 1e264, HUGE]),
    "not finite": curve([2.0, math.nan, math.inf, -math.inf]),
    "not finite from the start": curve([math.nan, 1.0, 2.0]),
    "negative": curve([-1.0, -2.0, -3.0]),
    "both ends of floats": curve([HUGE, -HUGE]),
    "to nothing": curve([1.0, 1e-300, TINY, 0.0]),
    "one row": curve([1.0]),
    "all equal": curve([1.0, 1.0, 1.0]),
    "all zero": curve([0.0, 0.0]),
    "large from the start": curve([1e307, 1e306]),
    "small from the start": curve([1e-300, 1e-307]),
    "hostile steps": [
        row(0, 2.0, 1.0, 1e-300, HUGE, curvature="NC"),
        row(1, 1.0, 1.0, HUGE, TINY, curvature="NC"),
        row(2, 0.5, 1.0, math.inf, 0.0),
        row(3, 0.2, 1.0, math.nan, math.nan),
        row(4, 0.1, 1.0, None, None),
    ],
    "a clock that stands still": [r | {"seconds": 0.0} for r in curve([2.0, 1.0, 0.5])],
}


def draw(summary, out):
    """As `draw_all`, with everything but the pixels, which take long."""
    chosen = ("main", "mr", "time", "gap", "backtracking")  # the others are drawn by the same code
    for figure in filter(None, (FIGURES[name](summary) for name in chosen)):
        figure.set_layout_engine("none")  # which would do it all twice
        figure.draw_without_rendering()
        plt.close(figure)
    return []


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_rows_leave_a_table_figures_and_a_page(tmp_path, name, monkeypatch):
    monkeypatch.setattr(report, "draw_all", draw)
    write(tmp_path, HOSTILE[name])
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "CGMR" in result.output
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    refuse = pytest.fail  # a browser's JSON knows no NaN
    assert len(json.loads(data.replace("<\\/", "</"), parse_constant=refuse)) == len(METHODS)
    told = plain_json.dumps(digest(summarise(tmp_path)))
    assert len(json.loads(told, parse_constant=refuse)["methods"]) == len(METHODS)


def test_a_step_size_that_diverges_leaves_figures_and_a_page(tmp_path):
    words = [
        "run",
        "digits-mlp",
        "--subset",
        "100",
        "--budget",
        "400",
        "--out",
        str(tmp_path / "r"),
    ]
    chosen = ["--method", "cgmr", "--method", "heavy-ball@10"]
    result = CliRunner().invoke(app, [*words, *chosen, "--out", str(tmp_path / "r")])
    assert result.exit_code == 0, result.output
    names = {path.name for path in (tmp_path / "r" / "figures").iterdir()}
    assert {"main.png", "main.pdf", "gap.png", "gap.pdf", "time.png"} <= names
    assert (tmp_path / "r" / "report.html").exists()


def test_what_diverges_leaves_the_rest_room(tmp_path):
    write(tmp_path, HOSTILE["diverging to the end of floats"])
    slow = curve([2.0, 1.9, 1.8])
    (tmp_path / "cgmr.jsonl").write_text("".join(json.dumps(r) + "\n" for r in slow))
    low, high = FIGURES["main"](summarise(tmp_path)).axes[0].get_ylim()
    plt.close("all")
    assert 1 < low < 1.8
    assert 2e3 <= high < 1e4


@settings(max_examples=300)
@given(st.lists(FLOATS, max_size=6), st.none() | FLOATS)
@example([1e-300, HUGE], None)
@example([1e-300, HUGE], 1e-300)
def test_a_window_is_one_that_can_be_drawn(values, first):
    low, high = window(values, first)
    assert 1e-210 < low < high < 1e210
    assert math.log10(high / low) < 50


@settings(max_examples=20)
@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=4))
def test_a_figure_with_such_a_window_is_drawn(points):
    figure = plt.figure(figsize=(1, 1), dpi=20)
    axis = figure.subplots()
    axis.set_xscale("log")
    axis.set_yscale("log", base=2)
    axis.set_xlim(window(x for x, _ in points))
    axis.set_ylim(window((y for _, y in points), points[0][1]))
    axis.plot(*zip(*points, strict=True))
    try:
        figure.canvas.draw()
    finally:
        plt.close(figure)

"""The figures hold the records, and are read without colour."""

from dataclasses import replace
from itertools import pairwise

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

pytest.importorskip("sklearn", reason="scikit-learn carries the digits")
from firstish.experiments import runner
from firstish.experiments.methods import METHODS, PANEL, parse_choice
from firstish.experiments.observers import Silent
from firstish.experiments.report.curves import best_so_far, thin
from firstish.experiments.report.dark import BACK, INK, darken
from firstish.experiments.report.figures import FIGURES, MARKERS
from firstish.experiments.report.summary import summarise
from firstish.experiments.settings import Settings
from firstish.experiments.styles import BLACK, GREEN, on_dark
from firstish.problems import PROBLEMS
from firstish.problems.base import Options

RUN = ("lazy", "cgmr", "mrcg", "cg", "mr", "gm", "adam@0.01", "line-search", "pono", "lbfgs")


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "r"
    settings = Settings(
        problem="digits-mlp",
        methods=tuple(map(parse_choice, RUN)),
        budget=120,
        options=Options(subset=150),
    )
    runner.run(settings, folder, Silent(), resume=False)
    return summarise(folder)


@pytest.fixture
def draw(summary):
    yield lambda name: FIGURES[name](summary)
    plt.close("all")


def curve(axis, label):
    (line,) = [line for line in axis.lines if line.get_label() == label]
    return list(line.get_xdata()), list(line.get_ydata())


def column(rows, field):
    return [row[field] for row in rows]


@pytest.mark.parametrize(
    ("name", "key", "field"),
    [("main", "cgmr", "value"), ("cg", "cg", "value"), ("mr", "mr", "grad_norm")],
)
def test_the_three_panels_are_those_of_the_paper(draw, summary, name, key, field):
    rows, label = summary.rows[key], parse_choice(key).label
    figure = draw(name)
    a, b, c = figure.axes
    assert curve(a, label) == (column(rows, "oracle_calls"), column(rows, field))
    per_iteration = [k + 1 for k in range(len(rows) - 1)]
    for axis, what in ((b, "scale"), (c, "step_size")):
        assert list(axis.lines[0].get_xdata()) == per_iteration
        assert list(axis.lines[0].get_ydata()) == column(rows[:-1], what)
    negative = [r for r in rows if r["curvature"] == "NC"]
    assert negative
    numbers = [r["iteration"] + 1 for r in negative]
    assert curve(a, "negative curvature") == (
        column(negative, "oracle_calls"),
        column(negative, field),
    )
    assert figure.get_suptitle() == "MLP on digits, 150 rows"
    assert [axis.get_title(loc="left") for axis in (a, b, c)] == [
        "(a)",
        f"(b) {label}",
        f"(c) {label}",
    ]
    assert curve(b, "negative curvature") == (numbers, column(negative, "scale"))
    assert curve(c, "negative curvature") == (numbers, column(negative, "step_size"))


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))
def test_the_page_has_the_formula_without_latex(problem):
    text = problem.formula_text
    assert text.startswith("f(x) = 1/n Σᵢ ")
    assert "λ/2 ‖x‖²" in text
    assert "\\" not in text


def test_pono_is_shown_with_its_best_so_far(draw, summary):
    axis = draw("pono").axes[0]
    along, up = curve(axis, "PoNo (best so far)")
    assert up == best_so_far(summary.rows["pono"])
    assert all(after <= before for before, after in pairwise(up))
    iterates = column(summary.rows["pono"], "value")
    assert any(list(line.get_ydata()) == iterates for line in axis.lines)
    assert along == column(summary.rows["pono"], "oracle_calls")


def test_all_scalings_and_the_seconds(draw, summary):
    scalings = draw("scalings").axes[0]
    assert [line.get_label() for line in scalings.lines] == [
        "Lazy step",
        "CGMR",
        "MRCG",
        "CG",
        "MR",
        "GM",
    ]
    along, up = curve(draw("time").axes[0], "L-BFGS, torch")
    rows = summary.rows["lbfgs"]
    assert (along, up) == (column(rows, "seconds"), column(rows, "value"))


@pytest.mark.parametrize("name", ["main", "pono", "scalings", "cg", "mr", "time", "gap"])
def test_the_default_method_is_in_every_figure(draw, summary, name):
    field = "grad_norm" if name == "mr" else "value"
    _, up = curve(draw(name).axes[0], "Lazy step")
    wanted = column(summary.rows["lazy"], field)
    assert len(up) > 2
    assert up == (wanted if name != "gap" else [v - summary.lowest for v in wanted][: len(up)])


def test_a_panel_of_unit_steps_alone_is_left_out(summary):
    (spread, unit) = (
        replace(summary, rows={**summary.rows, "cg": [r | {"step_size": s} for r in rows]})
        for s, rows in ((0.5, summary.rows["cg"]), (1.0, summary.rows["cg"]))
    )
    assert [len(FIGURES["cg"](s).axes) for s in (spread, unit)] == [3, 2]
    plt.close("all")


def test_the_dark_figure_is_the_same_in_other_colours(draw):
    figure = draw("pono")
    lines = figure.axes[0].lines
    before = [(line.get_label(), line.get_linestyle(), line.get_marker()) for line in lines]
    data = [list(line.get_ydata()) for line in lines]
    darken(figure)
    assert before == [(line.get_label(), line.get_linestyle(), line.get_marker()) for line in lines]
    assert data == [list(line.get_ydata()) for line in lines]
    colours = {line.get_label(): to_hex(line.get_color()) for line in lines}
    assert colours["L-BFGS, torch"] == on_dark(BLACK).lower() != BLACK
    assert colours["PoNo (best so far)"] == GREEN.lower()
    assert to_hex(figure.get_facecolor()) == BACK
    assert {to_hex(text.get_color()) for text in figure.findobj(Text)} == {INK}


@pytest.mark.parametrize("name", ["main", "pono", "scalings", "time", "gap"])
def test_the_legend_lies_beside_the_panels(draw, name):
    figure = draw(name)
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert not any(box.overlaps(axis.get_window_extent()) for axis in figure.axes)
    assert figure.bbox.x0 <= box.x0
    assert box.x1 <= figure.bbox.x1 + 1


@pytest.mark.parametrize("name", ["main", "pono", "scalings", "time", "gap"])
def test_curves_are_told_apart_in_grey(draw, name):
    lines = [line for line in draw(name).axes[0].lines if not line.get_label().startswith("_")]
    looks = {
        (line.get_linestyle(), line.get_marker(), line.get_markerfacecolor() == "white")
        for line in lines
    }
    assert len(looks) == len(lines)
    assert all(line.get_markevery() for line in lines if line.get_marker() != "x")


def style(key, position=0):
    return parse_choice(key).style(position)


def test_a_method_has_one_style_and_no_two_share_it():
    styles = [style(name, k) for k, name in enumerate(METHODS)]
    assert styles == [style(name, k + 5) for k, name in enumerate(METHODS)]
    assert len({(x.dash, x.marker) for x in styles}) == len(METHODS)
    assert len({(x.dash, x.colour) for x in styles}) == len(METHODS)
    assert len({style(name).marker for name in PANEL}) == len(PANEL)
    assert {x.marker.removesuffix("-open") for x in styles} <= MARKERS.keys()


def test_step_sizes_given_by_hand_differ_too():
    keys = [f"line-search-full@{step:g}" for step in (0.1, 1, 10, 100)]
    assert len({(x.dash, x.marker) for x in (style(key, k) for k, key in enumerate(keys))}) == 4


def test_thinning_keeps_the_ends_and_every_negative_curvature():
    rows = [{"iteration": k, "curvature": "NC" if k % 997 == 5 else "SPC"} for k in range(20_000)]
    kept = thin(rows)
    assert len(kept) < 3200
    assert kept[0] is rows[0]
    assert kept[-1] is rows[-1]
    assert [r for r in kept if r["curvature"] == "NC"] == [
        r for r in rows if r["curvature"] == "NC"
    ]

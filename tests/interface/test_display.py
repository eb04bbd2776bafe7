"""What a user sees of a run: the display, plots, tables and suggestions."""

import io
import sys

import pytest
import torch

import firstish
from firstish.interface.display import PLAIN_SECONDS, TERMINAL_SECONDS, Display
from firstish.interface.keywords import did_you_mean

START = torch.tensor([-1.2, 1.0], dtype=torch.float64)


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


def test_outside_of_a_terminal_there_is_a_line_every_few_seconds():
    stream, now = Stream(terminal=False), [0.0]
    display = Display(stream, lambda: now[0])
    for k in range(1000):
        now[0] = k / 50  # 20 seconds
        display.show(k, 1.0, 0.1, 4.0 * k, now[0])
    display.close("The end.")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1 + int(now[0] // PLAIN_SECONDS)
    assert "\r" not in stream.getvalue()
    assert lines[0] == "iteration 250  f = 1  |g| = 0.1  1000 oracle calls  5.0 s"
    assert lines[-1] == "The end."


def test_on_a_terminal_one_line_is_written_over():
    stream, now = Stream(terminal=True), [0.0]
    display = Display(stream, lambda: now[0])
    for k in range(1, 4):
        now[0] = k * TERMINAL_SECONDS * 1.01
        display.show(k, 1.0, 0.1, 4.0 * k, now[0])
    display.close("The end.")
    written = stream.getvalue().split("\r")[1:]
    assert len(written) == 4
    assert stream.getvalue().count("\n") == 1
    assert len(written[-1].rstrip("\n")) >= len(written[-2])  # nothing of it is left


def test_progress_is_shown_on_the_error_output_and_changes_nothing(capsys):
    result = firstish.minimize(rosenbrock, START, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == result.message
    assert torch.equal(result.x, firstish.minimize(rosenbrock, START).x)
    assert capsys.readouterr().err == ""


def test_the_path_has_a_point_for_each_row():
    result = firstish.minimize(rosenbrock, START.tolist(), path=True)
    assert len(result.path) == len(result.history)
    assert result.path[0].tolist() == START.tolist()
    assert result.path[-1].tolist() == result.x.tolist()
    for x, row in zip(result.path, result.history, strict=True):
        assert rosenbrock(torch.from_numpy(x)).item() == row.value
    assert firstish.minimize(rosenbrock, START).path is None


@pytest.mark.parametrize("y", ["value", "grad_norm", "step_size", "scale"])
@pytest.mark.parametrize("x", ["oracle_calls", "iteration", "seconds", "passes"])
def test_plot_draws_the_history_and_returns_the_axes(x, y):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    result = firstish.minimize(rosenbrock, START, method="CGMR", max_iterations=9)
    ax = result.plot(y, x=x, label="CGMR")
    assert result.plot(y, x=x, ax=ax, label="again") is ax
    line = ax.get_lines()[0]
    rows = [row for row in result.history if getattr(row, y) is not None]
    assert list(line.get_ydata()) == [getattr(row, y) for row in rows]
    assert list(line.get_xdata()) == [getattr(row, x) for row in rows]
    assert ax.get_yscale() == "log"
    assert [line.get_label() for line in ax.get_lines()] == ["CGMR", "again"]
    pyplot.close(ax.figure)


def test_plot_of_something_else_is_refused_by_name():
    result = firstish.minimize(rosenbrock, START, max_iterations=1)
    with pytest.raises(ValueError, match=r"`Result.plot\(y='loss'\)` must be one of 'value'"):
        result.plot("loss")
    with pytest.raises(ValueError, match=r"`Result.plot\(x='time'\)` must be.*'seconds'"):
        result.plot(x="time")


def test_to_frame_has_a_line_for_each_row():
    pytest.importorskip("pandas")
    result = firstish.minimize(rosenbrock, START, method="CGMR", max_iterations=9)
    table = result.to_frame()
    assert list(table.index) == list(range(10))
    assert table["value"].tolist() == [row.value for row in result.history]
    assert table["curvature"].iloc[0] == result.history[0].curvature.name


@pytest.mark.parametrize(
    ("package", "call", "remedy"),
    [
        ("matplotlib", "plot", r"pip install '\.\[plot\]'"),
        ("pandas", "to_frame", "pip install pandas"),
    ],
)
def test_without_the_package_the_error_says_what_to_install(monkeypatch, package, call, remedy):
    result = firstish.minimize(rosenbrock, START, max_iterations=1)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ModuleNotFoundError, match=rf"`Result.{call}\(\)` needs {package}.*{remedy}"
    ):
        getattr(result, call)()


def test_a_notebook_shows_a_table():
    result = firstish.minimize(rosenbrock, START, max_iterations=3)
    html = result._repr_html_()
    assert html.startswith("<table>")
    for part in ("MAX_ITERATIONS", "Raise max_iterations=3", f"{result.value:.6g}", "shape (2,)"):
        assert part in html


@pytest.mark.parametrize(
    ("name", "found"),
    [("digit-mlp", "digits-mlp"), ("Mushroms", "mushrooms"), ("zebra", None)],
)
def test_the_name_that_was_meant(name, found):
    answer = did_you_mean(name, ["digits-mlp", "mushrooms"])
    assert answer == (f" Did you mean {found!r}?" if found else "")


def test_with_bounds_the_norm_is_that_of_the_projected_gradient(monkeypatch, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setattr("firstish.interface.display.PLAIN_SECONDS", 0.0)
    result = firstish.minimize(rosenbrock, START, bounds=(-2, 2), max_iterations=2, progress=True)
    assert capsys.readouterr().err.count("|projected gradient| = ") == 3
    axes = result.plot("grad_norm")
    assert axes.get_ylabel() == "|projected gradient|"
    pyplot.close(axes.figure)

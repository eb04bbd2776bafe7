"""The table of winning step sizes: on the screen, in the folder and on the page."""

import html
import re

import pytest
from rich.console import Console

from firstish.experiments import console as screen
from firstish.experiments import winners
from firstish.experiments.report.page import write_report
from firstish.experiments.report.summary import summarise
from firstish.experiments.storage import files
from firstish.problems import get

# The paper's two tables, in its appendices on the MLP and on the ResNet: grid and winner.
PAPER = {
    "fashion-mlp": {
        "fixed": ([1, 0.1, 0.01, 0.001], 0.01),
        "adam": ([0.01, 0.001, 0.0001, 0.00001], 0.00001),
        "heavy-ball": ([0.1, 0.01, 0.001], 0.001),
        "nesterov": ([0.1, 0.01, 0.001], 0.001),
    },
    "imagenette-resnet": {
        "fixed": ([1, 0.1, 0.01, 0.001], 0.1),
        "adam": ([0.01, 0.001, 0.0001, 0.00001], 0.001),
        "heavy-ball": ([0.1, 0.01, 0.001], 0.01),
        "nesterov": ([0.1, 0.01, 0.001], 0.01),
    },
}


def tuned(folder, problem, won):
    """A run folder in which the grids are done: which step size won, by method."""
    run = {"problem": problem, "methods": list(won), "budget": 300, "gtol": 1e-4}
    files.write_json(folder / "run.json", run)
    outcome = {"status": "FAILED", "message": "no rows are needed here"}
    files.write_json(folder / "summary.json", {"methods": dict.fromkeys([*won, "cgmr"], outcome)})
    for k, (method, winner) in enumerate(won.items()):
        trials = [{"rate": rate, "oracle_calls": 40} for rate in get(problem).grids[method]]
        price = {"oracle_calls": 1234567 + k, "seconds": 2.25}
        grid = {"method": method, "winner": winner, "trials": trials, **price}
        files.write_json(folder / "tuning" / f"{method}.json", grid)
    return summarise(folder)


@pytest.mark.parametrize("problem", PAPER)
def test_a_row_per_tuned_method_beside_the_papers_winner(tmp_path, problem):
    rates = {method: winner for method, (_, winner) in PAPER[problem].items()}
    summary = tuned(tmp_path, problem, rates)
    lines = [winners.cells(problem, grid) for grid in winners.grids(summary)]
    assert [line[0] for line in lines] == ["Fixed step", "Adam", "Heavy ball", "Nesterov"]
    for line, (grid, winner) in zip(lines, PAPER[problem].values(), strict=True):
        assert [float(text) for text in line[1].split(", ")] == grid
        assert float(line[2].split(" ")[0]) == winner == float(line[3])
    assert lines[1][4:] == ["1234568", "2.2"]


def test_the_same_table_is_printed_written_and_on_the_page(tmp_path):
    summary = tuned(tmp_path, "fashion-mlp", {"adam": 1e-3, "fixed": None, "nesterov": 1e-1})
    expected = [list(winners.HEADERS)]
    expected += [winners.cells("fashion-mlp", grid) for grid in winners.grids(summary)]
    assert [row[2] for row in expected[1:]] == ["0.001", "none stayed finite", "0.1 (largest)"]

    written = winners.write_markdown(tmp_path, summary).read_text(encoding="utf-8")
    assert "No step size spent more than 40 oracle calls" in written
    table = [line for line in written.splitlines() if line.startswith("|")]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in table]
    assert [cells[0], *cells[2:]] == expected

    page = write_report(summarise(tmp_path), [], tmp_path).read_text(encoding="utf-8")
    (section,) = re.findall(r'aria-labelledby="tuning">(.*?)</div>', page, re.S)
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in section.split("<tr>")[1:]]
    assert [[html.unescape(c) for c in row] for row in rows] == expected

    wide = Console(width=200)
    with wide.capture() as capture:
        wide.print(screen.winners("fashion-mlp", winners.grids(summary)))
    lines = [re.split(r"[│┃]", line)[1:-1] for line in capture.get().splitlines()]
    assert [[c.strip() for c in line] for line in lines if line] == expected


def test_a_run_without_tuning_has_no_such_table(tmp_path):
    summary = tuned(tmp_path, "fashion-mlp", {})
    assert winners.write_markdown(tmp_path, summary) is None
    assert not (tmp_path / "tuning.md").exists()
    assert 'id="tuning"' not in write_report(summarise(tmp_path), [], tmp_path).read_text(
        encoding="utf-8"
    )

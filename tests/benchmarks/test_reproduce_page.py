"""docs/reproduce.md names a file for every figure of the paper, one that is really drawn."""

import re
from pathlib import Path

from firstish.experiments.report.figures import FIGURES
from firstish.problems import PROBLEMS

PAGE = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| (.*?) \| ([\w-]+) \| `(\w+)\.png` \|$", PAGE, flags=re.M)


def test_there_is_a_counterpart_for_each_of_the_nineteen_figures():
    assert [int(number) for number, *_ in ROWS] == list(range(1, 20))
    assert len({(problem, name) for _, _, problem, name in ROWS}) == 19


def test_the_files_and_the_problems_exist():
    assert {name for *_, name in ROWS} <= FIGURES.keys()
    assert {problem for _, _, problem, _ in ROWS} <= PROBLEMS.keys()


def test_the_page_names_the_scaling_that_is_drawn():
    for _, shows, problem, name in ROWS:
        if name == "main":
            assert shows.endswith(PROBLEMS[problem].scaling)


def test_the_commands_name_problems():
    named = re.findall(r"firstish (?:run|tune) ([\w-]+)", PAGE)
    assert set(named) == PROBLEMS.keys() - {"digits-mlp"}

"""docs/results and what README tells of it: as the program that judges would write them now."""

import re
from pathlib import Path

import pytest
import records
from claims import BETTER, CLAIMS, KINDS, WORDS, judge
from results import (
    commands,
    crossed,
    ended_early,
    penalty,
    percent,
    record,
    table,
    verdicts,
    winners,
)
from results_index import WHOLE, _glance, read
from test_verdicts import of_all_methods

from firstish.experiments.report.summary import summarise

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


def cells(line):
    return [cell.strip(" *") for cell in line.strip("| \n").split("|")]


@pytest.mark.parametrize("problem", KINDS)
def test_the_page_of_a_problem_judges_what_there_is_to_judge(problem):
    page = (RESULTS / f"{problem}.md").read_text(encoding="utf-8")
    judged = re.findall(r"^\| (\d)\. (.*?) \| (?:holds|\*\*does not hold|cannot)", page, flags=re.M)
    assert judged == [(str(v.claim), v.text) for v in of_all_methods(problem)]


def test_the_index_states_the_words_and_the_claims():
    index = (RESULTS / "index.md").read_text(encoding="utf-8")
    for word, meaning in WORDS.items():
        assert f"- *{word}*: {meaning}\n" in index
    for text, where in CLAIMS.values():
        assert f"{text} (The paper's {where}.)" in index


def test_the_table_of_all_verdicts_says_which_claims_fail_for_the_better():
    """A claim that holds, one that fails because ours is ahead, one that fails, one not there."""
    fails = [[4, "a", True, "1"], [1, "b", False, f"2; CGMR is {BETTER}"], [1, "c", False, "3"]]
    known = {"one": {"whole": {"verdicts": fails}}, "two": {"whole": {"verdicts": fails[:1]}}}
    head, _, *rows = map(cells, _glance(known))
    assert head == ["claim", "one", "two"]
    assert rows == [
        ["1. b", "does not hold (better)", "-"],
        ["1. c", "does not hold", "-"],
        ["4. a", "holds", "holds"],
    ]


@pytest.mark.parametrize("problem", KINDS)
def test_the_verdicts_at_the_whole_budget_are_those_of_the_published_records(problem, tmp_path):
    records.unpack(records.RECORDS / problem, tmp_path / problem)
    summary = summarise(tmp_path / problem)
    told = read(RESULTS)[problem]
    assert record(summary, told)["whole"] == told["whole"]
    name = f"{problem}-whole.md" if problem in WHOLE else f"{problem}.md"
    page = (RESULTS / name).read_text(encoding="utf-8")
    parts = (table, ended_early, penalty, winners, crossed)
    told = [line for part in parts for line in part(summary)]
    told += [*commands(summary.run), *verdicts(judge(summary))]
    assert not [line for line in told if f"{line}\n" not in page]


def test_nearly_all_is_not_rounded_to_all():
    shares = (None, 0.5, 0.9994, 0.9996, 1.0)
    assert [percent(s) for s in shares] == ["-", "50.0 %", "99.9 %", "over 99.9 %", "100.0 %"]


def column(problem, name):
    """A column of the table of a page, by method; of several step sizes the best."""
    page = (RESULTS / f"{problem}-whole.md").read_text(encoding="utf-8")
    table = next(t for t in re.findall(r"(?:^\|.*\n)+", page, flags=re.M) if "lowest f" in t)
    header, _, *lines = map(cells, table.splitlines())  # best first
    return {line[0].split(" @")[0]: line[header.index(name)] for line in reversed(lines)}


def to_tolerance(problem):
    """The calls to the tolerance, or else the lowest f."""
    best, met = column(problem, "lowest f"), column(problem, "norm g ≤ 0.0001")
    return {k: f"f {float(best[k]):.4f}" if met[k] == "-" else f"{int(met[k]):,}" for k in met}


def fitted():
    """The calls until the ResNet's images are fitted."""
    page = (RESULTS / "imagenette-resnet-whole.md").read_text(encoding="utf-8")
    told = re.search(r"is reached by (.*)\.\n", page)[1]
    return dict(re.findall(r"(?:^|; )(.*?) after ([\d,]+) calls", told))


def test_the_numbers_of_readme_are_those_of_the_pages():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("| at the paper's budget"))
    lowest = column("imagenette-resnet", "lowest f")
    pages = [
        to_tolerance("cifar10-logistic"),
        to_tolerance("fashion-mlp"),
        fitted(),
        {name: f"{float(f):.4f}" for name, f in lowest.items()},
    ]
    names = {
        "L-BFGS of torch": "L-BFGS, torch",
        "lazy step, the default": "Lazy step",
        "Adam, best step size": "Adam",
        "heavy ball": "Heavy ball",
        "CG alone": "CG",
        "line search, limited reset": "Line search, limited",
    }
    seen = 0
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *told = cells(line.replace("**", ""))
        for page, text in zip(pages, told, strict=True):
            key = name.removesuffix(", the paper's")
            assert text == page[names.get(key, key)], name
            seen += 1
    assert seen == 40

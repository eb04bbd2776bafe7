"""The command line as a user types it."""

import json
import os
import re
from itertools import pairwise

import pytest
from typer.testing import CliRunner

pytest.importorskip("sklearn", reason="scikit-learn carries the digits")
from firstish.experiments.commands import report
from firstish.experiments.commands.listing import ABOUT
from firstish.experiments.methods import METHODS, MethodSpec
from firstish_command.app import app

RUN = ["run", "digits-logistic", "--subset", "150", "--budget", "80", "--method", "cgmr"]


def invoke(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "r"
    more = [w for m in ("mrcg", "cg", "mr", "lbfgs", "pono") for w in ("--method", m)]
    result = invoke(*RUN, *more, "--out", path)
    assert result.exit_code == 0, result.output
    return path


def test_a_run_ends_with_a_table_and_says_where_everything_is(folder):
    result = invoke("report", folder)
    assert result.exit_code == 0
    for label in ("CGMR", "MRCG", "L-BFGS"):
        assert label in result.output
    assert str(folder) in result.output.replace("\n", "")


def test_the_figures_of_the_paper_are_drawn(folder):
    names = {p.stem for p in (folder / "figures").glob("*.png")}
    assert {"main", "pono", "scalings", "cg", "mr", "time", "gap"} <= names
    assert {p.stem for p in (folder / "figures").glob("*.pdf")} == names


def test_the_page_stands_alone_and_holds_the_numbers(folder):
    page = (folder / "report.html").read_text(encoding="utf-8")
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert "<script>" in page
    assert not re.search(r'(?:src|href)="(?!data:|#)', markup)
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    curves = json.loads(data.group(1).replace("<\\/", "</"))
    assert [c["label"] for c in curves] == ["CGMR", "MRCG", "CG", "MR", "L-BFGS, torch", "PoNo"]
    assert all(len(c["oracle_calls"]) == len(c["gap"]) for c in curves)
    (pono,) = [c["value"] for c in curves if c["label"] == "PoNo"]
    assert all(after <= before for before, after in pairwise(pono))
    assert "The objective of PoNo is the best so far." in markup
    assert len(page) < 4e6
    looks = {(c["colour"], c["dash"]) for c in curves}
    assert len(looks) == len(curves)


def test_the_page_begins_with_what_it_takes_to_repeat_the_run(folder):
    page = (folder / "report.html").read_text(encoding="utf-8")
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (facts,) = re.findall(r'<dl class="facts">(.*?)</dl>', page)
    told = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", facts))
    assert list(told) == ["command", "seed", "date", "versions", "machine"]
    threads = f"OMP_NUM_THREADS={run['threads']} firstish run digits-logistic "
    assert told["command"].startswith(threads + "--method cgmr --method mrcg")
    assert told["date"] == run["started"]
    assert told["versions"] == f"firstish {run['firstish']}, torch {run['torch']}, " + (
        f"python {run['python']}"
    )
    assert told["machine"] == (
        f"processor {run['processor']}, machine {run['machine']}, threads {run['threads']}, "
        "processes 1, device cpu, dtype float64"
    )
    assert page.index('<dl class="facts">') < page.index("<table")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "digits"], "digits-logistic"),
        ([*RUN[:2], "--method", "sgd"], "Unknown method 'sgd'"),
        ([*RUN, "--dtype", "float16"], "float32 or float64"),
        (["report", "nowhere"], "holds no run"),
        (["tune", "digits-logistic", "--method", "gm"], "gm has no step size to tune"),
        (["run", "digits-logistic", "--method", "adam@-0.1"], "'-0.1' is not a step size"),
        (["run", "digits-logistic", "--method", "adam@inf"], "'inf' is not a step size"),
        (["run", "digits-logistic", "--device", "banana"], "--device banana cannot be used: "),
        (["run", "digits-logistic", "--device", "meta"], "--device meta cannot be used: "),
        (["run", "digits-logistic", "--device", "xla"], "--device xla cannot be used: "),
        (["run", "digits-logistic", "--device", "hpu"], "--device hpu cannot be used: "),
        (["tune", "digits-logistic", "--device", "meta"], "--device meta cannot be used: "),
        (["data", "mnist"], "Unknown data set 'mnist'"),
        (["data", "mushroom"], "Did you mean 'mushrooms'?"),
        (["run", "digit-mlp"], "Did you mean 'digits-mlp'?"),
        (["run", "digits-mlp", "--method", "adm"], "Did you mean 'adam'?"),
        (["run", "digits-mlp", "--subset", "99999"], "--subset"),
    ],
)
def test_a_mistake_is_told_in_one_line(words, told, tmp_path):
    result = invoke(*words, *(["--out", tmp_path / "r"] if words[0] == "run" else []))
    assert result.exit_code == 2
    assert told in result.output.replace("\n", " ")
    assert "Traceback" not in result.output


def test_a_run_of_no_iteration_has_its_table_and_page(tmp_path):
    words = ["run", "digits-logistic", "--subset", "100", "--budget", "1", "--out", tmp_path / "r"]
    result = invoke(*words, "--method", "cgmr", "--method", "pono", "--method", "line-search")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "r" / "report.html").exists()


def test_a_run_in_which_all_failed_has_its_table_and_page(tmp_path, monkeypatch):
    def broken(problem, instance, rate):
        raise RuntimeError("out of luck")

    monkeypatch.setitem(METHODS, "gm", MethodSpec("GM", broken))
    words = ["run", "digits-logistic", "--subset", "100", "--method", "gm", "--out", tmp_path / "r"]
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    assert "RuntimeError: out of luck" in result.output
    assert (tmp_path / "r" / "report.html").exists()


def test_the_list_names_all_problems_and_methods():
    result = invoke("list")
    assert result.exit_code == 0
    for name in ("digits-mlp", "imagenette-resnet", "heavy-ball", "abbmin"):
        assert name in result.output
    assert "standard panel" in result.output
    assert "The default of `minimize` is lazy." in result.output


def test_every_method_is_described_on_one_line_of_the_list():
    assert list(ABOUT) == list(METHODS)
    assert max(map(len, ABOUT.values())) <= 31


def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTISH_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    words = ["run", "mushrooms", "--data", tmp_path / "empty", "--out", tmp_path / "r"]
    result = invoke(*words)
    assert result.exit_code == 2
    assert "mushrooms" in result.output
    assert not (tmp_path / "r").exists()


def test_a_grid_names_its_winner_and_its_price():
    words = ["tune", "digits-logistic", "--subset", "150", "--budget", "40"]
    result = invoke(*words)
    assert result.exit_code == 0
    assert "winner 0.1; the grid took 200 oracle calls" in result.output


def test_one_file_that_cannot_be_read_does_not_hide_the_others(tmp_path, monkeypatch):
    (tmp_path / "mushrooms").write_text("1 1:1\n")

    def forbidden(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("firstish.problems.datasets.files.digest", forbidden)
    os.truncate(tmp_path / "mushrooms", 879_712)  # its size: now its checksum is wanted
    result = invoke("data", "--data", tmp_path)
    assert result.exit_code == 0
    shown = " ".join(result.output.replace("│", " ").split())
    assert "mushrooms unreadable" in shown
    assert "Permission denied" in shown
    assert "digits embedded" in shown


def test_the_data_sets_are_listed_with_a_way_to_get_them(tmp_path):
    result = invoke("data", "--data", tmp_path)
    assert result.exit_code == 0
    assert "pip install '.[data]'" in result.output
    assert result.output.count("missing") >= 5


def test_files_that_are_wrong_or_of_a_copy_not_known_are_told_apart(tmp_path):
    for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "mushrooms"):
        (tmp_path / name).write_text("1 1:1\n")
    result = invoke("data", "--data", tmp_path)
    assert "2 of 2 WRONG" in result.output
    assert re.search(r"mushrooms\W+1 here, unchecked", result.output)


def test_seconds_of_the_processor_are_counted_on_request(tmp_path):
    place = ["--out", str(tmp_path / "run")]
    words = ["run", "--budget", "40", "--method", "cgmr", "--method", "adam", *place]
    assert invoke(*words, "--processor-time").exit_code == 0
    assert (
        json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["processor_time"]
        is True
    )
    grid = json.loads((tmp_path / "run" / "tuning" / "adam.json").read_text(encoding="utf-8"))
    assert grid["seconds"] == sum(trial["seconds"] for trial in grid["trials"])
    assert invoke(*words, "--resume").exit_code == 0  # it is recalled
    assert (
        json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["processor_time"]
        is True
    )


def test_a_run_can_be_given_more_methods_later(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "draw_all", lambda summary, out: [])  # seven times over
    out, once, whole = ["--out", tmp_path / "r"], ["--method", "cgmr"], ["--out", tmp_path / "w"]
    more = ["--method", "gm", "--method", "adam@0.01"]
    run = ["run", "--budget", "60"]
    assert invoke(*run, *once, *out).exit_code == 0
    first = (tmp_path / "r" / "cgmr.jsonl").read_bytes()
    assert invoke(*run, *more, *out, "--resume").exit_code == 0
    assert (tmp_path / "r" / "cgmr.jsonl").read_bytes() == first
    assert invoke(*run, *out, "--resume").exit_code == 0  # without any, it keeps to its own
    assert invoke(*run, *once, *more, *whole).exit_code == 0

    def told(folder):
        marks, ends = (
            json.loads((tmp_path / folder / f).read_text(encoding="utf-8"))
            for f in ("run.json", "summary.json")
        )
        ends = {k: {**v, "seconds": 0} for k, v in ends["methods"].items()}
        return marks["methods"], list(ends), ends

    assert told("r") == told("w")
    assert told("r")[0] == ["cgmr", "gm", "adam@0.01"]
    assert invoke("run", *out, "--resume", "--method", "mr").exit_code == 0  # settings are recalled
    assert told("r")[2]["mr"]["oracle_calls"] == 62
    assert told("r")[0] == ["cgmr", "gm", "adam@0.01", "mr"]
    other = invoke("run", "--budget", "50", *out, "--resume")
    assert other.exit_code == 2
    assert "budget was 60, is 50. The budget can be raised, not lowered." in " ".join(
        other.output.split()
    )


def test_to_go_on_there_must_be_a_run(tmp_path):
    asked = invoke("run", "--out", tmp_path / "none", "--resume")
    assert asked.exit_code == 2
    assert "holds no run. Start one without --resume" in asked.output.replace("\n", " ")
    assert not (tmp_path / "none").exists()


def test_where_no_method_met_the_tolerance_the_sentence_has_what_they_reached(tmp_path):
    words = [w for m in ("lazy", "lbfgs") for w in ("--method", m)]
    told = invoke("run", "--budget", "20", *words, "--out", tmp_path / "r").output
    best = [
        min(
            json.loads(row)["value"]
            for row in (tmp_path / "r" / name).read_text(encoding="utf-8").splitlines()
        )
        for name in ("lazy.jsonl", "lbfgs.jsonl")
    ]
    sentence = f"the default, came down to f = {best[0]:.6g}; L-BFGS, torch {best[1]:.6g}"
    assert sentence in told.replace("\n", " ")


def test_a_run_ends_with_a_sentence_on_the_default(folder, tmp_path):
    words = [w for m in ("lazy", "adam@0.1", "lbfgs") for w in ("--method", m)]
    told = invoke(*RUN, "--gtol", "1e-2", *words, "--out", tmp_path / "r").output.replace("\n", " ")
    rows = [
        json.loads(r)
        for r in (tmp_path / "r" / "lazy.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    calls = next(r["oracle_calls"] for r in rows if r["grad_norm"] <= 1e-2)
    sentence = f"Lazy step, the default, took {calls:g} oracle calls to |g| ≤ 0.01; CGMR "
    assert sentence in told
    assert "the default" not in invoke("report", folder).output  # where it was not run


def test_an_unknown_problem_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "Unknown problem 'nosuch'" in invoke("run", "nosuch").output
    assert not list(tmp_path.iterdir())

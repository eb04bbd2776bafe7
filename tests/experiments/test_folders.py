"""Which folder a run takes, and that no two processes write into the same."""

import errno
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

pytest.importorskip("sklearn", reason="scikit-learn carries the digits")
from firstish.experiments import runner
from firstish.experiments.methods import parse_choice
from firstish.experiments.observers import Silent
from firstish.experiments.report.figures import FIGURES
from firstish.experiments.report.page import write_report
from firstish.experiments.report.summary import summarise
from firstish.experiments.settings import Settings
from firstish.experiments.storage import files, folders, sessions
from firstish.problems.base import Options
from firstish_command.app import app

RUN = ["run", "digits-logistic", "--subset", "60", "--budget", "10", "--method", "cgmr", "--quiet"]


def invoke(*words):
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output.replace("\n", " ")


def settings(*methods):
    choices = tuple(parse_choice(m) for m in methods)
    options = Options(subset=60)
    return Settings(problem="digits-logistic", methods=choices, budget=10, options=options)


def run(folder, *methods, resume=False, observer=None):
    runner.run(settings(*methods), folder, observer or Silent(), resume)


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    """A current folder of one's own, and no figures, which take seconds each."""
    monkeypatch.chdir(tmp_path)
    for name in list(FIGURES):
        monkeypatch.delitem(FIGURES, name)


HOLD = """
import fcntl, os, sys
with open(sys.argv[1], "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("process", os.getpid(), "on this machine", file=file, flush=True)
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that writes into a folder with a finished run."""
    folder = tmp_path / "runs" / "digits-logistic"
    run(folder, "cgmr")
    words = [sys.executable, "-c", HOLD, str(folder / ".lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        yield folder, process
        process.kill()


def test_a_folder_in_use_is_refused_by_name_and_process_and_free_after_a_kill(holder):
    folder, process = holder
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    for words in (("run", "--resume"), ("run", "--resume", "--out", folder), ("report", folder)):
        code, told = invoke(*words)
        assert code == 2
        assert "digits-logistic is in use by process" in told
        assert str(process.pid) in told
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    code, told = invoke("report", folder, "--out", "page", "--quiet")
    assert code == 0, told
    process.kill()
    process.wait()
    code, told = invoke("run", "--resume", "--out", folder, "--quiet")
    assert code == 0, told


def test_a_second_run_gets_a_folder_of_its_own(tmp_path):
    assert invoke(*RUN)[0] == invoke(*RUN, "--seed", "1")[0] == 0
    seeds = [
        files.read_json(tmp_path / "runs" / name / "run.json")["seed"]
        for name in ("digits-logistic", "digits-logistic-2")
    ]
    assert seeds == [0, 1]


def test_no_two_make_the_same_folder(tmp_path):
    """`attacks.two_runs` does it with processes."""
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(folders.fresh, [tmp_path / "runs" / "x"] * 60))
    assert len(set(made)) == 60
    assert {p.name for p in made} == {"x", *(f"x-{k}" for k in range(2, 61))}


def test_a_run_that_cannot_begin_leaves_no_folder_of_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTISH_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    assert invoke("run", "mushrooms", "--data", tmp_path / "empty")[0] == 2
    assert not list((tmp_path / "runs").iterdir())


def begun(folder, problem="digits-logistic", methods=("cgmr",), ended=(), day=1):
    """A run folder with nothing but what tells which run it is."""
    mark = {"problem": problem, "methods": methods, "started": f"2026-01-{day:02}T00:00:00+0000"}
    files.write_json(folder / "run.json", mark)
    if ended:
        files.write_json(folder / "summary.json", {"methods": {key: {} for key in ended}})


def test_resume_takes_the_unfinished_run_and_no_copy(tmp_path):
    runs = tmp_path / "runs" / "digits"
    begun(runs, "digits", ended=["cgmr"], day=3)
    begun(runs.with_name("digits-2"), "digits", methods=("cgmr", "mr"), ended=["cgmr"])
    for other in ("digits-backup", "digits-2.old", "digits-2 copy", "digits-02", "digits2"):
        begun(runs.with_name(other), "digits", day=9)
    begun(runs.with_name("digits-mlp"), "digits-mlp", day=9)
    begun(runs.with_name("digits-3"), "digits-3", day=9)  # another problem by its own name
    assert folders.to_resume(runs, "digits") == runs.with_name("digits-2")


def test_resume_takes_the_last_run_where_all_are_finished(tmp_path):
    runs = tmp_path / "runs" / "digits"
    assert folders.to_resume(runs, "digits") == runs  # which holds no run, as is then said
    for number, day in ((2, 5), (3, 7), (10, 6)):
        begun(runs.with_name(f"digits-{number}"), "digits", ended=["cgmr"], day=day)
    assert folders.to_resume(runs, "digits") == runs.with_name("digits-3")


def test_resume_asks_which_of_several_and_leaves_out_what_is_going_on(tmp_path):
    runs = tmp_path / "runs" / "digits-logistic"
    begun(runs)
    begun(runs.with_name("digits-logistic-2"))
    code, told = invoke("run", "--resume")
    assert code == 2
    assert "runs/digits-logistic, runs/digits-logistic-2" in told
    assert "Name one by --out" in told
    with folders.occupied(runs):
        found = folders.to_resume(runs, "digits-logistic")
    assert found == runs.with_name("digits-logistic-2")


class Told(Silent):
    def __init__(self):
        self.notes = []

    def note(self, sentence):
        self.notes.append(sentence)


def test_a_resume_with_other_versions_is_said_recorded_and_on_the_page(tmp_path, monkeypatch):
    folder = tmp_path / "r"
    run(folder, "cgmr")
    page = write_report(summarise(folder), [], folder).read_text(encoding="utf-8")
    assert "From 20" not in page
    real, told = sessions.versions(), Told()
    other = {**real, "torch": "9.8.7", "threads": real["threads"] + 1}
    monkeypatch.setattr(sessions, "versions", lambda: other)
    run(folder, "cgmr", "mr", resume=True, observer=told)
    (note,) = told.notes
    assert f"torch 9.8.7 (before: {real['torch']})" in note
    assert f"threads {real['threads'] + 1} (before: {real['threads']})" in note
    marks = files.read_json(folder / "run.json")
    assert [s["torch"] for s in marks["sessions"]] == [real["torch"], "9.8.7"]
    assert [s["from"] for s in marks["sessions"]] == [{"cgmr": 0}, {"mr": 0}]
    page = write_report(summarise(folder), [], folder).read_text(encoding="utf-8")
    assert re.search(r"From 20\S+ on with torch 9\.8\.7 .*: mr from row 0\.", page)
    assert f"<dt>torch</dt><dd>{real['torch']}, then 9.8.7</dd>" in page
    code, said = invoke("report", folder)
    assert code == 0
    assert "torch 9.8.7" in said


def test_a_run_of_an_older_version_goes_on_with_a_word(tmp_path):
    """Its files have no checks and no sessions."""
    folder = tmp_path / "r"
    run(folder, "cgmr")
    for path in (folder / "run.json", folder / "summary.json"):
        content = files.read_json(path)
        content.pop("sessions", None)
        content.pop("records", None)
        content |= {"firstish": "0.0.1"} if path.stem == "run" else {}
        path.write_text(json.dumps(content))
    rows = (folder / "cgmr.jsonl").read_text(encoding="utf-8")
    (folder / "cgmr.jsonl").write_text(re.sub(r', "check": "\w{8}"\}', "}", rows))
    told = Told()
    run(folder, "cgmr", "mr", resume=True, observer=told)
    assert "(before: 0.0.1)" in told.notes[0]
    assert set(files.read_json(folder / "summary.json")["methods"]) == {"cgmr", "mr"}
    assert write_report(summarise(folder), [], folder).exists()


def test_nothing_is_said_or_written_where_nothing_is_left_to_do(tmp_path):
    run(tmp_path / "r", "cgmr")
    before = (tmp_path / "r" / "run.json").read_bytes()
    told = Told()
    run(tmp_path / "r", "cgmr", resume=True, observer=told)
    assert not told.notes
    assert (tmp_path / "r" / "run.json").read_bytes() == before


def test_a_file_system_without_locks_is_no_reason_to_fail(tmp_path, monkeypatch):
    def unsupported(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(folders.fcntl, "flock", unsupported)
    run(tmp_path / "r", "cgmr")
    assert (tmp_path / "r" / "summary.json").exists()

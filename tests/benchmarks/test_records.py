"""Packed records give the table, the verdicts and the report of the run that they are of."""

import math
import shutil

import pytest
import records
from claims import judge
from typer.testing import CliRunner

from firstish.experiments.report.summary import summarise
from firstish.experiments.storage import files
from firstish_command.app import app


def firstish(*words):
    assert CliRunner().invoke(app, words).exit_code == 0


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two folders with the same settings, and two with others."""
    base = tmp_path_factory.mktemp("runs")
    for name, methods in (("one", ["cgmr", "mr"]), ("two", ["line-search", "lazy"])):
        chosen = [word for method in methods for word in ("--method", method)]
        settings = ["--budget", "300", "--subset", "200", "--out", str(base / name), "-q"]
        firstish("run", "digits-logistic", *chosen, *settings)
    trial = {"rate": 0.1, "value": 1.0, "status": "CONVERGED", "oracle_calls": 9, "seconds": 1.0}
    grid = {"method": "mr", "winner": 0.1, "oracle_calls": 9, "seconds": 1.0, "trials": [trial]}
    files.write_json(base / "one" / "tuning" / "mr.json", grid)
    for name, change in (("short", {"budget": 100}), ("other", {"gtol": 0.1})):
        shutil.copytree(base / "two", base / name)
        run = files.read_json(base / name / "run.json")
        files.write_json(base / name / "run.json", {**run, **change})
    return base


def test_two_folders_become_one_run_with_the_same_lines(runs, tmp_path):
    for name in ("one", "two"):
        records.pack(runs / name, tmp_path / "records")
    made = tmp_path / "made"
    records.unpack(tmp_path / "records" / "digits-logistic", made)
    summary = summarise(made)
    assert {line.key for line in summary.lines} == {"cgmr", "mr", "line-search", "lazy"}
    for name in ("one", "two"):
        original = summarise(runs / name)
        lines = {line.key: line for line in summary.lines}
        for line in original.lines:
            other = lines[line.key]
            assert other.outcome == line.outcome
            assert other.cases == line.cases
            assert other.unit_steps == line.unit_steps
            assert other.backtracks == line.backtracks
            assert math.isclose(other.best, line.best, rel_tol=1e-8)
            assert len(summary.rows[line.key]) == len(original.rows[line.key])
    first = {v.text: v.holds for v in judge(summarise(runs / "one"))}
    both = {v.text: v.holds for v in judge(summary)}
    assert all(both[text] is holds for text, holds in first.items() if holds is not None)
    tuning = [files.read_json(folder / "tuning" / "mr.json") for folder in (made, runs / "one")]
    assert tuning[0] == tuning[1]
    firstish("report", str(made))


def test_the_methods_of_one_session_are_of_one_session(runs, tmp_path):
    records.pack(runs / "one", tmp_path)
    records.unpack(tmp_path / "digits-logistic", tmp_path / "made")
    run, made = (
        files.read_json(folder / "run.json") for folder in (runs / "one", tmp_path / "made")
    )
    assert made["sessions"] == run["sessions"]
    assert len(made["sessions"]) == 1


def test_a_run_with_other_settings_is_not_mixed_in(runs, tmp_path):
    records.pack(runs / "one", tmp_path)
    with pytest.raises(SystemExit, match=r"budget 100, packed 300"):
        records.pack(runs / "short", tmp_path)


def test_seconds_per_call_are_those_of_one_session(runs, tmp_path):
    records.pack(runs / "one", tmp_path)
    records.paces(runs / "two", tmp_path)
    records.unpack(tmp_path / "digits-logistic", tmp_path / "made")
    summary = summarise(tmp_path / "made")
    assert [line.key for line in summary.lines] == ["cgmr", "mr"]
    lines = {line.key: line for line in summarise(runs / "two").lines}
    paces = {k: line.outcome["seconds"] / line.outcome["oracle_calls"] for k, line in lines.items()}
    assert summary.run["paces"] == {"calls": 300, "seconds": paces}
    with pytest.raises(SystemExit, match=r"gtol 0\.1, packed 1e-06"):
        records.paces(runs / "other", tmp_path)
    firstish("run", "--resume", "--budget", "310", "--out", str(runs / "short"), "-q")
    with pytest.raises(SystemExit, match="several sessions"):
        records.paces(runs / "short", tmp_path)


def test_nothing_is_overwritten(runs, tmp_path):
    records.pack(runs / "one", tmp_path)
    with pytest.raises(SystemExit, match="exists already"):
        records.unpack(tmp_path / "digits-logistic", runs / "one")
    with pytest.raises(SystemExit, match="no packed methods"):
        records.unpack(tmp_path / "mushrooms", tmp_path / "made")

"""Damaged files and full disks: nothing is lost, dropped or made up, and the file is named."""

import errno
import json
import os
import signal

import pytest
from typer.testing import CliRunner

pytest.importorskip("sklearn", reason="scikit-learn carries the digits")
from firstish.experiments import runner, tuning
from firstish.experiments.methods import parse_choice
from firstish.experiments.observers import Silent
from firstish.experiments.report.figures import FIGURES
from firstish.experiments.settings import Settings
from firstish.experiments.storage import files
from firstish.experiments.storage.rows import read_rows
from firstish.problems.base import Options
from firstish_command.app import app


def settings(*methods, budget=60, **more):
    choices = tuple(parse_choice(m) for m in methods)
    options = Options(subset=60)
    return Settings(
        problem="digits-logistic", methods=choices, budget=budget, options=options, **more
    )


# A checkpoint after every step.
EVERY = settings("cgmr", "mr", budget=40, gtol=0.0, checkpoint_seconds=0.0)


class After(Silent):
    """Does something after a number of steps, and keeps what it is told."""

    def __init__(self, steps=None, act=None):
        self.left, self.act, self.notes = steps, act, []

    def advanced(self, choice, row):
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                self.act()

    def note(self, sentence):
        self.notes.append(sentence)


def press():
    os.kill(os.getpid(), signal.SIGINT)


def records(folder):
    """All rows but for the time they took."""
    paths = sorted(folder.glob("*.jsonl"))
    return {
        p.stem: [{k: v for k, v in row.items() if k != "seconds"} for row in read_rows(p)]
        for p in paths
    }


def outcomes(folder):
    return files.read_json(folder / "summary.json")["methods"]


def invoke(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


def resumed(folder):
    """`firstish run --resume` on that folder."""
    result = invoke("run", "--out", folder, "--resume", "--quiet")
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output.replace("\n", " ")


@pytest.fixture(autouse=True)
def one_figure(monkeypatch):
    """The other figures take seconds each."""
    for name in set(FIGURES) - {"gap"}:
        monkeypatch.delitem(FIGURES, name)


def flip(path, place=None):
    """Change one byte in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "r"
    runner.run(EVERY, folder, Silent(), resume=False)
    return records(folder)


@pytest.fixture
def cut(tmp_path, whole):
    """A run that was interrupted in its second method, which has two checkpoints."""
    folder, first = tmp_path / "r", len(whole["cgmr"]) - 1
    with pytest.raises(KeyboardInterrupt):
        runner.run(EVERY, folder, After(first + 6, press), resume=False)
    return folder


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_taken(cut, whole):
    path = cut / "checkpoints" / "mr.npz"
    path.write_bytes(path.read_bytes()[:-100])
    watcher = After()
    runner.run(EVERY, cut, watcher, resume=True)
    assert "FAILED" not in {end["status"] for end in outcomes(cut).values()}
    assert records(cut) == whole
    (note,) = watcher.notes
    assert str(path) in note
    assert "the checkpoint before it" in note


def test_without_one_before_it_the_run_stops_and_nothing_is_deleted(cut, whole):
    path = cut / "checkpoints" / "mr.npz"
    kept = path.read_bytes()
    for other in path.parent.glob("mr.npz?*"):
        other.unlink()
    flip(path)
    before = {p: p.read_bytes() for p in cut.rglob("*") if p.is_file()}
    for _ in range(2):  # and a second time alike
        code, told = resumed(cut)
        assert code == 2
        assert f"{path} is damaged" in told
        assert "delete it to start mr again" in told
    after = {p: p.read_bytes() for p in before}
    before.pop(cut / "run.json")
    after.pop(cut / "run.json")
    assert after == before
    path.write_bytes(kept)
    runner.run(EVERY, cut, Silent(), resume=True)
    assert records(cut) == whole


def test_a_checkpoint_that_cannot_be_opened_stops_the_run(cut):
    path = cut / "checkpoints" / "mr.npz"
    path.unlink()
    path.mkdir()  # whoever runs this, root too, cannot read that as a file
    code, told = resumed(cut)
    assert code == 2
    assert str(path) in told
    assert list(outcomes(cut)) == ["cgmr"]


@pytest.mark.parametrize("call", [1, 3, 6, 11, 16])
def test_a_full_disk_stops_the_run_names_the_file_and_loses_nothing(
    tmp_path, monkeypatch, whole, call
):
    folder, real, calls = tmp_path / "r", os.fsync, 0

    def full(descriptor):
        nonlocal calls
        calls += 1
        if calls >= call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"{folder}.*No space left on device"):
        runner.run(EVERY, folder, Silent(), resume=False)
    monkeypatch.setattr(os, "fsync", real)
    runner.run(EVERY, folder, Silent(), resume=(folder / "run.json").exists())
    assert records(folder) == whole
    assert "FAILED" not in {end["status"] for end in outcomes(folder).values()}


def test_rows_that_were_cut_short_are_never_padded(cut, whole):
    path = cut / "mr.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    code, told = resumed(cut)
    assert code == 2
    assert str(path) in told
    assert "line 4" in told
    assert path.read_bytes() == b"".join(lines[:3])
    path.write_bytes(b"".join(lines))
    runner.run(EVERY, cut, Silent(), resume=True)
    assert records(cut) == whole


def test_a_changed_digit_in_an_unfinished_record_is_named_by_its_line(cut):
    path = cut / "mr.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    row = json.loads(lines[2])
    changed = lines[2].replace(str(row["value"]).encode(), str(row["value"] + 1).encode())
    assert changed != lines[2]
    path.write_bytes(b"".join([*lines[:2], changed, *lines[3:]]))
    code, told = resumed(cut)
    assert code == 2
    assert f"{path}, line 3" in told


def test_rows_past_the_last_checkpoint_may_be_torn(cut, whole):
    with (cut / "mr.jsonl").open("ab") as file:
        file.write(b'{"iteration": 99, "val')
    runner.run(EVERY, cut, Silent(), resume=True)
    assert records(cut) == whole


def damage(path, how):
    content = path.read_bytes()
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "noise":
        path.write_bytes(os.urandom(len(content)))
    else:
        digit = next(k for k in range(len(content) // 2, len(content)) if content[k] in b"1357")
        flip(path, digit)


HOW = ["cut", "digit", "noise", "empty"]


@pytest.mark.parametrize("how", [*HOW, "missing"])
def test_a_lost_summary_of_a_finished_run_is_rebuilt_from_its_records(finished, tmp_path, how):
    folder = tmp_path / "r"
    copy(finished, folder)
    path = folder / "summary.json"
    before = files.read_json(path)
    if how == "missing":
        path.unlink()
    else:
        damage(path, how)
    result = invoke("report", folder)
    assert result.exit_code == 0, result.output
    assert str(path) in result.stderr.replace("\n", "")
    assert "read from their records" in result.stderr
    result = invoke("run", "--out", folder, "--resume")
    assert result.exit_code == 0, result.output
    assert files.read_json(path) == before
    assert records(folder) == records(finished)


def test_the_report_of_a_killed_run_shows_what_is_recorded_so_far(finished, tmp_path):
    folder = tmp_path / "r"
    copy(finished, folder)
    (folder / "summary.json").unlink()
    names = files.read_json(folder / "run.json")["methods"]
    first, *others = (folder / f"{name}.jsonl" for name in names)
    damage(first, "cut")
    for path in others:
        path.unlink(missing_ok=True)
    result = invoke("report", folder)
    assert result.exit_code == 0, result.output
    told = " ".join(result.stderr.split())
    assert "The run is incomplete. Interrupted, shown as far as recorded: " in told
    assert "with --resume" in told
    assert "The run is incomplete." in (folder / "report.html").read_text(encoding="utf-8")
    assert not (folder / "summary.json").exists()  # the run can be resumed


@pytest.mark.parametrize("how", HOW)
def test_a_summary_is_not_rebuilt_from_a_damaged_record(finished, tmp_path, how):
    folder = tmp_path / "r"
    copy(finished, folder)
    (folder / "summary.json").unlink()
    path = folder / "cgmr.jsonl"
    damage(path, how)
    result = invoke("report", folder)
    if how in ("cut", "empty"):  # as if it had been killed there: it has not ended
        assert ("CGMR" in result.stdout) == (how == "cut")
        assert "The run is incomplete." in result.stderr
    else:
        assert result.exit_code == 2
        assert str(path) in result.output.replace("\n", "")


@pytest.mark.parametrize("name", ["run.json", "cgmr.jsonl", "tuning/adam.json"])
@pytest.mark.parametrize("how", HOW)
def test_report_and_resume_name_the_file_that_is_damaged(finished, tmp_path, name, how):
    folder = tmp_path / "r"
    copy(finished, folder)
    path = folder / name
    damage(path, how)
    for words in (("report", folder), ("run", "--out", folder, "--resume")):
        result = invoke(*words)
        assert result.exit_code == 2, result.output
        assert isinstance(result.exception, SystemExit)
        assert str(path) in result.output.replace("\n", "")
        if name.endswith("jsonl") and how == "digit":
            assert f"{path}, line " in result.output.replace("\n", "")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "r"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "_jobs", lambda wanted: 1)
        runner.run(settings("cgmr", "adam", budget=20), folder, Silent(), resume=False)
    return folder


def copy(source, target):
    for path in source.rglob("*"):
        if path.is_file():
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())


def test_a_record_that_is_missing_is_named(finished, tmp_path):
    copy(finished, tmp_path / "r")
    (tmp_path / "r" / "cgmr.jsonl").unlink()
    result = invoke("report", tmp_path / "r")
    assert result.exit_code == 2
    assert str(tmp_path / "r" / "cgmr.jsonl") in result.output.replace("\n", "")


def test_a_finished_record_without_its_last_line_is_named(finished, tmp_path):
    copy(finished, tmp_path / "r")
    path = tmp_path / "r" / "cgmr.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    result = invoke("report", tmp_path / "r")
    assert result.exit_code == 2
    assert f"{path}, line {len(lines)}" in result.output.replace("\n", "")


@pytest.mark.parametrize("name", ["figures/gap.png", "report.html", "tuning.md"])
def test_a_page_that_cannot_be_written_is_named_and_elsewhere_is_offered(finished, tmp_path, name):
    folder = tmp_path / "r"
    copy(finished, folder)
    (folder / name).mkdir(parents=True)  # whoever runs this, root too, cannot write there
    result = invoke("report", folder)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert str(folder / name) in result.output.replace("\n", "")
    assert "--out" in result.output
    before = sorted(folder.rglob("*"))
    result = invoke("report", folder, "--out", tmp_path / "page")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "page" / "report.html").exists()
    assert (tmp_path / "page" / "figures" / "gap.png").exists()
    assert sorted(folder.rglob("*")) == before


def test_a_torn_page_or_figure_is_never_left(finished, tmp_path, monkeypatch):
    folder = tmp_path / "r"
    copy(finished, folder)
    assert invoke("report", folder).exit_code == 0
    page, figure = folder / "report.html", folder / "figures" / "gap.png"
    before = page.read_bytes(), figure.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    result = invoke("report", folder)
    assert result.exit_code == 2
    assert "No space left on device" in result.output.replace("\n", " ")
    assert (page.read_bytes(), figure.read_bytes()) == before
    assert not list(folder.rglob("*.part"))


def test_a_torn_line_of_a_grid_is_cut_and_the_grid_goes_on_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "_jobs", lambda wanted: 1)
    made, real, folder = [], tuning._trial, tmp_path / "r"
    asked = settings("adam", budget=20)

    def one_more(*arguments):
        if len(made) % 2:
            made.append(None)
            raise KeyboardInterrupt
        made.append(arguments[2])
        return real(*arguments)

    monkeypatch.setattr(tuning, "_trial", one_more)
    for resume in (False, True, True):
        with pytest.raises(KeyboardInterrupt):
            runner.run(asked, folder, Silent(), resume=resume)
        with (folder / "tuning" / "adam.jsonl").open("ab") as file:
            file.write(b'{"rate": 0.0001, "val')  # a kill
    monkeypatch.setattr(tuning, "_trial", lambda *a: made.append(a[2]) or real(*a))
    runner.run(asked, folder, Silent(), resume=True)
    rates = [rate for rate in made if rate is not None]
    grid = files.read_json(folder / "tuning" / "adam.json")
    assert rates == [trial["rate"] for trial in grid["trials"]]  # each once


def test_a_damaged_line_of_a_grid_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "_jobs", lambda wanted: 1)
    real, folder, made = tuning._trial, tmp_path / "r", []

    def two(*arguments):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(arguments[2])
        return real(*arguments)

    monkeypatch.setattr(tuning, "_trial", two)
    with pytest.raises(KeyboardInterrupt):
        runner.run(settings("adam", budget=20), folder, Silent(), resume=False)
    path = folder / "tuning" / "adam.jsonl"
    content = path.read_bytes()
    flip(path, content.index(b'"oracle_calls": 2') + len(b'"oracle_calls": '))
    code, told = resumed(folder)
    assert code == 2
    assert f"{path}, line 1" in told


def test_a_kill_while_run_json_is_written_leaves_a_folder_that_can_be_used(tmp_path, monkeypatch):
    folder, whole = tmp_path / "r", settings("cgmr", budget=20)

    def killed(descriptor):
        raise SystemExit  # no handler of ours sees a kill; this one clears nothing but itself up

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(SystemExit):
        runner.run(whole, folder, Silent(), resume=False)
    monkeypatch.undo()
    folder.mkdir(exist_ok=True)
    (folder / "run.json.part").write_bytes(b'{"problem": "digi')
    (folder / ".lock").touch()
    runner.run(whole, folder, Silent(), resume=False)
    assert list(outcomes(folder)) == ["cgmr"]
    assert not list(folder.rglob("*.part"))

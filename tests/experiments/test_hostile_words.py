"""Words of the user that mean something to rich are shown as they were given."""

import shutil
import sys

import pytest
from typer.testing import CliRunner

pytest.importorskip("sklearn", reason="scikit-learn carries the digits")
from firstish.experiments import runner
from firstish.experiments.commands import report
from firstish.experiments.methods import METHODS, MethodSpec
from firstish_command.app import app

WORDS = ["a[v2]b", "c[/d]", "[bold]e[/bold]", ":smile:", "two\nlines", "\\[f]"]
if sys.getfilesystemencoding() == "utf-8":  # or there can be no file of that name
    WORDS.append("ü ≤ 字")
RUN = ["run", "digits-logistic", "--subset", "100", "--budget", "6", "--method", "cgmr"]


def invoke(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "r"
    assert invoke(*RUN, "--out", path).exit_code == 0
    return path


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr(report, "draw_all", lambda summary, out: [])


@pytest.mark.parametrize("word", WORDS)
def test_a_folder_is_named_as_it_is(folder, tmp_path, word, undrawn):
    place = tmp_path / word
    shutil.copytree(folder, place)
    result = invoke("report", place)
    assert result.exit_code == 0, result.output
    assert f"records and figures: {place}\npage: {place / 'report.html'}\n" in result.stdout


def test_a_report_elsewhere_names_that_folder(folder, tmp_path, undrawn):
    result = invoke("report", folder, "--out", tmp_path / "rep")
    assert f"figures: {tmp_path / 'rep'}\npage: {tmp_path / 'rep'}" in result.stdout


def test_a_run_into_such_a_folder_names_it(tmp_path, undrawn):
    place = tmp_path / "c[/d]"
    result = invoke(*RUN, "--out", place)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(f"page: {place / 'report.html'}\n")


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    "words",
    [
        ("report", "{}"),
        ("run", "{}"),
        ("run", "digits-logistic", "--method", "{}"),
        ("run", "digits-logistic", "--device", "{}"),
        ("run", "digits-logistic", "--dtype", "{}"),
        ("run", "digits-logistic", "--resume", "--out", "{}"),
        ("tune", "{}"),
        ("data", "{}"),
    ],
)
def test_a_mistake_is_repeated_as_it_was_made(words, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*(w.format(word) for w in words))
    assert result.exit_code == 2
    assert result.stdout == ""
    shown = result.stderr.replace(repr(word)[1:-1], word)  # some messages quote it as Python does
    assert word in shown


@pytest.mark.parametrize("word", ["a[v2]b", "c[/d]"])
@pytest.mark.parametrize("option", ["--budget", "--gtol", "--nothing"])
def test_the_parser_repeats_it_too(option, word):
    result = invoke("run", "digits-logistic", option, word)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert option in result.output


def test_folders_of_data_are_named_as_they_are(tmp_path):
    place = tmp_path / "c[/d]"
    place.mkdir(parents=True)
    (place / "mushrooms").write_text("1 1:1\n")
    result = invoke("data", "mushrooms", "--data", place)
    assert result.exit_code == 0, result.output
    assert f"searched: {place}" in result.stdout
    assert str(place) in result.stdout.replace("\n", "").replace("│", "").replace(" ", "")


@pytest.mark.parametrize("word", WORDS)
def test_an_interruption_repeats_the_command(word, monkeypatch, tmp_path):
    def press(settings, folder, *rest):
        folder.mkdir(parents=True)
        (folder / "run.json").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run", press)
    monkeypatch.setattr("sys.argv", ["firstish", "run", "--out", word])
    result = invoke("run", "--out", tmp_path / word)
    assert result.exit_code == 130
    assert word in result.stderr.replace("'\"'\"'", "'")


@pytest.mark.parametrize("word", WORDS)
def test_the_message_of_a_method_that_failed_is_shown(word, monkeypatch, tmp_path, undrawn):
    def broken(problem, instance, rate):
        raise RuntimeError(word)

    monkeypatch.setitem(METHODS, "gm", MethodSpec("GM", broken))
    result = invoke(*RUN[:-1], "gm", "--out", tmp_path / "r")
    assert result.exit_code == 0, result.output
    assert f"RuntimeError: {word}" in result.stdout

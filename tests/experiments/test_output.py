"""What the command line prints, and where: for a person, for a pipe, for a program."""

import io
import json
import os
import pty
import re
import subprocess
import sys

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

pytest.importorskip("sklearn", reason="scikit-learn carries the digits")
from firstish.experiments import console as console_module
from firstish.experiments import runner, tuning
from firstish.experiments.console import Live
from firstish.experiments.methods import parse_choice
from firstish.experiments.report.summary import summarise
from firstish.experiments.storage import files
from firstish.experiments.storage.rows import read_rows
from firstish.loop import Limits
from firstish.result import Row
from firstish_command.app import app

SMALL = ["digits-logistic", "--subset", "150", "--budget", "80"]
FIRSTISH = [sys.executable, "-m", "firstish"]
ESCAPE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # control characters but for tab and newline
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9\d|10\d)(?:;\d+)*m")


def invoke(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


def run(path, *more):
    return invoke("run", *SMALL, "--method", "cgmr", "--out", path, *more)


@pytest.fixture(autouse=True)
def one_job(monkeypatch):
    """Grids in this process: starting others takes longer than these."""
    monkeypatch.setattr(tuning, "_jobs", lambda wanted: 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "r"
    assert run(path).exit_code == 0
    return path


def test_quiet_prints_the_last_line_alone(tmp_path, folder):
    path = tmp_path / "r"
    assert run(path, "--quiet").stdout == f"page: {path / 'report.html'}\n"
    assert invoke("report", folder, "-q").stdout == f"page: {folder / 'report.html'}\n"
    told = invoke("tune", *SMALL, "--quiet").stdout
    assert re.fullmatch(r"winner 0\.1; the grid took 400 oracle calls and [\d.]+ s\n", told)


def test_json_is_the_summary_and_nothing_else(tmp_path):
    result = run(tmp_path / "r", "--json")
    told = json.loads(result.stdout)
    assert told["folder"] == str(tmp_path / "r")
    outcomes = files.read_json(tmp_path / "r" / "summary.json")["methods"]
    assert {line["key"]: line["outcome"] for line in told["methods"]} == outcomes
    summary = summarise(tmp_path / "r")
    assert told["lowest"] == summary.lowest
    reached = [line["to_gap"][0]["oracle_calls"] for line in told["methods"]]
    assert reached == [line.to_gap[0].oracle_calls for line in summary.lines]
    assert (tmp_path / "r" / "report.html").exists()
    assert json.loads(invoke("report", tmp_path / "r", "--json").stdout) == told


# `firstish` that counts, by name and mode, how often it opens each file of rows.
COUNTED = """
import json, pathlib, sys
from firstish_command import main

opened = {}

def count(event, details):
    if event == "open" and str(details[0]).endswith(".jsonl"):
        key = f"{pathlib.Path(details[0]).name} {details[1].replace('b', '')}"
        opened[key] = opened.get(key, 0) + 1

sys.addaudithook(count)
try:
    main()
finally:
    print(json.dumps(opened), file=sys.stderr)
"""


def test_from_a_run_to_its_figures_and_page_the_records_are_read_once(tmp_path):
    def opened(*words):
        command = [sys.executable, "-c", COUNTED, *words]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        assert (tmp_path / "r" / "figures" / "gap.png").exists()
        return json.loads(result.stderr.splitlines()[-1])

    read = {"cgmr.jsonl r": 1, "lbfgs.jsonl r": 1}
    methods = ["--method", "cgmr", "--method", "lbfgs", "--out", tmp_path / "r"]
    written = {"cgmr.jsonl w+": 1, "lbfgs.jsonl w+": 1}
    assert opened("run", *SMALL, *methods) == written | read
    assert opened("report", tmp_path / "r") == read


def test_json_of_a_grid_has_every_trial():
    told = json.loads(invoke("tune", *SMALL, "--json").stdout)
    (grid,) = told["grids"]
    assert [trial["rate"] for trial in grid["trials"]] == [1e-1, 1e-2, 1e-3, 1e-4, 1e-5]
    assert grid["winner"] == min(grid["trials"], key=lambda t: t["value"])["rate"]
    assert grid["oracle_calls"] == sum(t["oracle_calls"] for t in grid["trials"])
    assert grid["paper"] is None
    assert told["run"]["budget"] == 80


def test_a_mistake_leaves_standard_output_empty():
    result = invoke("run", "digits", "--json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "digits-logistic" in result.stderr


def test_a_pipe_gets_plain_text_and_few_lines(tmp_path):
    words = ["run", *SMALL[:3], "--budget", "2000", "--gtol", "0", "--method", "cgmr"]
    done = subprocess.run(
        [*FIRSTISH, *words, "--out", tmp_path / "r"], capture_output=True, text=True, check=True
    )
    assert not ESCAPE.search(done.stdout)
    assert done.stderr == ""
    assert len(read_rows(tmp_path / "r" / "cgmr.jsonl")) > 400
    assert len(done.stdout.splitlines()) < 16
    assert done.stdout.splitlines()[0].startswith("CGMR")  # no empty line where a bar would be


def terminal(*words, code=0, **environment):
    """What a command writes to a terminal of 100 columns."""
    mine, its = pty.openpty()
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    settings = {**plain, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    process = subprocess.Popen(
        [*FIRSTISH, *map(str, words)], stdout=its, stderr=its, stdin=its, env=settings
    )
    os.close(its)
    text = b""
    while True:
        try:
            piece = os.read(mine, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not piece:
            break
        text += piece
    os.close(mine)
    assert process.wait() == code, text
    return text.decode()


def test_no_color_is_respected():
    assert COLOUR.search(terminal("report", "nowhere", code=2))
    plain = terminal("report", "nowhere", code=2, NO_COLOR="1")
    assert not COLOUR.search(plain)
    assert "holds no run" in plain.replace("\r\n", " ")


def test_a_terminal_that_cannot_move_its_cursor_gets_no_bar(tmp_path):
    words = ["run", *SMALL, "--method", "cgmr", "--out", tmp_path / "r"]
    text = terminal(*words, TERM="dumb")
    assert not ESCAPE.search(text.replace("\r\n", "\n"))


def test_a_terminal_without_the_characters_is_no_reason_to_fail(folder):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    words = [*FIRSTISH, "report", str(folder)]
    done = subprocess.run(words, capture_output=True, env=environment, check=True)
    assert "CGMR" in done.stdout.decode("ascii")


COMMANDS = list(typer.main.get_command(app).commands)


def test_the_commands_are_those_of_the_documents():
    assert {"run", "tune", "report", "data", "list"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_shows_an_example(name):
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert f"Example: firstish {name}" in result.output


def test_the_help_of_all_shows_an_example():
    assert "Example: firstish run" in invoke("--help").output


def complete(line):
    """What bash would offer after that line."""
    environment = {
        "_FIRSTISH_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    return CliRunner().invoke(app, [], env=environment, prog_name="firstish").stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("firstish re", ["report"]),
        ("firstish run digits", ["digits-logistic", "digits-mlp"]),
        ("firstish run digits-mlp --method cg", ["cgmr", "cg"]),
        ("firstish tune digits-mlp --method hea", ["heavy-ball"]),
    ],
)
def test_the_shell_completes_commands_problems_and_methods(line, offered):
    assert complete(line) == offered


def test_completion_can_be_installed(tmp_path):
    # Without this typer looks which shell it was called from, and a test has none.
    told = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    environment = {**os.environ, **told, "HOME": str(tmp_path)}
    code = (
        "import sys; sys.argv = ['firstish', '--install-completion', 'bash'];"
        "from firstish_command import main; main()"
    )
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    (script,) = tmp_path.rglob("firstish.sh")
    assert "_FIRSTISH_COMPLETE=complete_bash" in script.read_text(encoding="utf-8")
    assert str(script) in (tmp_path / ".bashrc").read_text(encoding="utf-8")


def test_the_module_is_the_command():
    done = subprocess.run([*FIRSTISH, "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"firstish \d+\.\d+\S*\n", done.stdout)


def test_tensorboard_is_asked_for_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    result = run(tmp_path / "r", "--tensorboard")
    assert result.exit_code == 2
    assert "pip install '.[tensorboard]'" in result.stderr
    assert not (tmp_path / "r").exists()


def test_ctrl_c_before_a_run_began_names_no_run_to_go_on_with(tmp_path, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run", interrupted)
    result = invoke("run", "digits-logistic", "--subset", "50", "--out", tmp_path / "r")
    assert result.exit_code == 130
    assert "interrupted; nothing had begun" in result.stderr
    assert "--resume" not in result.stderr


def test_into_a_pipe_there_is_a_line_every_few_seconds(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console_module.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    choice = parse_choice("cgmr")
    with Live(Console(file=stream, width=100)) as live:
        live.started(choice, Limits(max_oracle_calls=1000))
        for k in range(120):  # 12 seconds
            now[0], calls = k / 10, 4 * k
            row = Row(
                iteration=k, oracle_calls=calls, passes=calls, seconds=k, value=1, grad_norm=0.1
            )
            live.advanced(choice, row)
        live.ended(
            choice,
            {"status": "MAX_ORACLE_CALLS", "value": 1.0, "grad_norm": 0.1, "oracle_calls": 1000}
            | {"seconds": 12.0},
        )
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3  # after 5 and 10 seconds, and at the end
    assert lines[0].split() == ["CGMR", "f", "1", "|g|", "1.00e-01", "200", "calls", "..."]
    assert lines[-1].endswith("budget spent")

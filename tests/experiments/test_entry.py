"""The command's first moments: Ctrl-C while it imports, variables that are not torchrun's."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import firstish

pytest.importorskip("sklearn", reason="scikit-learn carries the digits")
from firstish_command.app import app

ROOT = Path(__file__).parents[2]
SOURCE = Path(firstish.__file__).parents[1]
FIRSTISH = [sys.executable, "-m", "firstish"]

# Ctrl-C arrives when the named module begins to be imported.
INTERRUPTED = """
import os, signal, sys
stage = sys.argv.pop()
class Press:
    def find_spec(self, name, *more):
        if name == stage:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Press())
signal.signal(signal.SIGINT, signal.{handler})
from {module} import main
sys.argv = ["firstish", *{words}]
main()
"""


def interrupted(
    stage, module="firstish_command", handler="default_int_handler", words=("--version",)
):
    code = INTERRUPTED.format(module=module, handler=handler, words=words)
    return subprocess.run(
        [sys.executable, "-c", code, stage],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("stage", "module"),
    [
        ("firstish", "firstish_command"),
        ("torch", "firstish_command"),
        ("torch.nn", "firstish_command"),
        ("firstish.optim", "firstish_command"),
        ("typer", "firstish_command"),
    ],
)
def test_ctrl_c_while_importing_ends_it_without_a_word(stage, module):
    done = interrupted(stage, module)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_while_a_command_imports_ends_it_without_a_word():
    done = interrupted("matplotlib.pyplot", words=("report", "nowhere"))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


LOADED = """
import sys
from firstish_command.app import app
try:
    app({words})
finally:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["--help"], [], ["run", "--help"], ["tune", "--help"]])
def test_help_does_not_wait_for_torch(words):
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(words=words)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Usage:" in done.stdout + done.stderr
    loaded = set(done.stderr.split())
    assert "typer" in loaded
    assert not loaded & {"torch", "numpy", "firstish", "matplotlib"}


@pytest.mark.parametrize("command", ["run", "tune", "data", "report", "list"])
def test_help_shows_defaults_and_plain_flags(command):
    told = " ".join(
        CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout.split()
    )
    assert "bool" not in told
    assert "Example: firstish" in told
    if command == "run":
        for default in ("(the problem's own)", "(the standard panel)", "cpu", "10.0", "(all)"):
            assert f"[default: {default}]" in told


def test_a_background_job_of_a_shell_goes_on_ignoring_ctrl_c():
    done = interrupted("torch", handler="SIG_IGN")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("firstish ")


def test_the_command_is_the_module_that_can_be_interrupted():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^firstish = "firstish_command:main"$', text, flags=re.M)


def test_after_the_imports_ctrl_c_is_an_exception_again():
    code = (
        "import signal; from firstish_command import quiet_ctrl_c\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with quiet_ctrl_c(): assert signal.getsignal(2) is not signal.default_int_handler\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


TWO = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE=x is not a whole number from 1"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE= is not a whole number"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE=0 is not a whole number from 1"),
        ({"WORLD_SIZE": "-2"}, "WORLD_SIZE=-2 is not a whole number from 1"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set, but not RANK"),
        (TWO | {"RANK": "first"}, "RANK=first is not a whole number from 0 to 1"),
        (TWO | {"RANK": "2"}, "RANK=2 is not a whole number from 0 to 1"),
        (TWO | {"MASTER_PORT": "http"}, "MASTER_PORT=http is not a whole number"),
        (TWO | {"MASTER_ADDR": ""}, "WORLD_SIZE is set, but not MASTER_ADDR"),
    ],
)
def test_variables_that_are_not_torchruns_are_named_with_the_remedy(
    environment, told, monkeypatch, tmp_path
):
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(app, ["run", "digits-logistic", "--out", str(tmp_path / "r")])
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Start the run with torchrun" in result.stderr
    assert not (tmp_path / "r").exists()


def test_a_world_size_that_is_no_number_is_told_by_the_command_itself(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "WORLD_SIZE": "x"}
    words = [*FIRSTISH, "run", "digits-logistic", "--out", tmp_path / "r"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("firstish: The environment variable WORLD_SIZE=x is not a whole")
    assert done.stdout == ""


def test_processes_that_do_not_meet_say_where_they_waited(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), **TWO, "MASTER_PORT": port}
    words = [*FIRSTISH, "run", "digits-logistic", "--out", tmp_path / "r", "--timeout", "0.1"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"The 2 processes did not meet at 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr

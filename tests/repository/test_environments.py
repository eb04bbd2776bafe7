"""`make test-everywhere`: each environment is run, and is what its name says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import environments
import pytest

ROOT = Path(__file__).parents[2]


def test_every_environment_is_run_once():
    run = [name for together in environments.ALL for name in together.split("+")]
    assert sorted(run) == sorted(environments.ENVIRONMENTS)
    target = re.search(
        r"^test-everywhere:.*## .* in (\d+) env",
        (ROOT / "Makefile").read_text(encoding="utf-8"),
        re.M,
    )
    assert int(target.group(1)) == len(run)


def test_environments_at_the_same_time_do_not_contradict_each_other():
    for together in environments.ALL:
        chosen = [environments.ENVIRONMENTS[name] for name in together.split("+")]
        given = [name for e in chosen for name in (*e.set, *e.unset)]
        assert len(given) == len(set(given)), together


@pytest.mark.parametrize("name", [n for n, e in environments.ENVIRONMENTS.items() if e.set])
def test_the_variables_reach_the_tests(name):
    chosen = environments.ENVIRONMENTS[name]
    variables = environments._variables([chosen])
    assert variables.items() >= chosen.set.items()
    assert not variables.keys() & set(chosen.unset)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare belongs to Linux")
def test_offline_there_is_the_loopback_and_nothing_else():
    code = (
        "import socket; socket.create_server(('127.0.0.1', 0)).close()\n"
        "print([name for _, name in socket.if_nameindex()])\n"
    )
    before = environments.ENVIRONMENTS["offline"].before
    done = subprocess.run([*before, sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"a network of its own cannot be made here: {done.stderr.strip()}")
    assert done.stdout == "['lo']\n"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="it belongs to Linux")
def test_on_one_core_there_is_one():
    code = "import os; print(len(os.sched_getaffinity(0)))"
    words = [sys.executable, "-c", code]
    told = subprocess.check_output(words, preexec_fn=environments._first_core, text=True)
    assert told == "1\n"


def test_the_last_line_of_pytest_is_counted():
    line = "= \x1b[31m2 failed\x1b[0m, 539 passed, 3 skipped, 1 error in 926.24s (0:15:26) =\n"
    assert environments._counts(line) == {"failed": 2, "passed": 539, "skipped": 3, "error": 1}
    assert environments._counts("1 failed, 2 passed\n") == {}


def test_a_name_that_is_none_is_refused():
    words = [sys.executable, ROOT / "tests" / "environments.py", "narow"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no environment named narow" in done.stderr

"""`firstish run` under torchrun: the records of one process; a killed rank, and going on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import firstish
from firstish.experiments.storage.rows import read_rows

SOURCE = Path(firstish.__file__).parents[1]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(SOURCE), "NO_COLOR": "1"}
ARGUMENTS = ["digits-mlp", "--method", "cgmr", "--budget", "160", "--checkpoint-seconds", "0"]

# `firstish` whose second rank is killed in its tenth iteration.
KILLED = """
import os, signal
from firstish_command import main
from firstish.experiments import runner

left, advance = 10, runner.Run.advance

def counted(self, limits):
    global left
    left -= 1
    if left == 0 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return advance(self, limits)

runner.Run.advance = counted
main()
"""


def start(out, *more, script=("-m", "firstish"), options=()):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *options]
    command += ["--standalone", *script, "run", *ARGUMENTS, "--out", str(out), *more]
    return subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def rows(folder):
    found = read_rows(folder / "cgmr.jsonl")
    return [{k: v for k, v in row.items() if k != "seconds"} for row in found]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two") / "run"
    process = start(folder)
    output, _ = process.communicate(timeout=1000)
    assert process.returncode == 0, output
    return folder, output


def test_two_ranks_write_the_records_of_one(whole, tmp_path):
    folder, output = whole
    assert output.count("page:") == 1  # rank 0 alone speaks
    assert (folder / "report.html").exists()
    alone = tmp_path / "alone"
    command = [sys.executable, "-m", "firstish", "run", *ARGUMENTS, "--out", str(alone), "--quiet"]
    subprocess.run(command, env=ENVIRONMENT, check=True, timeout=1000)
    one, two = rows(alone), rows(folder)
    keys = ("iteration", "oracle_calls", "curvature", "scaling", "step_size", "trials")
    assert [[r[k] for k in keys] for r in one] == [[r[k] for k in keys] for r in two]
    for a, b in zip(one[:6], two[:6], strict=True):
        assert b["value"] == pytest.approx(a["value"], rel=1e-12)
    assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["processes"] == 2


def test_a_killed_rank_ends_the_run_and_resume_goes_on_to_the_same_records(whole, tmp_path):
    folder, script = tmp_path / "run", tmp_path / "killed.py"
    script.write_text(KILLED)
    # torchrun looks every 10 seconds only: it would end the other rank before that has spoken.
    process = start(folder, script=[str(script)], options=["--monitor-interval", "10"])
    output, _ = process.communicate(timeout=1000)
    assert process.returncode != 0, output
    assert "Go on with: torchrun --nproc-per-node 2 -m firstish run" in output.replace("\n", " ")
    words = ["run", ARGUMENTS[0], "--out", str(folder), "--resume"]
    refused = subprocess.run(
        [sys.executable, "-m", "firstish", *words],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=1000,
        check=False,
    )
    assert refused.returncode == 2
    assert "Use `torchrun --nproc-per-node 2 -m firstish run" in refused.stderr.replace("\n", " ")
    process = start(folder, "--resume")
    output, _ = process.communicate(timeout=1000)
    assert process.returncode == 0, output
    assert rows(folder) == rows(whole[0])


def test_a_folder_that_is_taken_stops_all_ranks(whole):
    process = start(whole[0])
    output, _ = process.communicate(timeout=1000)
    assert process.returncode != 0
    assert "holds a run. Go on with --resume" in output.replace("\n", " ")

"""Every file in examples/ runs, with small settings, and says what it promises to say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import firstish

FOLDER = Path(__file__).parent.parent / "examples"
SOURCE = Path(firstish.__file__).parents[1]
UNDER_TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
EXAMPLES = {
    "larger_than_memory.py": ([], ["--rows", "20000", "--iterations", "6"]),
    "two_processes.py": (UNDER_TORCHRUN, ["--rows", "2000", "--iterations", "4"]),
}
SAYS = {
    "larger_than_memory.py": [
        r"after   6 iterations f = 0\.\d{6}",
        r"f = 0\.\d+, \|g\| = ",
        r"memory: \d+ MiB",
        r"right on the first 10,000 rows: [89]\d\.\d%",
    ],
    "two_processes.py": [
        r"^2 processes, 1,000 of 2,000 rows on this one\n",
        r"budget of iterations is spent.* after 4 iterations",
    ],
}


def test_every_example_is_in_the_table():
    assert {path.name for path in FOLDER.glob("*.py")} == EXAMPLES.keys() == SAYS.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name):
    before, after = EXAMPLES[name]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, *before, FOLDER / name, *after],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert run.returncode == 0, run.stderr
    for pattern in SAYS[name]:
        assert re.search(pattern, run.stdout, flags=re.M), run.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short(name):
    assert len((FOLDER / name).read_text().splitlines()) <= 90

"""Every file in examples/ runs, with small settings, and says what it promises to say."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import firstish

FOLDER = Path(__file__).parents[2] / "examples"
SOURCE = Path(firstish.__file__).parents[1]
UNDER_TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
EXAMPLES = {
    "larger_than_memory.py": ([], ["--rows", "20000", "--iterations", "6"]),
    "first_steps.py": ([], []),
    "pinn.py": ([], ["--calls", "400", "--seeds", "1"]),
    "logistic_at_scale.py": ([], ["--rows", "5000"]),
    "last_layer.py": ([], []),
    "own_method.py": ([], []),
    "own_problem.py": ([], ["run", "valley", "--method=cautious", "--method=lazy", "--budget=300"]),
    "curvature_panel.py": ([], ["--iterations", "12", "--plot", "curvature.png"]),
    "two_processes.py": (UNDER_TORCHRUN, ["--rows", "2000", "--iterations", "4"]),
}
SAYS = {
    "larger_than_memory.py": [
        r"after   6 iterations f = 0\.\d{6}",
        r"f = 0\.\d+, \|g\| = ",
        r"memory: \d+ MiB",
        r"right on the first 10,000 rows: [89]\d\.\d%",
    ],
    "first_steps.py": [
        r"^1\. The gradient norm is at most gtol",
        r"^   x = \[1\.0, 1\.0\]",
        r"^2\. iteration .*\n +0  2\.4e\+01  2\.3e\+02",  # f and |g| at the published start
        r"^3\. The gradient norm is at most gtol",
        r"^   curvature: \{.*'SPC': \d+\}",
        r"^4\. The gradient norm is at most gtol",
        r"^5\. loss \d\.\de-0[3-9] after 100 steps; the last from \d+ curvature pairs",
    ],
    "pinn.py": [  # this few calls already give the solution to better than a hundredth
        r"^  lazy step, the default +error \d\.\de-0[3-9]  loss \d\.\de-0\d +40\d calls",
        r"^  with 100 pairs +error \d\.\de-0[3-9]  loss \d\.\de-0\d +40\d calls",
        r"^  and without scaling +error \d\.\de-0[2-9]  loss \d\.\de-0\d +40\d calls",
        r"^  Adam, then L-BFGS +error \d\.\de-\d+  loss \d\.\de-\d+ +40\d calls",
    ],
    "logistic_at_scale.py": [
        r"^sparse: 5,000 rows, 2,000 features, 0 MB",
        r"^dense: 5,000 rows, 50 features, 1 MB",
        r"norm is at most gtol(.|\n)*norm is at most gtol",
        r"passes over the data, [67]\d\.\d% right",
    ],
    "last_layer.py": [
        r"^head, whole network: The gradient norm is at most gtol",
        r"^head, features kept: The gradient norm is at most gtol",
        r"^the same minimum to (\de-(0[7-9]|1\d)|0e\+00);",
        r"held out: [89]\d\.\d%",
    ],
    "own_method.py": [
        r"^Relaxed\(\) +CONVERGED",
        r"^Relaxed\(relaxation=1\.0\) +CONVERGED +(\d+) calls(.|\n)*^CG +CONVERGED +\1 calls",
        r"^lazy +CONVERGED",
    ],
    "own_problem.py": [
        r"^Cautious +f \d+\.\d+ .* budget spent",
        r"^Lazy step, the default, took \d+ oracle calls to",
    ],
    "curvature_panel.py": [
        r"[│|] 11 +[│|] \d",  # the last row of the table, without a terminal
        r"curvature met so far: .*SPC \d+$",
        r"budget of iterations is spent",
        r"^drawn: curvature.png",
    ],
    "two_processes.py": [
        r"^2 processes, 1,000 of 2,000 rows on this one\n",
        r"budget of iterations is spent.* after 4 iterations",
    ],
}


def test_every_example_is_in_the_table():
    assert {path.name for path in FOLDER.glob("*.py")} == EXAMPLES.keys() == SAYS.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name, tmp_path):
    before, after = EXAMPLES[name]
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(SOURCE)}
    run = subprocess.run(
        [sys.executable, *before, FOLDER / name, *after],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1000,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    for pattern in SAYS[name]:
        assert re.search(pattern, run.stdout, flags=re.M), run.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short(name):
    assert len((FOLDER / name).read_text(encoding="utf-8").splitlines()) <= 90


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_is_kept_with_its_outputs(path):
    """Those of one run from top to bottom, without an error or a warning; tests_heavy runs it."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]

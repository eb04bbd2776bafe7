"""The wheel in an environment of its own, with torch and NumPy and nothing else."""

import email
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
EXTRAS = ["scipy", "sklearn", "matplotlib", "plotly", "rich", "typer", "PIL", "tensorboard"]
SECONDS = 0.3  # what importing firstish may add to importing torch

pytestmark = pytest.mark.timeout(1200)  # a download and two installations


def environment():
    """Ours without a way back to the source, pinned as in the Makefile."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    pins = dict.fromkeys(("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"), str(CONSTRAINTS))
    return {**kept, **pins, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "OMP_NUM_THREADS": "1"}


def call(*command, folder):
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,  # not the repository: its folders are no packages of ours here
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def succeed(*command, folder):
    done = call(*command, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps")
    succeed(*pip, "-w", folder, ROOT, folder=folder)
    (path,) = folder.glob("firstish-*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of a fresh environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("alone")
    succeed(sys.executable, "-m", "venv", folder, folder=folder)
    python = folder / "bin" / "python"
    pin = re.search(r"^torch==\S+", CONSTRAINTS.read_text(encoding="utf-8"), flags=re.M).group()
    succeed(python, "-m", "pip", "install", "-q", pin, folder=folder)
    succeed(python, "-m", "pip", "install", "-q", wheel, folder=folder)
    yield python
    shutil.rmtree(folder)  # half a gigabyte that pytest would keep


def test_the_wheel_asks_for_torch_and_numpy_alone(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        needs = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist")
    assert {need for need in needs if "extra ==" not in need} == {"torch>=2.4", "numpy"}
    assert "firstish/py.typed" in names
    assert "firstish/experiments/report/page.html" in names
    top = {name.split("/")[0].split("-")[0] for name in names}
    assert top == {"firstish", "firstish_command"}


def test_no_extra_came_along(python):
    code = f"import importlib.util as u; print([n for n in {EXTRAS} if u.find_spec(n)])"
    assert succeed(python, "-c", code, folder=python.parent) == "[]\n"


MINIMIZE = """
import torch, firstish
assert "alone" in firstish.__file__, firstish.__file__
x0 = torch.tensor([-1.2, 1.0], dtype=torch.float64)
rosenbrock = lambda x: (1 - x[0])**2 + 100 * (x[1] - x[0]**2)**2
for method in (firstish.ScaledGradient(), firstish.PlaneStep(), firstish.LazyStep()):
    result = firstish.minimize(rosenbrock, x0, method=method)
    assert result.success and torch.allclose(result.x, torch.ones_like(x0), atol=1e-4)
model = torch.nn.Linear(2, 1)
optimizer = firstish.ScaledGD(model.parameters())
inputs, targets = torch.ones(3, 2), torch.ones(3, 1)
losses = [float(optimizer.step(lambda: ((model(inputs) - targets)**2).mean())) for _ in range(5)]
assert losses[-1] < 1e-6, losses
print("ran", firstish.__version__)
"""


def test_it_runs(python):
    assert succeed(python, "-W", "error", "-c", MINIMIZE, folder=python.parent).startswith("ran")


@pytest.mark.parametrize("words", [["-m", "firstish"], ["-m", "firstish", "list"], None])
def test_the_command_line_says_which_extra_to_install(python, words):
    command = [python.parent / "firstish"] if words is None else [python, *words]
    done = call(*command, folder=python.parent)
    assert done.returncode == 1
    assert "pip install '.[all]'" in done.stderr
    assert re.search(r"\((typer|rich|matplotlib|plotly) is not installed\)", done.stderr)
    assert "Traceback" not in done.stderr


def test_the_door_of_scipy_says_which_extra_to_install(python):
    code = "import firstish; firstish.scipy_method(sum, [1.0])"
    done = call(python, "-c", code, folder=python.parent)
    assert "needs SciPy: pip install '.[scipy]'" in done.stderr


def test_importing_it_costs_little_beyond_torch(python):
    # The least of several: other work on the machine only ever adds to one.
    code = (
        "import time, torch, numpy; start = time.perf_counter(); import firstish; "
        "print(time.perf_counter() - start)"
    )
    least = min(float(succeed(python, "-c", code, folder=python.parent)) for _ in range(7))
    print(f"importing firstish adds {least:.3f} s to importing torch")
    assert least < SECONDS

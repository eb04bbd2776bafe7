"""Strict and repeatable: float64, fixed seeds, no random choice inside a test, one thread."""

import os
import tempfile

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from noise import Noise

if "OMP_NUM_THREADS" not in os.environ:
    torch.set_num_threads(1)

# What tests read is written for a terminal of 80 columns without colours, whoever runs them; those
# about other terminals say so. Typer takes GITHUB_ACTIONS for a terminal with colours.
COLOURS = ("NO_COLOR", "FORCE_COLOR", "PY_COLORS", "TTY_COMPATIBLE", "GITHUB_ACTIONS")
for name in (*COLOURS, "LINES", "TERMINAL_WIDTH", "WORLD_SIZE", "RANK"):
    os.environ.pop(name, None)
os.environ["COLUMNS"] = "80"
if not os.access(os.path.expanduser("~"), os.W_OK):  # or matplotlib tells every process of it
    os.environ.setdefault("MPLCONFIGDIR", tempfile.mkdtemp(prefix="firstish-tests-"))

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "mutations",  # a fault need only be seen, not shrunk
    settings.get_profile("repeatable"),
    phases=[Phase.explicit, Phase.generate],
)
settings.register_profile(
    "noise", settings.get_profile("repeatable"), max_examples=15
)  # an operation takes ten times as long
settings.load_profile("repeatable")

# Left out under noise, which does not reach other processes: what starts them, reads files or
# documents, or draws. Of these no result depends on a last bit.
NOT_NUMERICAL = (
    "attacks",
    "benchmarks/test_race_command.py",
    "benchmarks/test_race_page.py",
    "experiments",
    "objectives/finite_sum/test_processes.py",
    "mutations",
    "problems/test_data_files.py",
    "problems/test_data_readers.py",
    "problems/test_data_real.py",
    "objectives/sharded",
    "objectives/global_state",  # nor other threads
    "paper/test_claims.py",
    "repository/test_documents.py",
    "repository/test_examples.py",
    "repository/test_imports.py",
    "repository/test_links.py",
)


def pytest_addoption(parser):
    parser.addoption("--noise", type=int, metavar="SEED", help="other roundings: tests/noise.py")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--noise") is not None:
        skip = pytest.mark.skip(reason="the noise does not reach compiled modules")
        for item in items:
            if item.get_closest_marker("compiles"):
                item.add_marker(skip)


def pytest_configure(config):
    if config.getoption("--noise") is not None:
        settings.load_profile("noise")


def pytest_ignore_collect(collection_path, config):
    if config.getoption("--noise") is None:
        return None
    path = collection_path.as_posix()
    return True if path.endswith(tuple(f"tests/{name}" for name in NOT_NUMERICAL)) else None


@pytest.fixture(autouse=True)
def repeatable():
    """float64 by default and a fixed seed, and both left as they were."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(dtype)


@pytest.fixture(autouse=True)
def noise(request, repeatable):
    """The arithmetic of another processor, with `--noise SEED`."""
    seed = request.config.getoption("--noise")
    if seed is None:
        yield
        return
    with Noise(seed):
        yield

"""Strict and repeatable: float64, fixed seeds, no random choice inside a test, one thread."""

import os
import tempfile

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

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
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def repeatable():
    """float64 by default and a fixed seed, and both left as they were."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(dtype)

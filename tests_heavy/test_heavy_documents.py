"""The blocks that need another package installed; test_documents.py runs the rest.

Nothing is skipped here: a package that is missing is an error. The exception is wandb, the client
of a service with some thirty dependencies: where it is not installed, a stand-in takes its calls.
"""

import importlib.util
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "repository"))
from test_documents import HEAVY, blocks, run

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*number of training batches"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@contextmanager
def wandb_init(project, mode):
    """What `wandb.init` returns, as far as our page uses it."""
    assert mode == "offline"
    steps = []

    def log(values, step):
        assert all(isinstance(value, float | int) for value in values.values())
        steps.append(step)

    yield SimpleNamespace(log=log)
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= 10


@pytest.mark.parametrize("name", HEAVY)
def test_all_of_the_code_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("WANDB_SILENT", "true")
    if name == "docs/logging.md" and importlib.util.find_spec("wandb") is None:
        monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=wandb_init))
    run(name, blocks(name, heavy=True))

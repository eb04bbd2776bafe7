"""No network, no data folder but those a test names; and the real files, where they are."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Neither this machine's data nor the network reach a test; the cache is empty."""
    monkeypatch.delenv("FIRSTISH_DATA", raising=False)
    monkeypatch.setenv("FIRSTISH_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def real_data():
    """The folder with the real data sets: FIRSTISH_TEST_DATA, or shared/data beside the repo."""
    named = os.environ.get("FIRSTISH_TEST_DATA")
    folder = Path(named) if named else Path(__file__).parents[3] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}; FIRSTISH_TEST_DATA may name another folder")
    return folder

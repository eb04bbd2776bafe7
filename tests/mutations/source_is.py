"""A pytest plugin: refuse to run unless firstish is imported from $FIRSTISH_SOURCE."""

import os
from pathlib import Path

import pytest

import firstish

WRONG_SOURCE = 90  # an exit code that pytest itself does not use


def pytest_configure(config):
    found, wanted = Path(firstish.__file__).resolve(), os.environ["FIRSTISH_SOURCE"]
    if not found.is_relative_to(Path(wanted).resolve()):
        pytest.exit(f"firstish comes from {found}, not from {wanted}", WRONG_SOURCE)

"""What the heavy tests share: a small run through the command line, and a browser."""

import subprocess
from pathlib import Path

import pytest
from smallrun import METHODS, RUN

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A run of three methods, one of them tuned."""
    path = tmp_path_factory.mktemp("run") / "r"
    named = [word for method in METHODS for word in ("--method", method)]
    subprocess.run([*RUN, *named, "--budget", "80", "--out", path], check=True)
    return path


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright drives the browser: make test-all installs it"
    )
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()

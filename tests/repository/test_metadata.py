"""Extras and addresses are the same wherever they are named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture
def project():
    if sys.version_info < (3, 11):
        pytest.skip("tomllib came with Python 3.11")
    import tomllib

    return tomllib.loads(text("pyproject.toml"))["project"]


def test_the_extras_that_errors_name_are_in_readme(project):
    source = "\n".join(p.read_text(encoding="utf-8") for p in ROOT.glob("src/**/*.py"))
    named = set(re.findall(r"install\('(\w+)'\)|install '\.\[(\w+)\]'", source))
    named = {extra for pair in named for extra in pair if extra}
    assert named >= {"all", "data", "plot", "scipy", "tensorboard"}
    assert "install 'firstish" not in source  # not in an index of packages
    assert "pip install '.[all]'" in text("README.md")
    assert named <= project["optional-dependencies"].keys()
    assert named <= set(re.findall(r"\[(\w+)\]", text("README.md")))


def test_there_is_one_address_of_the_repository(project):
    home = project["urls"]["Repository"]
    for name in ("README.md", "mkdocs.yml", "CITATION.cff", "docs/index.md"):
        found = re.findall(r"https://github\.com/[\w-]*firstish[\w-]*/[\w-]+", text(name))
        assert found, name
        assert set(found) == {home}, name


def test_readme_is_short():
    assert len(text("README.md").splitlines()) < 120


def test_no_package_registry_is_named():
    """Whoever installs chooses the registry."""
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    names = ["pypi" + ".org", "download.py" + "torch", "--index" + "-url"]
    for name in tracked:
        path = ROOT / name
        if path.suffix in {".md", ".py", ".toml", ".txt", ".yml", ".cff"} and path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not [n for n in names if n in text], name

"""The API pages have every public name exactly once, and nothing that is not public."""

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

import firstish
import firstish.baselines
import firstish.scipy
import firstish.sklearn

PAGES = sorted((Path(__file__).parents[2] / "docs" / "api").glob("*.md"))
PUBLIC = [firstish, firstish.sklearn, firstish.scipy, firstish.baselines]
MODULES = {"firstish.baselines"}  # whose names are documented one by one


def object_of(path):
    """The object behind `::: path`, a name in a module."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


DOCUMENTED = {
    path: object_of(path)
    for page in PAGES
    for path in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), flags=re.M)
}
NAMES = [
    f"{module.__name__}.{name}"
    for module in PUBLIC
    for name in getattr(module, "__all__", [])
    if f"{module.__name__}.{name}" not in MODULES
]


def test_no_name_is_documented_twice():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    counts = Counter(re.findall(r"^::: ([\w.]+)$", text, flags=re.M))
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_stands_on_one_page(name):
    public = object_of(name)
    assert len([path for path, found in DOCUMENTED.items() if found is public]) == 1


def test_nothing_else_is_documented():
    public = [object_of(name) for name in NAMES]
    internal = [p for p, found in DOCUMENTED.items() if not any(found is o for o in public)]
    assert internal == []


def test_the_first_page_names_them():
    """The table of the API's first page: what is on a page is named beside it."""
    page = (PAGES[0].parent / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\((\w+\.md)\)", page))
    assert linked == {path.name for path in PAGES} - {"index.md"}

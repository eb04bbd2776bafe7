"""Every Python block of every page runs when pasted, in order, from the top of its page.

Nothing is imported or defined beforehand. Blocks that cannot run this way, such as commands for
torchrun, are marked as another language.
"""

import re
import textwrap
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md")),
]


# Sections whose blocks need a package that only `make test-all` installs: tests_heavy runs them.
HEAVY = {
    "docs/logging.md": ["TensorBoard", "Weights & Biases"],
    "docs/trainers.md": ["Lightning", "Accelerate", "Hugging Face Trainer", "skorch"],
}


# A fence of Python however it is written: with a title, within a list, as ~~~ or `py`.
FENCE = re.compile(
    r"^(?P<margin>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*\{?[ \t]*\.?(?:python3?|py)\b[^\n]*\n"
    r"(?P<code>.*?)^(?P=margin)(?P=fence)[ \t]*$",
    flags=re.S | re.M | re.I,
)
INCLUDE = re.compile(r'\s*(--8<-- "[^"\n]+"\s*)+')  # our own source: the other tests run it


def fenced(text):
    """The code of every block of Python but those that only show a file of ours."""
    codes = [textwrap.dedent(found["code"]) for found in FENCE.finditer(text)]
    return [code for code in codes if not INCLUDE.fullmatch(code)]


def blocks(name, heavy=False):
    """The blocks of Python in a document; those of the heavy sections only if asked for."""
    found = []
    for section in re.split(r"^(?=## )", (ROOT / name).read_text(encoding="utf-8"), flags=re.M):
        title = section.splitlines()[0].removeprefix("## ") if section else ""
        if heavy or title not in HEAVY.get(name, []):
            found += fenced(section)
    return found


def run(name, code):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)  # as a user's script begins
    scope = {"__name__": "__main__"}
    try:
        for block in code:
            exec(compile(block, name, "exec"), scope)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("name", [n for n in DOCUMENTS if blocks(n)])
def test_the_code_of_a_document_runs(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    monkeypatch.setenv("MPLBACKEND", "Agg")
    run(name, blocks(name))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_block_of_python_is_overlooked(name):
    """Counted in another way: every line that opens a fence and says Python."""
    text = (ROOT / name).read_text(encoding="utf-8")
    opened = [line for line in text.splitlines() if re.match(r"\s*(```|~~~)\W*py", line, re.I)]
    assert len(opened) == len(FENCE.findall(text))


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1 / 0\n```\n",
        '```python title="a file"\n1 / 0\n```\n',
        "``` { .py }\n1 / 0\n```\n",
        "- a list\n\n    ```py\n    1 / 0\n    ```\n",
        "~~~python\n1 / 0\n~~~\n",
    ],
)
def test_a_block_that_fails_makes_the_test_fail(text):
    with pytest.raises(ZeroDivisionError):
        run("a document", fenced(text))


def test_a_block_of_our_own_source_is_not_run():
    assert fenced('``` { .python }\n--8<-- "src/firstish/scaling.py:scale"\n```\n') == []
    assert fenced('``` { .python }\n--8<-- "src/firstish/scaling.py"\n1 / 0\n```\n') != []


@pytest.mark.parametrize("name", HEAVY)
def test_the_heavy_sections_are_there_for_tests_heavy_to_run(name):
    titles = re.findall(r"^## (.*)$", (ROOT / name).read_text(encoding="utf-8"), flags=re.M)
    assert set(HEAVY[name]) <= set(titles)
    assert len(blocks(name, heavy=True)) >= len(blocks(name)) + len(HEAVY[name])

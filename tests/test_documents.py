"""Every Python block in the documents runs, top to bottom of each document."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md")),
]
PRELUDE = {
    "docs/competitors.md": "fun, x0 = lambda x: (x**2).sum(), torch.ones(2)\n",
    "docs/index.md": (
        "model = torch.nn.Linear(2, 1)\n"
        "inputs, targets = torch.ones(3, 2), torch.ones(3, 1)\n"
        "loss_fn = torch.nn.functional.mse_loss\n"
    ),
}


# Sections whose blocks need a package that only `make test-all` installs: tests_heavy runs them.
HEAVY = {"docs/trainers.md": ["Lightning", "Accelerate", "Hugging Face Trainer", "skorch"]}


def blocks(name, heavy=False):
    """The blocks of Python in a document; those of the heavy sections only if asked for."""
    found = []
    for section in re.split(r"^(?=## )", (ROOT / name).read_text(), flags=re.M):
        title = section.splitlines()[0].removeprefix("## ") if section else ""
        if heavy or title not in HEAVY.get(name, []):
            found += re.findall(r"```python\n(.*?)```", section, flags=re.S)
    return found


def run(name, code):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)  # as a user's script begins
    scope = {}
    try:
        exec("import torch\n" + PRELUDE.get(name, ""), scope)
        for block in code:
            exec(compile(block, name, "exec"), scope)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("name", [n for n in DOCUMENTS if blocks(n)])
def test_the_code_of_a_document_runs(name, capsys):
    run(name, blocks(name))


@pytest.mark.parametrize("name", HEAVY)
def test_the_heavy_sections_are_there_for_tests_heavy_to_run(name):
    titles = re.findall(r"^## (.*)$", (ROOT / name).read_text(), flags=re.M)
    assert set(HEAVY[name]) <= set(titles)
    assert len(blocks(name, heavy=True)) >= len(blocks(name)) + len(HEAVY[name])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_to_files_lead_somewhere(name):
    text = (ROOT / name).read_text()
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / name).parent / target).exists(), target

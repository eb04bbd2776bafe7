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


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.S)


@pytest.mark.parametrize("name", [n for n in DOCUMENTS if blocks(n)])
def test_the_code_of_a_document_runs(name, capsys):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)  # as a user's script begins
    scope = {}
    try:
        exec("import torch\n" + PRELUDE.get(name, ""), scope)
        for block in blocks(name):
            exec(compile(block, name, "exec"), scope)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_to_files_lead_somewhere(name):
    text = (ROOT / name).read_text()
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / name).parent / target).exists(), target

"""The notebooks run from top to bottom in a fresh kernel. `make notebooks` keeps their outputs."""

import os
from pathlib import Path

import pytest

import firstish

nbclient = pytest.importorskip("nbclient", reason="make test-all installs nbclient")
nbformat = pytest.importorskip("nbformat", reason="make test-all installs nbclient")
pytest.importorskip("ipykernel", reason="make test-all installs ipykernel")

FOLDER = Path(__file__).parents[1] / "examples"
NOTEBOOKS = ["curvature.ipynb", "first_steps.ipynb"]
FIGURES = {"curvature.ipynb": 3, "first_steps.ipynb": 2}
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the kernel's own machinery
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def executed(name, tmp_path, monkeypatch):
    paths = [str(Path(firstish.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    book = nbformat.read(FOLDER / name, as_version=4)
    client = nbclient.NotebookClient(book, timeout=1200, resources={"metadata": {"path": tmp_path}})
    client.execute()
    return [output for cell in book.cells for output in cell.get("outputs", [])]


def test_every_notebook_is_in_the_list():
    assert sorted(path.name for path in FOLDER.glob("*.ipynb")) == NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_without_a_warning(name, tmp_path, monkeypatch):
    outputs = executed(name, tmp_path, monkeypatch)
    assert not [o for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    figures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(figures) == FIGURES[name]
    text = "".join(o.text for o in outputs if o.output_type == "stream")
    assert " f = " in text


def test_a_cell_that_fails_fails_the_test(tmp_path, monkeypatch):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        nbclient.NotebookClient(book, timeout=1200).execute()

"""Run the notebooks of examples/ from top to bottom and keep their outputs: `make notebooks`."""

import tempfile
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).parents[1] / "examples"


def refresh(path):
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(
            book, timeout=1200, resources=resources, record_timing=False
        ).execute()
    # Only what a reader sees: the versions of this machine would change with every run.
    book.metadata = {
        "kernelspec": book.metadata["kernelspec"],
        "language_info": {"name": "python"},
    }
    nbformat.write(book, path)


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.ipynb")):
        refresh(path)

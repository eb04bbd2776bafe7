"""`firstish data`: which data sets are here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from firstish.experiments.commands.output import MISTAKES, console, fail, table
from firstish.problems.datasets import CATALOGUE, folders, registry
from firstish.problems.datasets.files import inspect


def show_data(name: str | None = None, data: Path | None = None) -> None:
    """The command `firstish data`."""
    try:
        places = folders(data)
        sets = list(CATALOGUE) if name is None else [registry.get(name).name]
        shown = table("data set", "files", "where, or how to get it")
        for key in sets:
            try:
                shown.add_row(key, *_files(key, places))
            except OSError as error:  # of one data set: the others are shown
                shown.add_row(key, "unreadable", str(error))
    except MISTAKES as error:
        fail(error)
    console.print(shown)
    console.print(f"searched: {', '.join(map(str, places))}", highlight=False, soft_wrap=True)


def _files(name: str, places: Sequence[Path]) -> tuple[str, str]:
    """The state of a data set, and where it is or how to get it."""
    dataset = CATALOGUE[name]
    if not dataset.forms:
        return "embedded", dataset.how
    for folder in places:
        for form in dataset.forms:
            if form.find(folder) is None:
                continue
            checks = [inspect(file, folder).checksum_ok for file in form.files]
            wrong = checks.count(False)
            told = "right" if all(checks) else "here, unchecked"
            told = f"{wrong} of {len(checks)} WRONG" if wrong else f"{len(checks)} {told}"
            return told, f"{folder} ({form.title})"
    return "missing", f"{dataset.how} {dataset.page}"

"""The files of a data set: found here, or downloaded, or an error with directions."""

from __future__ import annotations

from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError

from firstish.problems.datasets import registry
from firstish.problems.datasets.download import Check, fetch
from firstish.problems.datasets.errors import MissingDataError
from firstish.problems.datasets.files import DataSet, Form, Part
from firstish.problems.datasets.folders import VARIABLE, cache, folders
from firstish.problems.datasets.readers.limits import Content, read_file


@dataclass(frozen=True, slots=True)
class Copy:
    """A data set that was found: its form, and the path of each file of the form."""

    form: Form
    paths: tuple[Path, ...]

    def read(self, k: int = 0) -> Content:
        """The content of file number `k`; refused if its bytes are not what they should be."""
        return read_file(self.paths[k], self.form.files[k])


def locate(
    name: str,
    part: Part = "train",
    data: Path | None = None,
    *,
    check: Check | None = None,
) -> Copy:
    """A complete copy, its checksums not yet verified; downloaded if there is none.

    Args:
        name: of the data set.
        part: "train" or "test".
        data: the folder to search; None for the default folders.
        check: raises if a fetched file without a binding checksum is not what it should be.
    """
    dataset = registry.get(name)
    forms = [form for form in dataset.forms if part in form.parts]
    places = folders(data)
    for folder in places:
        for form in forms:
            paths = form.find(folder)
            if paths is not None:
                return Copy(form, paths)
    home = places[0] if data is not None else cache()
    offered = next(form for form in forms if form.offered)
    try:
        return _fetch(offered, home, check)
    except (OSError, HTTPException) as error:
        raise MissingDataError(_directions(dataset, forms, places, home, error)) from error


def _fetch(form: Form, home: Path, check: Check | None) -> Copy:
    for file in form.files:
        if file.find(home) is None:
            fetch(file, home / file.path, check=check)
    paths = form.find(home)
    assert paths is not None
    return Copy(form, paths)


def _directions(
    dataset: DataSet, forms: list[Form], places: list[Path], home: Path, error: Exception
) -> str:
    searched = ", ".join(str(place) for place in places)
    reason = error.reason if type(error) is URLError else error
    lines = [
        f"{dataset.title}: not found in {searched}, and not available from {dataset.page} "
        f"({reason}).",
        f"Put the files of one of these forms into {home}, or into a folder that you name with "
        f"--data or {VARIABLE}:",
    ]
    for form in forms:
        lines.append(f"- {form.title}:")
        for file in form.files:
            source = f", from {file.url}" if file.url else ""
            lines.append(f"    {file.path} ({file.size:,} bytes){source}")
    return "\n".join(lines)

"""Errors of data: a file that is not what it should be, or that is missing."""

from __future__ import annotations

from pathlib import Path

_SHOWN = 200  # characters of what was found
AGAIN = "Delete it and get it again; docs/data.md says from where."


class DataError(ValueError):
    """A file is truncated, corrupt, or not the one its name says."""


class MissingDataError(FileNotFoundError):
    """A data set is neither here nor available; the message says which file to put where."""


def refused(
    where: Path | str, *, expected: object, found: object, remedy: str = AGAIN
) -> DataError:
    """The error for a file that is refused: its name, what was expected, what was found."""
    told = str(found)  # of a damaged file it may be anything
    told = told if len(told) <= _SHOWN else f"{told[:_SHOWN]}..."
    return DataError(f"{where}: expected {expected}, found {told}. {remedy}")

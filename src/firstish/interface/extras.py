"""The command that installs the packages of an extra."""

from __future__ import annotations


def install(extra: str) -> str:
    """The command of README for one extra.

    >>> install("plot")
    "pip install '.[plot]' in the clone of firstish"
    """
    return f"pip install '.[{extra}]' in the clone of firstish"

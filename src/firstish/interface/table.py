"""The history of a run as a table: `Result.to_frame`, and a result in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any


def frame(rows: Sequence[Mapping[str, object]]) -> Any:
    """The rows as a pandas data frame with the iteration as index."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "`Result.to_frame()` needs pandas: pip install pandas", name="pandas"
        ) from error
    return pandas.DataFrame(list(rows)).set_index("iteration")


def html(title: str, entries: Mapping[str, str]) -> str:
    """A table of names and values, for notebooks.

    >>> html("Result", {"f": "1 < 2"})
    '<table><caption>Result</caption><tr><th>f</th><td>1 &lt; 2</td></tr></table>'
    """
    lines = (f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in entries.items())
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"

"""Curves from rows, as figures and page draw them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any


def thin(rows: list[dict[str, Any]], most: int = 1500) -> list[dict[str, Any]]:
    """About `most` of the rows, denser at the beginning, as a logarithmic axis is.

    Rows with negative curvature are rare, and all are kept.
    """
    if len(rows) <= most:
        return rows
    ratio = math.log(len(rows)) / (most - 1)
    kept = sorted({min(len(rows) - 1, round(math.exp(ratio * k)) - 1) for k in range(most)})
    every = max(1, len(rows) // (most // 2))
    negative = [k for k, row in enumerate(rows) if row["curvature"] == "NC"]
    evenly = range(0, len(rows), every)
    return [rows[k] for k in sorted({*kept, *evenly, *negative, len(rows) - 1})]


def spaced(along: Sequence[float], position: int = 0, count: int = 7) -> list[int]:
    """The indices of markers, evenly spaced on a logarithmic axis and shifted by the position.

    >>> spaced([1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64], count=3)
    [0, 3, 8]
    """
    if not along:
        return []
    logs = [math.log(max(value, 1e-12)) for value in along]
    stride = (logs[-1] - logs[0]) / count
    shift = stride * (position * 5 % 12) / 12  # neighbours in the legend far apart on the axis
    wanted = [logs[0] + shift + k * stride for k in range(count)]
    return sorted({bisect_left(logs, at - 1e-9) for at in wanted} & set(range(len(logs))))


def best_so_far(rows: list[dict[str, Any]]) -> list[float]:
    """The lowest value up to each row: what a non-monotone method would return."""
    lowest, out = math.inf, []
    for row in rows:
        lowest = min(lowest, row["value"])
        out.append(lowest)
    return out


RISE = 1e3
"""A figure shows values up to so many times the first one: what diverges leaves it at the top."""

DECADES = 40
"""A figure spans at most so many powers of ten, counted from the top."""

LARGEST = 1e200
"""Beyond this, and below its inverse, matplotlib's search for ticks leaves the range of floats."""


def window(values: Iterable[float], first: float | None = None) -> tuple[float, float]:
    """The limits of a logarithmic axis for these values; 1 and 10 if it can show none of them.

    Args:
        values: any floats; those that are not positive have no place on the axis.
        first: where the curves begin, if what rises far above it is to be cut off.

    >>> low, high = window([1.0, 0.0, 1e-4, 1e264], first=1.0)
    >>> f"{low:.1e}, {high:.1e}"
    '4.5e-05, 2.2e+03'
    """
    shown = [min(max(v, 1 / LARGEST), LARGEST) for v in values if v > 0]
    if not shown:
        return 1.0, 10.0
    low, high = min(shown), max(shown)
    if first is not None:
        high = min(high, RISE * max(low, first))
    low = max(low, high / 10**DECADES)
    margin = 10 ** max(0.05 * math.log10(high / low), 0.1)
    return low / margin, high * margin

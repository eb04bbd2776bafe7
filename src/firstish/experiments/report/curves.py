"""Plain curves from rows, and the look of each method: the same everywhere, in print and page."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from firstish.experiments.methods import parse_choice

# Okabe and Ito's palette, told apart by people with any colour vision; dashes and markers tell the
# rest.
_BLACK, _ORANGE, _SKY, _GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
_GREY, _BROWN = "#7A7A7A", "#8C510A"  # two more, told apart by lightness
_YELLOW, _BLUE, _RED, _PINK = "#B8A800", "#0072B2", "#D55E00", "#CC79A7"  # yellow darkened

# No x: crosses are for negative curvature.
_MARKERS = (
    *("circle", "square", "triangle-up", "triangle-down", "diamond", "star"),
    *("cross", "pentagon", "hexagon", "triangle-left", "triangle-right", "diamond-tall"),
)
_LOOKS: dict[str, tuple[str, str, str]] = {
    "cgmr": (_RED, "solid", "circle"),
    "mrcg": (_BLUE, "solid", "square"),
    "cg": (_ORANGE, "dash", "triangle-up"),
    "mr": (_SKY, "dash", "triangle-down"),
    "gm": (_YELLOW, "dash", "diamond"),
    "plane": (_GREEN, "dash", "circle-open"),
    "lazy": (_BLUE, "dashdot", "square-open"),
    "asd": (_RED, "dash", "diamond-tall-open"),
    "dy": (_ORANGE, "solid", "star-open"),
    "sdc": (_BROWN, "solid", "cross-open"),
    "scaled-adam": (_BLACK, "dashdot", "star-open"),
    "scaled-heavy-ball": (_BROWN, "dot", "cross-open"),
    "adam": (_BLACK, "solid", "star"),
    "heavy-ball": (_BROWN, "dashdot", "cross"),
    "nesterov": (_PINK, "dashdot", "pentagon"),
    "fixed": (_GREY, "dot", "hexagon"),
    "line-search": (_PINK, "solid", "triangle-left"),
    "line-search-full": (_ORANGE, "dot", "triangle-left-open"),
    "line-search-no": (_SKY, "dot", "triangle-up-open"),
    "pono": (_GREEN, "solid", "triangle-right"),
    "pono-uncapped": (_GREEN, "dot", "triangle-right-open"),
    "lbfgs": (_BLACK, "dash", "diamond-tall"),
    "adgd": (_SKY, "solid", "diamond-open"),
    "adgd2": (_SKY, "dashdot", "triangle-down-open"),
    "abbmin": (_YELLOW, "solid", "pentagon-open"),
    "cdat": (_RED, "dot", "hexagon-open"),
}
_MORE = [(c, d) for d in ("dash", "dashdot", "dot") for c in (_BLACK, _ORANGE, _GREEN, _PINK)]

# On a dark page the darkest colours are too faint.
_ON_DARK = {_BLACK: "#F2F2F2", _BROWN: "#C58A45", _BLUE: "#3B9DDD", _GREY: "#9A9A9A"}


@dataclass(frozen=True, slots=True)
class Look:
    """Colour, and dash and marker in plotly's words, of a method.

    No two methods share all three, and those of the standard panel have a marker each: they are
    told apart in grey as well.
    """

    label: str
    colour: str
    dash: str
    marker: str

    @property
    def on_dark(self) -> str:
        """The colour on a dark page."""
        return _ON_DARK.get(self.colour, self.colour)


def look(key: str, position: int = 0) -> Look:
    """How to draw a method; one given with a step size varies with its position in the run."""
    choice = parse_choice(key)
    known = _LOOKS.get(choice.name) if choice.rate is None else None
    other = (*_MORE[position % len(_MORE)], _MARKERS[position % len(_MARKERS)])
    return Look(choice.label, *(known or other))


def thin(rows: list[dict[str, Any]], most: int = 1500) -> list[dict[str, Any]]:
    """About so many rows, dense at the beginning as a logarithmic axis shows them.

    Those with negative curvature are rare, and all kept.
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
    """Where to put so many markers, evenly on a logarithmic axis, shifted by the position.

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
    """The lowest value up to each row: what a non-monotone method would hand back."""
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

"""Plain curves from rows, and the look of each method: the same everywhere, in print and page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from firstish.experiments.methods import parse_choice

# Okabe and Ito's palette, told apart by people with any colour vision; dashes tell the rest.
_BLACK, _ORANGE, _SKY, _GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
_GREY, _BROWN = "#7A7A7A", "#8C510A"  # two more, told apart by lightness
_YELLOW, _BLUE, _RED, _PINK = "#B8A800", "#0072B2", "#D55E00", "#CC79A7"  # yellow darkened

_LOOKS: dict[str, tuple[str, str]] = {
    "cgmr": (_RED, "solid"),
    "mrcg": (_BLUE, "solid"),
    "cg": (_ORANGE, "dash"),
    "mr": (_SKY, "dash"),
    "gm": (_YELLOW, "dash"),
    "plane": (_GREEN, "dash"),
    "lazy": (_BLUE, "dashdot"),
    "asd": (_RED, "dash"),
    "dy": (_ORANGE, "solid"),
    "sdc": (_BROWN, "solid"),
    "scaled-adam": (_BLACK, "dashdot"),
    "scaled-heavy-ball": (_BROWN, "dot"),
    "adam": (_BLACK, "solid"),
    "heavy-ball": (_BROWN, "dashdot"),
    "nesterov": (_PINK, "dashdot"),
    "fixed": (_GREY, "dot"),
    "line-search": (_PINK, "solid"),
    "line-search-full": (_ORANGE, "dot"),
    "line-search-no": (_SKY, "dot"),
    "pono": (_GREEN, "solid"),
    "pono-uncapped": (_GREEN, "dot"),
    "lbfgs": (_BLACK, "dash"),
    "adgd": (_SKY, "solid"),
    "adgd2": (_SKY, "dashdot"),
    "abbmin": (_YELLOW, "solid"),
    "cdat": (_RED, "dot"),
}
_MORE = [(c, d) for d in ("dash", "dashdot", "dot") for c in (_BLACK, _ORANGE, _GREEN, _PINK)]


@dataclass(frozen=True, slots=True)
class Look:
    """Colour and dash (in plotly's words) of a method."""

    label: str
    colour: str
    dash: str


def look(key: str, position: int = 0) -> Look:
    """How to draw a method; one given with a step size varies with its position in the run."""
    choice = parse_choice(key)
    colour, dash = _LOOKS.get(choice.name, _MORE[position % len(_MORE)])
    if choice.rate is not None:
        colour, dash = _MORE[position % len(_MORE)]
    return Look(choice.label, colour, dash)


def thin(rows: list[dict[str, Any]], most: int = 1500) -> list[dict[str, Any]]:
    """At most so many rows, dense at the beginning as a logarithmic axis shows them."""
    if len(rows) <= most:
        return rows
    ratio = math.log(len(rows)) / (most - 1)
    kept = sorted({min(len(rows) - 1, round(math.exp(ratio * k)) - 1) for k in range(most)})
    every = max(1, len(rows) // (most // 2))
    return [rows[k] for k in sorted({*kept, *range(0, len(rows), every), len(rows) - 1})]


def best_so_far(rows: list[dict[str, Any]]) -> list[float]:
    """The lowest value up to each row: what a non-monotone method would hand back."""
    lowest, out = math.inf, []
    for row in rows:
        lowest = min(lowest, row["value"])
        out.append(lowest)
    return out

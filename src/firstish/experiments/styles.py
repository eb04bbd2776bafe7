"""Colours, dashes and markers of the figures. Which method has which: `experiments/methods.py`."""

from __future__ import annotations

from dataclasses import dataclass

# Okabe and Ito's palette, told apart by people with any colour vision; dashes and markers tell the
# rest.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
GREY, BROWN = "#7A7A7A", "#8C510A"  # two more, told apart by lightness
YELLOW, BLUE, RED, PINK = "#B8A800", "#0072B2", "#D55E00", "#CC79A7"  # yellow darkened

# On a dark page the darkest colours are too faint.
_ON_DARK = {BLACK: "#F2F2F2", BROWN: "#C58A45", BLUE: "#3B9DDD", GREY: "#9A9A9A"}

# No x: crosses are for negative curvature.
_MARKERS = (
    *("circle", "square", "triangle-up", "triangle-down", "diamond", "star"),
    *("cross", "pentagon", "hexagon", "triangle-left", "triangle-right", "diamond-tall"),
)
_LINES = [(c, d) for d in ("dash", "dashdot", "dot") for c in (BLACK, ORANGE, GREEN, PINK)]


@dataclass(frozen=True, slots=True)
class Style:
    """How a curve is drawn.

    No two methods have the same dash and marker, and those of the standard panel have a marker
    each: they are told apart in grey as well.

    Args:
        colour: on white.
        dash: "solid", "dash", "dashdot" or "dot", as plotly calls them.
        marker: one of plotly's names; `-open` is a white face.
    """

    colour: str
    dash: str
    marker: str


def on_dark(colour: str) -> str:
    """A colour of the palette as it is on a dark page."""
    return _ON_DARK.get(colour.upper(), colour)


def by_position(position: int) -> Style:
    """A style for a curve that has none of its own, by its position in the run."""
    return Style(*_LINES[position % len(_LINES)], _MARKERS[position % len(_MARKERS)])

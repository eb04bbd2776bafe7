"""A figure on white, in the colours of the dark page."""

from __future__ import annotations

from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from firstish.experiments.styles import on_dark

BACK, INK, GRID = "#16161a", "#ececf1", "#3a3a44"
"""Those of `page.html`."""

_WHITE, _GREY = "#ffffff", "#b0b0b0"  # matplotlib's backgrounds and grid


def darken(figure: Figure) -> None:
    """Recolour the figure, in place."""
    for line in figure.findobj(Line2D):
        line.set_color(_shade(line.get_color()))
        line.set_markerfacecolor(_shade(line.get_markerfacecolor()))
        line.set_markeredgecolor(_shade(line.get_markeredgecolor()))
    for text in figure.findobj(Text):
        text.set_color(INK)
    for patch in figure.findobj(Patch):
        patch.set_facecolor(BACK)
    for axis in figure.axes:
        for spine in axis.spines.values():
            spine.set_edgecolor(INK)
    for legend in figure.findobj(Legend):
        legend.get_frame().set_edgecolor(GRID)


def _shade(colour: object) -> str:
    if colour == "none":
        return "none"
    light = to_hex(colour)  # type: ignore[arg-type]
    return {_WHITE: BACK, _GREY: GRID}.get(light) or on_dark(light)

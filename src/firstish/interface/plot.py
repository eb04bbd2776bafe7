"""The history of a run as a plot: `Result.plot`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firstish.interface.extras import install

AXES = {
    "iteration": "iterations",
    "oracle_calls": "oracle calls",
    "passes": "passes",
    "seconds": "seconds",
}
CURVES = {"value": "f", "grad_norm": "|g|", "step_size": "step size", "scale": "scale"}


def draw(rows: Sequence[Any], y: str, x: str, ax: Any, norm: str, **line: Any) -> Any:
    """Draw one column of the rows against another, and return the axes.

    `norm` is what the norm of the gradient is called.
    """
    for name, given, known in (("y", y, CURVES), ("x", x, AXES)):
        if given not in known:
            names = ", ".join(map(repr, known))
            raise ValueError(f"`Result.plot({name}={given!r})` must be one of {names}.")
    if ax is None:
        ax = _pyplot().subplots()[1]
    drawn = [row for row in rows if getattr(row, y) is not None]  # the last row has no step
    values = [getattr(row, y) for row in drawn]
    ax.plot([getattr(row, x) for row in drawn], values, **line)
    if values and min(values) > 0:
        ax.set_yscale("log")
    ax.set_xlabel(AXES[x])
    ax.set_ylabel(norm if y == "grad_norm" else CURVES[y])
    return ax


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"`Result.plot()` needs matplotlib: {install('plot')}.", name="matplotlib"
        ) from error
    return pyplot

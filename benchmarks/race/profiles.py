"""Performance profiles as a picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from firstish.experiments.methods import METHODS
from race import statistics as st
from race.board import WITH_GRID, Board

FARTHEST = 64.0
OURS = ("lazy", "plane", "cgmr")  # drawn thicker
DASHES = {"solid": "-", "dash": "--", "dashdot": "-.", "dot": ":"}
OTHERS = {
    "torch-lbfgs": ("#000000", "--"),
    "torch-lbfgs-10": ("#000000", ":"),
    "adam-lbfgs": ("#000000", "-."),
    "scipy-lbfgsb": ("#CC79A7", "-"),
    "scipy-lbfgsb-100": ("#CC79A7", "--"),
    "scipy-bfgs": ("#CC79A7", "-."),
    "scipy-trust-ncg": ("#8C510A", "-."),
    "scipy-trust-krylov": ("#8C510A", "--"),
    "scipy-newton-cg": ("#8C510A", ":"),
    "torchmin-bfgs": ("#56B4E9", "-."),
    "torchmin-lbfgs": ("#56B4E9", "-"),
    "torchmin-newton-cg": ("#56B4E9", "--"),
    "torchmin-trust-ncg": ("#56B4E9", ":"),
    "torchzero-bfgs": ("#A6761D", "-."),
    "torchzero-lbfgs": ("#A6761D", "-"),
    "torchzero-bfgs-wolfe": ("#A6761D", "--"),
}


def _style(method: str) -> tuple[str, str]:
    """Colour and dash; those of the methods' own figures where they have one."""
    if method in OTHERS:
        return OTHERS[method]
    name = method.removesuffix(WITH_GRID)
    own = METHODS[name].style if name in METHODS else None
    if own is None:
        return "#7A7A7A", ":"
    return own.colour, ":" if name != method else DASHES[own.dash]


def draw(board: Board, title: str, path: Path) -> None:
    """Calls above, seconds below, a column for each target; a line for each method."""
    figure, axes = plt.subplots(2, len(st.TAUS), figsize=(15, 9), sharex=True, sharey=True)
    handles = []
    for column, tau in enumerate(st.TAUS):
        for row, unit in enumerate(("calls", "seconds")):
            costs = {
                m: [getattr(cost, unit) for cost in board.costs[tau][m]] for m in board.methods
            }
            ax = axes[row][column]
            for method, ratios in st.performance_ratios(costs).items():
                steps = sorted({1.0, *(r for r in ratios if r <= FARTHEST), FARTHEST})
                fractions = [st.fraction_within(ratios, step) for step in steps]
                colour, dash = _style(method)
                (line,) = ax.step(
                    steps,
                    fractions,
                    dash,
                    where="post",
                    color=colour,
                    lw=2.6 if method in OURS else 1.3,
                    label=method,
                )
                if not row and not column:
                    handles.append(line)
            ax.set_xscale("log", base=2)
            ax.set_xlim(1, FARTHEST)
            ax.set_ylim(0, 1)
            ax.grid(alpha=0.3)
            ax.set_title(f"{unit}, τ = {tau:g}")
    for ax in axes[1]:
        ax.set_xlabel("within this factor of the best")
    for row_axes in axes:
        row_axes[0].set_ylabel("share of problems")
    figure.suptitle(f"{title}: {len(board.problems)} problems")
    figure.legend(handles=handles, loc="center right", fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0, 0.87, 0.98))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)

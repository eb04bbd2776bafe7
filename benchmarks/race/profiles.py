"""Performance profiles as a picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from race import statistics as st
from race.board import Board

FARTHEST = 64.0


def draw(board: Board, title: str, path: Path) -> None:
    """Calls above, seconds below, a column for each target; a line for each method."""
    figure, axes = plt.subplots(2, len(st.TAUS), figsize=(15, 9), sharex=True, sharey=True)
    colours = plt.get_cmap("tab20")
    handles = []
    for column, tau in enumerate(st.TAUS):
        for row, unit in enumerate(("calls", "seconds")):
            costs = {
                m: [getattr(cost, unit) for cost in board.costs[tau][m]] for m in board.methods
            }
            ax = axes[row][column]
            for k, (method, ratios) in enumerate(st.performance_ratios(costs).items()):
                steps = sorted({1.0, *(r for r in ratios if r <= FARTHEST), FARTHEST})
                shares = [st.share_within(ratios, step) for step in steps]
                style = ("-", "--", ":")[k // 20 % 3] if k >= 20 else ("-", "--")[k % 2]
                (line,) = ax.step(
                    steps, shares, style, where="post", color=colours(k % 20), lw=1.6, label=method
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

"""The table of winning step sizes: those tried, ours, the paper's, and the cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firstish.experiments.methods import parse_choice
from firstish.experiments.report.summary import Summary
from firstish.experiments.storage import files
from firstish.problems import get

HEADERS = ("method", "step sizes tried", "winner", "paper's winner", "calls", "seconds")

Grid = Mapping[str, Any]  # a `Tuning` as it stands in DIR/tuning/METHOD.json


def grids(summary: Summary) -> list[Grid]:
    """The grids of a run, one for each tuned method."""
    return [line.tuning for line in summary.lines if line.tuning is not None]


def cells(problem: str, grid: Grid) -> list[str]:
    """One line of the table, as text.

    >>> cells("fashion-mlp", {"method": "adam", "winner": 0.01, "oracle_calls": 40, "seconds": 2.0,
    ...                       "trials": [{"rate": 0.01}, {"rate": 0.001}]})
    ['Adam', '0.01, 0.001', '0.01 (largest)', '1e-05', '40', '2.0']
    """
    paper = get(problem).rates.get(grid["method"])
    return [
        parse_choice(grid["method"]).label,
        ", ".join(f"{trial['rate']:g}" for trial in grid["trials"]),
        _winner(grid),
        "-" if paper is None else f"{paper:g}",
        f"{grid['oracle_calls']:.12g}",
        f"{grid['seconds']:.1f}",
    ]


def _winner(grid: Grid) -> str:
    """The winner; one at the end of the grid may have a better neighbour that was not tried."""
    winner, rates = grid["winner"], [trial["rate"] for trial in grid["trials"]]
    if winner is None:
        return "none stayed finite"
    edges = {max(rates): " (largest)", min(rates): " (smallest)"}
    return f"{winner:g}" + (edges.get(winner, "") if len(rates) > 1 else "")


def write_markdown(folder: Path, summary: Summary) -> Path | None:
    """Write DIR/tuning.md if the run tuned anything; its path."""
    if not grids(summary):
        return None
    problem = summary.run["problem"]
    most = max(trial["oracle_calls"] for grid in grids(summary) for trial in grid["trials"])
    lines = [
        f"# Step sizes tuned on {get(problem).title}",
        "",
        f"No step size spent more than {most:g} oracle calls; the cost is that of the whole grid.",
        "",
        _row(HEADERS),
        _row(["---"] * len(HEADERS)),
        *(_row(cells(problem, grid)) for grid in grids(summary)),
    ]
    path = folder / "tuning.md"
    with files.replacing(path) as file:
        file.write(("\n".join(lines) + "\n").encode())
    return path


def _row(texts: Any) -> str:
    return f"| {' | '.join(texts)} |"

"""The paper's figures, drawn from a run folder: PNG and PDF."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from firstish.experiments.curves import best_so_far, look, thin
from firstish.experiments.methods import parse_choice
from firstish.experiments.summary import Summary, summarise
from firstish.problems import get

_DASHES = {"solid": "-", "dash": "--", "dashdot": "-.", "dot": ":"}
_RIVALS = ("fixed", "heavy-ball", "nesterov", "adam", "line-search", "lbfgs")
_NON_MONOTONE = ("pono", "pono-uncapped", "abbmin")
_SCALINGS = ("cgmr", "mrcg", "cg", "mr", "gm")

Draw = Callable[[Summary], Figure | None]


def draw_all(folder: Path) -> list[Path]:
    """Draw every figure the run has the methods for; where they are."""
    summary = summarise(folder)
    written = []
    for name, draw in FIGURES.items():
        figure = draw(summary)
        if figure is None:
            continue
        for kind in ("png", "pdf"):
            path = folder / "figures" / f"{name}.{kind}"
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=160, bbox_inches="tight")
            written.append(path)
        plt.close(figure)
    return [p for p in written if p.suffix == ".png"]


def _main(summary: Summary) -> Figure | None:
    """Objective, scale and step size of the scaling the paper shows."""
    return _three(summary, _headline(summary), _RIVALS)


def _pono(summary: Summary) -> Figure | None:
    """The same with PoNo, its best value so far in bold."""
    if not _present(summary, ("pono", "pono-uncapped")):
        return None
    return _three(summary, _headline(summary), (*_RIVALS, "pono", "pono-uncapped"))


def _cg(summary: Summary) -> Figure | None:
    """Objective, scale and step size of the CG scaling."""
    return _three(summary, "cg", ())


def _mr(summary: Summary) -> Figure | None:
    """Gradient norm, scale and step size of the MR scaling."""
    return _three(summary, "mr", (), field="grad_norm")


def _scalings(summary: Summary) -> Figure | None:
    """All scalings against each other."""
    return _one(summary, _SCALINGS, "oracle_calls")


def _time(summary: Summary) -> Figure | None:
    """Objective against seconds."""
    return _one(summary, (_headline(summary), *_RIVALS), "seconds")


def _gap(summary: Summary) -> Figure | None:
    """How far each method still is above the lowest value any of them reached."""
    return _one(summary, None, "oracle_calls", gap=True)


def _backtracking(summary: Summary) -> Figure | None:
    """Line search from several first steps against the scaled gradient (mushrooms)."""
    keys = [k for k in summary.rows if parse_choice(k).name == "line-search-full"]
    if len(keys) < 2:
        return None
    figure, axes = _canvas(1, 6.4)
    means = {line.key: line.backtracks for line in summary.lines}
    for key in (_headline(summary), *keys):
        if key in summary.rows:
            _curve(axes[0], summary, key, "oracle_calls", "value", f" ({means[key]:.2f})")
    _label(axes[0], "oracle calls", "objective", legend=True)
    axes[0].set_title("mean backtracks per iteration in brackets", fontsize=9)
    return _titled(figure, summary)


FIGURES: dict[str, Draw] = {
    "main": _main,
    "pono": _pono,
    "scalings": _scalings,
    "cg": _cg,
    "mr": _mr,
    "time": _time,
    "gap": _gap,
    "backtracking": _backtracking,
}


def _headline(summary: Summary) -> str:
    return get(summary.run["problem"]).scaling.lower()


def _present(summary: Summary, names: Sequence[str]) -> list[str]:
    return [k for k in summary.rows if parse_choice(k).name in names and summary.rows[k]]


def _canvas(panels: int, width: float) -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(
        1, panels, figsize=(width, 3.6), squeeze=False, layout="constrained"
    )
    return figure, list(axes[0])


def _three(
    summary: Summary, scaled: str, rivals: Sequence[str], field: str = "value"
) -> Figure | None:
    if not summary.rows.get(scaled):
        return None
    figure, axes = _canvas(3, 13)
    for key in [scaled, *_present(summary, rivals)]:
        _curve(axes[0], summary, key, "oracle_calls", field)
    steps = [r for r in summary.rows[scaled] if r["scale"] is not None]
    _per_iteration(axes[1], steps, "scale", scaled)
    _per_iteration(axes[2], steps, "step_size", scaled)
    names = {"value": "objective", "grad_norm": "gradient norm"}
    _label(axes[0], "oracle calls", names[field])
    if rivals:
        axes[0].legend(fontsize=7, loc="upper left", bbox_to_anchor=(0.0, -0.2), ncols=3)
    _label(axes[1], "iteration", "scale s")
    _label(axes[2], "iteration", "step size α")
    if any(r["curvature"] == "NC" for r in steps):
        axes[2].legend(fontsize=8)
    for axis, letter in zip(axes, "abc", strict=True):
        axis.set_title(f"({letter})", loc="left", fontsize=10)
    return _titled(figure, summary, look(scaled).label)


def _one(
    summary: Summary, names: Sequence[str] | None, abscissa: str, gap: bool = False
) -> Figure | None:
    keys = list(summary.rows) if names is None else _present(summary, names)
    if len(keys) < 2:
        return None
    figure, axes = _canvas(1, 7.2)
    for key in keys:
        _curve(axes[0], summary, key, abscissa, "gap" if gap else "value")
    words = {"oracle_calls": "oracle calls", "seconds": "seconds"}
    _label(axes[0], words[abscissa], "objective above the lowest" if gap else "objective")
    axes[0].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _titled(figure, summary)


def _curve(
    axis: Axes, summary: Summary, key: str, abscissa: str, field: str, suffix: str = ""
) -> None:
    style = look(key, list(summary.rows).index(key))
    rows = summary.rows[key]
    base = 0.0 if field != "gap" else summary.lowest or 0.0
    name = "value" if field == "gap" else field
    jumpy = parse_choice(key).name in _NON_MONOTONE and name == "value"
    if jumpy:  # what it holds on to is what counts; the iterates themselves stay in the background
        thinned = thin(rows)
        axis.plot(
            [r[abscissa] for r in thinned],
            [r[name] - base for r in thinned],
            color=style.colour,
            linewidth=0.5,
            alpha=0.35,
        )
        rows = [{**r, name: v} for r, v in zip(rows, best_so_far(rows), strict=True)]
        suffix += " (best so far)"
    rows = [r for r in thin(rows) if r[name] - base > 0]
    axis.plot(
        [r[abscissa] for r in rows],
        [r[name] - base for r in rows],
        color=style.colour,
        linestyle=_DASHES[style.dash],
        linewidth=1.5,
        label=style.label + suffix,
    )
    axis.set_xscale("log")
    axis.set_yscale("log")


def _per_iteration(axis: Axes, steps: list[dict[str, Any]], field: str, key: str) -> None:
    dotted = field == "step_size"
    axis.plot(
        [r["iteration"] + 1 for r in steps],
        [r[field] for r in steps],
        ".-" if dotted else "-",
        color=look(key).colour,
        linewidth=0.8,
        markersize=3,
    )
    negative = [r for r in steps if r["curvature"] == "NC"]
    axis.plot(
        [r["iteration"] + 1 for r in negative],
        [r[field] for r in negative],
        "kx",
        markersize=6,
        label="negative curvature",
    )
    axis.set_yscale("log", base=2 if dotted else 10)
    if dotted:
        values = [r[field] for r in steps]
        axis.set_ylim(min(0.4, *values) / 1.3, max(2.5, *values) * 1.3)
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _label(axis: Axes, horizontal: str, vertical: str, legend: bool = False) -> None:
    axis.set_xlabel(horizontal)
    axis.set_ylabel(vertical)
    axis.grid(True, which="major", linewidth=0.4, alpha=0.5)
    if legend:
        axis.legend(fontsize=7)


def _titled(figure: Figure, summary: Summary, more: str = "") -> Figure:
    title = get(summary.run["problem"]).title
    figure.suptitle(f"{title}: {more}" if more else title, fontsize=11)
    return figure

"""The paper's figures, drawn from the summary of a run: PNG and PDF."""

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

from firstish.experiments.methods import DEFAULT, METHODS, Family, MethodSpec, parse_choice
from firstish.experiments.report.curves import best_so_far, spaced, thin, window
from firstish.experiments.report.dark import darken
from firstish.experiments.report.summary import Summary
from firstish.experiments.storage.files import replacing
from firstish.problems import get

_DASHES = {"solid": "-", "dash": "--", "dashdot": "-.", "dot": ":"}
DPI = 160

MARKERS = {
    "circle": "o",
    "square": "s",
    "triangle-up": "^",
    "triangle-down": "v",
    "diamond": "D",
    "star": "*",
    "cross": "P",
    "pentagon": "p",
    "hexagon": "h",
    "triangle-left": "<",
    "triangle-right": ">",
    "diamond-tall": "d",
}
"""Plotly's words for markers in matplotlib's; `-open` is a white face."""

_BELOW: dict[str, Any] = {"loc": "outside lower center", "ncols": 5}
_BESIDE: dict[str, Any] = {"loc": "outside right center"}
_LEGEND: dict[str, Any] = {"fontsize": 8, "handlelength": 4}  # long enough to show its dashes

Draw = Callable[[Summary], Figure | None]


def draw_all(summary: Summary, out: Path) -> list[Path]:
    """Draw every figure the run has the methods for into OUT/figures; the PNG files on white.

    Beside each NAME.png are NAME.pdf and, for the dark page, dark/NAME.png.
    """
    written = []
    for name, draw in FIGURES.items():
        figure = draw(summary)
        if figure is None:
            continue
        path = out / "figures" / f"{name}.png"
        _save(figure, path)
        figure.set_layout_engine("none")  # laid out once, alike in all
        _save(figure, path.with_suffix(".pdf"))
        darken(figure)
        _save(figure, dark_of(path))
        plt.close(figure)
        written.append(path)
    return written


def dark_of(path: Path) -> Path:
    """The file of the same figure for the dark page."""
    return path.parent / "dark" / path.name


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=DPI, facecolor=figure.get_facecolor())


def _main(summary: Summary) -> Figure | None:
    """The paper's scaling and its rivals; its scale and, unless all are 1, its step sizes."""
    return _panels(summary, _headline(summary), ("rival",))


def _pono(summary: Summary) -> Figure | None:
    """The same objectives with PoNo, its best value so far in bold."""
    keys = [_headline(summary), *_present(summary, ("rival", "pono"))]
    return _one(summary, keys, "oracle_calls") if _present(summary, ("pono",), False) else None


def _cg(summary: Summary) -> Figure | None:
    """CG and the default method; the scale of CG and, unless all are 1, its step sizes."""
    return _panels(summary, "cg", ())


def _mr(summary: Summary) -> Figure | None:
    """Gradient norm of MR and the default; MR's scale and, unless all are 1, its step sizes."""
    return _panels(summary, "mr", (), field="grad_norm")


def _scalings(summary: Summary) -> Figure | None:
    """All scalings and the default method."""
    if len(_present(summary, ("scaling",), False)) < 2:
        return None
    return _one(summary, _present(summary, ("scaling",)), "oracle_calls")


def _time(summary: Summary) -> Figure | None:
    """Objective against seconds."""
    return _one(summary, [_headline(summary), *_present(summary, ("rival",))], "seconds")


def _gap(summary: Summary) -> Figure | None:
    """How far each method still is above the lowest value any of them reached."""
    return _one(summary, list(summary.rows), "oracle_calls", gap=True)


def _backtracking(summary: Summary) -> Figure | None:
    """Line search from several first steps against the scaled gradient (mushrooms)."""
    keys = _present(summary, ("first-step",))
    if len(_present(summary, ("first-step",), False)) < 2:
        return None
    figure, axes = _canvas(1, 7.2)
    means = {line.key: line.backtracks or 0.0 for line in summary.lines}
    drawn = [k for k in (_headline(summary), *keys) if k in summary.rows]
    _frame(axes[0], summary, drawn, "oracle_calls", "value")
    for key in drawn:
        _curve(axes[0], summary, key, "oracle_calls", "value", f" ({means[key]:.2f})")
    _label(axes[0], "oracle calls", "objective")
    figure.legend(**_LEGEND, **_BESIDE)
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


def _present(summary: Summary, families: Sequence[Family], default: bool = True) -> list[str]:
    """The methods of these families, and the default of `minimize`, that have rows."""
    kept = (k for k in summary.rows if _spec(k).family in families or (default and k == DEFAULT))
    return [k for k in kept if summary.rows[k]]


def _spec(key: str) -> MethodSpec:
    return METHODS[parse_choice(key).name]


def _canvas(panels: int, width: float) -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(
        1, panels, figsize=(width, 3.6), squeeze=False, layout="constrained"
    )
    return figure, list(axes[0])


def _panels(
    summary: Summary, scaled: str, rivals: Sequence[Family], field: str = "value"
) -> Figure | None:
    """Curves, scales and step sizes; without the step sizes where all of them are 1."""
    steps = [r for r in summary.rows.get(scaled, []) if r["scale"] is not None]
    if not steps:
        return None
    units = all(r["step_size"] == 1 for r in steps)
    figure, axes = _canvas(2 if units else 3, 9 if units else 13)
    drawn = [scaled, *_present(summary, rivals)]
    _frame(axes[0], summary, drawn, "oracle_calls", field)
    for key in drawn:
        _curve(axes[0], summary, key, "oracle_calls", field)
    _crosses(axes[0], [(r["oracle_calls"], r[field]) for r in steps if r["curvature"] == "NC"])
    names = {"value": "objective", "grad_norm": "gradient norm"}
    _label(axes[0], "oracle calls", names[field])
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, **_LEGEND, **_BELOW)
    _per_iteration(axes[1], steps, "scale", scaled)
    _label(axes[1], "iteration", "scale s; α = 1 at every step" if units else "scale s")
    if not units:
        _per_iteration(axes[2], steps, "step_size", scaled)
        _label(axes[2], "iteration", "step size α")
    label = parse_choice(scaled).label  # (a) has a legend, the others show one method
    for axis, title in zip(axes, ("(a)", f"(b) {label}", f"(c) {label}"), strict=False):
        axis.set_title(title, loc="left", fontsize=10)
    return _titled(figure, summary)


def _one(
    summary: Summary, wanted: Sequence[str], abscissa: str, gap: bool = False
) -> Figure | None:
    keys = [key for key in summary.rows if key in wanted and summary.rows[key]]
    values = {r["value"] for key in keys for r in summary.rows[key]}
    if len(keys) < 2 or len(values) < 2:  # no method has moved
        return None
    figure, axes = _canvas(1, 7.2)
    field = "gap" if gap else "value"
    _frame(axes[0], summary, keys, abscissa, field)
    for key in keys:
        _curve(axes[0], summary, key, abscissa, field)
    seconds = "processor seconds" if summary.run.get("processor_time") else "seconds"
    words = {"oracle_calls": "oracle calls", "seconds": seconds}
    _label(axes[0], words[abscissa], "objective above the lowest" if gap else "objective")
    figure.legend(**_LEGEND, **_BESIDE)
    return _titled(figure, summary)


def _curve(
    axis: Axes, summary: Summary, key: str, abscissa: str, field: str, suffix: str = ""
) -> None:
    position = list(summary.rows).index(key)
    choice = parse_choice(key)
    style = choice.style(position)
    rows = summary.rows[key]
    base, name = _measured(summary, field)
    if _spec(key).non_monotone and name == "value":
        # The best point is the result; the iterates themselves stay in the background.
        if field != "gap":
            shown = thin(rows)
            along, up = [r[abscissa] for r in shown], [r[name] for r in shown]
            axis.plot(along, up, color=style.colour, linewidth=0.4, alpha=0.3, zorder=1)
        rows = [{**r, name: v} for r, v in zip(rows, best_so_far(rows), strict=True)]
        suffix += " (best so far)"
    rows = [r for r in thin(rows) if r[name] - base > 0]
    along = [r[abscissa] for r in rows]
    axis.plot(
        along,
        [r[name] - base for r in rows],
        color=style.colour,
        linestyle=_DASHES[style.dash],
        linewidth=1.5,
        marker=MARKERS[style.marker.removesuffix("-open")],
        markersize=5,
        markerfacecolor="white" if style.marker.endswith("-open") else style.colour,
        markevery=spaced(along, position),
        label=choice.label + suffix,
    )


def _measured(summary: Summary, field: str) -> tuple[float, str]:
    """What the field is counted from, and which column of the rows holds it."""
    return (summary.lowest or 0.0, "value") if field == "gap" else (0.0, field)


def _frame(axis: Axes, summary: Summary, keys: Sequence[str], abscissa: str, field: str) -> None:
    """Both axes logarithmic, with limits that leave room for what did not diverge.

    They are set before anything is drawn: matplotlib's own search for limits overflows where a
    method diverged.
    """
    base, name = _measured(summary, field)
    rows = [r for key in keys for r in summary.rows[key]]
    firsts = [summary.rows[key][0][name] - base for key in keys if summary.rows[key]]
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(window(r[abscissa] for r in rows))
    axis.set_ylim(window((r[name] - base for r in rows), max(firsts, default=None)))


def _per_iteration(axis: Axes, steps: list[dict[str, Any]], field: str, key: str) -> None:
    dotted = field == "step_size"
    axis.set_xscale("log")  # negative curvature is met at the start, if at all
    axis.set_yscale("log", base=2 if dotted else 10)
    axis.set_xlim(window(r["iteration"] + 1 for r in steps))
    axis.set_ylim(window([*((0.4, 2.5) if dotted else ()), *(r[field] for r in steps)]))
    axis.plot(
        [r["iteration"] + 1 for r in steps],
        [r[field] for r in steps],
        ".-" if dotted else "-",
        color=parse_choice(key).style(0).colour,
        linewidth=0.8,
        markersize=3,
    )
    _crosses(axis, [(r["iteration"] + 1, r[field]) for r in steps if r["curvature"] == "NC"])
    if dotted:
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _crosses(axis: Axes, at: list[tuple[float, float]]) -> None:
    """Where negative curvature was met."""
    if at:
        axis.plot(*zip(*at, strict=True), "kx", markersize=6, label="negative curvature", zorder=4)


def _label(axis: Axes, horizontal: str, vertical: str) -> None:
    axis.set_xlabel(horizontal)
    axis.set_ylabel(vertical)
    axis.grid(True, which="major", linewidth=0.4, alpha=0.5)


def _titled(figure: Figure, summary: Summary) -> Figure:
    title, subset = get(summary.run["problem"]).title, summary.run.get("subset")
    figure.suptitle(title if subset is None else f"{title}, {subset:,} rows", fontsize=11)
    return figure

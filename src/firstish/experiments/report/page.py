"""One self-contained page of a run: table, interactive curves, figures, settings."""

from __future__ import annotations

import base64
import gzip
import html
import io
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from matplotlib.markers import MarkerStyle
from PIL import Image
from plotly.offline import get_plotlyjs

from firstish.experiments import winners
from firstish.experiments.console import cells, headers, ranked
from firstish.experiments.methods import METHODS, Choice, parse_choice
from firstish.experiments.report.command import words
from firstish.experiments.report.curves import best_so_far, thin
from firstish.experiments.report.figures import DPI, FIGURES, MARKERS, dark_of
from firstish.experiments.report.summary import UNFINISHED, Summary
from firstish.experiments.storage import files, plain_json, sessions
from firstish.experiments.styles import on_dark
from firstish.problems import get

_FIELDS = ("oracle_calls", "seconds", "iteration", "value", "grad_norm", "scale", "step_size")
_POINTS = 700  # of a curve: more than the chart has pixels for
_DIGITS = 7  # of a number in the chart
_COLOURS = 64  # of a figure: as a palette it takes a third of the bytes

_CAPTION = (
    "Oracle calls until f is at most lowest + gap (f0 - lowest), and until the gradient norm is at "
    "most gtol; a dash where it was not. Unit: share of steps with step size 1; +curv: of steps "
    "that also satisfy the curvature condition at 0.9. Tuning: oracle calls and seconds of "
    "the whole grid, the winner's among them."
)


def write_report(summary: Summary, figures: list[Path], out: Path) -> Path:
    """Write OUT/report.html; its path.

    Args:
        summary: of the run.
        figures: PNG files, as `draw_all` returns them.
        out: an existing folder.
    """
    problem = get(summary.run["problem"])
    formula = problem.formula_text or problem.formula
    template = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    page = template.substitute(
        title=html.escape(f"{problem.title}: {len(summary.lines)} methods"),
        lead=html.escape(_lead(summary)),
        facts=_pairs(_facts(summary.run)),
        caption=_CAPTION,
        table=_table(headers(summary), [cells(line) for line in ranked(summary)]),
        tuning=_tuning(summary),
        figures="\n".join(_figure(path) for path in figures),
        settings=_pairs({**_settings(summary.run), "objective": formula}),
        plotly=base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode(),
        best_so_far=html.escape(_best_so_far(summary)),
        data=plain_json.dumps(_curves(summary)).replace("</", "<\\/"),
    )
    path = out / "report.html"
    with files.replacing(path) as file:
        file.write(page.encode())
    return path


def _facts(run: dict[str, Any]) -> dict[str, str]:
    """What a reader needs to judge or repeat the run; older runs have not recorded all of it."""
    versions = {name: sessions.every(run, name) for name in sessions.versions() if name in run}
    seen = {**run, **versions}

    def told(*names: str) -> str:
        return ", ".join(f"{name} {seen.get(name, 'unknown')}" for name in names)

    return {
        "command": " ".join(words(run)),
        "seed": str(seen.get("seed", "unknown")),
        "date": str(seen.get("started", "unknown")),
        "versions": told("firstish", "torch", "python"),
        "machine": told("processor", "machine", "threads", "processes", "device", "dtype"),
    }


def _pairs(told: dict[str, Any]) -> str:
    return "".join(
        f"<dt>{html.escape(str(k))}</dt><dd>{html.escape(_text(v))}</dd>" for k, v in told.items()
    )


def _settings(run: dict[str, Any]) -> dict[str, Any]:
    """The settings of the run; of versions that changed between sessions, all."""
    changing = {name: sessions.every(run, name) for name in sessions.versions() if name in run}
    return {k: v for k, v in {**run, **changing}.items() if k != "sessions"}


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _lead(summary: Summary) -> str:
    said = [] if summary.note else [f"{ranked(summary)[0].label} came first."]
    if any(line.tuning for line in summary.lines):
        said.append("Tuned methods paid for their step size: the last column counts the grid.")
    if summary.lowest is not None:
        said.append(f"The lowest objective any method passed through is {summary.lowest:.8g}.")
    if not summary.lowest_is_final:
        said.append(f"{UNFINISHED[0].upper()}{UNFINISHED[1:]}.")
    if summary.note:
        said.append(summary.note)
    return " ".join([*said, *sessions.changes(summary.run)])


def _table(names: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)
    body = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{html.escape(c)}</th>' if k == 0 else f"<td>{html.escape(c)}</td>"
            for k, c in enumerate(line)
        )
        + "</tr>"
        for line in lines
    )
    return f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _tuning(summary: Summary) -> str:
    """The table of winning step sizes; empty if none were tuned."""
    lines = [winners.cells(summary.run["problem"], grid) for grid in winners.grids(summary)]
    if not lines:
        return ""
    return (
        '<h2 id="tuning">Step sizes tuned</h2><p>Each ran until it met the tolerance or the budget '
        "was spent; the cost is that of the whole grid.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-labelledby="tuning">'
        f"{_table(winners.HEADERS, lines)}</div>"
    )


def _figure(path: Path) -> str:
    pixels = int.from_bytes(path.read_bytes()[16:20], "big")  # a PNG says its width there
    caption = html.escape(" ".join((FIGURES[path.stem].__doc__ or path.stem).split()))
    return (
        f'<figure><div class="scroll" tabindex="0" role="region" aria-label="{caption}"><picture>'
        f'<source media="(prefers-color-scheme: dark)" srcset="{_embedded(dark_of(path))}">'
        f'<img width="{round(pixels * 96 / DPI)}" '
        f'alt="{caption} The table above holds its results as numbers." '
        f'src="{_embedded(path)}"></picture></div><figcaption>{caption}</figcaption></figure>'
    )


def _embedded(path: Path) -> str:
    """A PNG as a data URL, with fewer colours."""
    small = io.BytesIO()
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(_COLOURS).save(small, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(small.getvalue()).decode()}"


def _best_so_far(summary: Summary) -> str:
    """A sentence about the methods whose objective rises in between; empty if there are none."""
    choices = map(parse_choice, summary.rows)
    labels = [c.label for c in choices if METHODS[c.name].non_monotone]
    return f"The objective of {' and '.join(labels)} is the best so far." if labels else ""


def _positive(value: float) -> float | None:
    return value if value > 0 else None  # a logarithmic axis has no place for it


def _curves(summary: Summary) -> list[dict[str, Any]]:
    out = []
    for position, (key, all_rows) in enumerate(summary.rows.items()):
        choice = parse_choice(key)
        rows = thin(_shown(choice, all_rows), _POINTS)
        style = choice.style(position)
        curve: dict[str, Any] = {f: [_rounded(r[f]) for r in rows] for f in _FIELDS}
        curve["gap"] = [_rounded(_positive(r["value"] - (summary.lowest or 0.0))) for r in rows]
        curve["negative"] = [k for k, r in enumerate(rows) if r["curvature"] == "NC"]
        curve.update(label=choice.label, colour=style.colour, dark=on_dark(style.colour))
        curve.update(dash=style.dash, marker=style.marker, outline=_outline(style.marker))
        curve["shown"] = METHODS[choice.name].panel is not None
        out.append(curve)
    return out


def _shown(choice: Choice, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, with the best value so far where a method is not monotone."""
    if not METHODS[choice.name].non_monotone:
        return rows
    return [{**r, "value": best} for r, best in zip(rows, best_so_far(rows), strict=True)]


def _rounded(value: float | None) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _outline(marker: str) -> str:
    """The marker as the points of an SVG polygon about 0, some 10 units wide."""
    style = MarkerStyle(MARKERS[marker.removesuffix("-open")])
    (shape,) = style.get_path().transformed(style.get_transform()).to_polygons()
    return " ".join(f"{10 * x:.1f},{-10 * y:.1f}" for x, y in np.asarray(shape))

"""One self-contained page of a run: table, interactive curves, figures, settings."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from firstish.experiments.console import cells, headers, ranked
from firstish.experiments.curves import best_so_far, look, thin
from firstish.experiments.figures import FIGURES
from firstish.experiments.methods import PANEL, parse_choice
from firstish.experiments.summary import Summary, summarise
from firstish.problems import get

_FIELDS = ("oracle_calls", "seconds", "iteration", "value", "grad_norm", "scale", "step_size")

_CAPTION = (
    "Oracle calls until f is at most lowest + gap (f0 - lowest), and until the gradient norm is at "
    "most gtol; a dash where it was not. Unit: share of steps with step size 1; +curv: of steps "
    "that also satisfy the curvature condition at 0.9. Tuning: oracle calls and seconds of "
    "the whole grid."
)


def write_report(folder: Path, figures: list[Path]) -> Path:
    """Write DIR/report.html; where it is."""
    summary = summarise(folder)
    problem = get(summary.run["problem"])
    template = Template(Path(__file__).with_name("report.html").read_text())
    page = template.substitute(
        title=html.escape(f"{problem.title}: {len(summary.lines)} methods"),
        lead=html.escape(_lead(summary)),
        caption=_CAPTION,
        table=_table(summary),
        figures="\n".join(_figure(path) for path in figures),
        settings="".join(
            f"<dt>{html.escape(str(k))}</dt><dd>{html.escape(_text(v))}</dd>"
            for k, v in {**summary.run, "objective": problem.formula}.items()
        ),
        plotly=get_plotlyjs(),
        data=json.dumps(_curves(summary)).replace("</", "<\\/"),
    )
    path = folder / "report.html"
    path.write_text(page)
    return path


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _lead(summary: Summary) -> str:
    said = [f"{ranked(summary)[0].label} came first."]
    if any(line.tuning for line in summary.lines):
        said.append("Tuned methods paid for their step size: the last column counts the grid.")
    if summary.lowest is not None:
        said.append(f"The lowest objective any method passed through is {summary.lowest:.8g}.")
    return " ".join(said)


def _table(summary: Summary) -> str:
    head = "".join(f'<th scope="col">{html.escape(h)}</th>' for h in headers(summary))
    body = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{html.escape(c)}</th>' if k == 0 else f"<td>{html.escape(c)}</td>"
            for k, c in enumerate(cells(line))
        )
        + "</tr>"
        for line in ranked(summary)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _figure(path: Path) -> str:
    picture = base64.b64encode(path.read_bytes()).decode()
    caption = html.escape((FIGURES[path.stem].__doc__ or path.stem).strip())
    return (
        f'<figure><img alt="{caption} The table above holds its results as numbers." '
        f'src="data:image/png;base64,{picture}"><figcaption>{caption}</figcaption></figure>'
    )


def _positive(value: float) -> float | None:
    return value if value > 0 else None  # a logarithmic axis has no place for it


def _curves(summary: Summary) -> list[dict[str, Any]]:
    out = []
    for position, (key, all_rows) in enumerate(summary.rows.items()):
        rows = thin(all_rows)
        style = look(key, position)
        curve: dict[str, Any] = {f: [r[f] for r in rows] for f in _FIELDS}
        best = dict(zip((r["iteration"] for r in all_rows), best_so_far(all_rows), strict=True))
        curve["gap"] = [_positive(r["value"] - (summary.lowest or 0.0)) for r in rows]
        curve["best"] = [_positive(best[r["iteration"]] - (summary.lowest or 0.0)) for r in rows]
        curve.update(label=style.label, colour=style.colour, dash=style.dash)
        curve["shown"] = parse_choice(key).name in PANEL
        out.append(curve)
    return out

"""`firstish report`: the tables, figures and page of a run folder."""

from __future__ import annotations

import shlex
from pathlib import Path

from firstish.experiments.commands.output import MISTAKES, console, errors, fail, print_json, talk
from firstish.experiments.console import headline, table, winners
from firstish.experiments.report.figures import draw_all
from firstish.experiments.report.page import write_report
from firstish.experiments.report.summary import Summary, digest, summarise
from firstish.experiments.storage import folders, sessions
from firstish.experiments.storage.files import StorageError
from firstish.experiments.winners import grids, write_markdown


def report(
    folder: Path, out: Path | None = None, quiet: bool = False, as_json: bool = False
) -> None:
    """The command `firstish report`."""
    try:
        summary = read_run(folder)
    except MISTAKES as error:
        fail(error)
    if summary.note:
        errors.print(f"firstish: {summary.note}", highlight=False, soft_wrap=True)
    shown = talk(quiet, as_json)
    shown.print(table(summary, console.width))
    if tuned := grids(summary):
        shown.print(winners(summary.run["problem"], tuned))
    if first := headline(summary):
        shown.print(first, highlight=False, soft_wrap=True)
    for change in sessions.changes(summary.run):
        shown.print(change, markup=False, highlight=False, soft_wrap=True)
    try:
        page = write_page(summary, out or folder)
    except MISTAKES as error:
        again = shlex.join(["firstish", "report", str(folder), "--out", "DIR"])
        remedy = f" To write into another folder: {again}"
        fail(error, remedy if isinstance(error, StorageError) else "")
    written = f"records and figures: {folder}" if out is None else f"figures: {out}"
    shown.print(written, highlight=False, soft_wrap=True)
    if as_json:
        print_json({"folder": str(folder), "page": str(page), **digest(summary)})
    else:
        console.print(f"page: {page}", highlight=False, soft_wrap=True)


def read_run(folder: Path) -> Summary:
    """The summary of a run folder, as far as the run has come."""
    if not (folder / "run.json").exists():
        raise FileNotFoundError(f"{folder} holds no run: there is no run.json. Name a run folder.")
    summary = summarise(folder, unfinished=True)
    if not summary.lines:
        raise FileNotFoundError(
            f"{folder} holds no rows yet. Finish the run: repeat its command with --resume."
        )
    return summary


def write_page(summary: Summary, out: Path) -> Path:
    """Write the figures and the page of a run; no other process may be writing there."""
    with folders.occupied(out):
        write_markdown(out, summary)
        return write_report(summary, draw_all(summary, out), out)

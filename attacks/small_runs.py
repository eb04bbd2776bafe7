"""Small runs, with a grid, figures and a page, for the attacks on what is on disk.

Children come from a server process that has imported everything once (`warm`): a run takes less
than a second, importing torch two.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from firstish.experiments import runner, tuning
from firstish.experiments.commands import output
from firstish.experiments.commands.report import read_run, write_page
from firstish.experiments.methods import parse_choice
from firstish.experiments.observers import Silent
from firstish.experiments.report import figures
from firstish.experiments.report.summary import Summary
from firstish.experiments.settings import Settings
from firstish.experiments.storage import files
from firstish.experiments.storage.rows import read_rows
from firstish.problems.base import Options
from firstish_command.app import app

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["attacks.warm"])

SMALL = Settings(
    problem="digits-logistic",
    methods=tuple(map(parse_choice, ("cgmr", "adam", "lbfgs"))),
    budget=24,
    gtol=0.0,
    options=Options(subset=40),
    checkpoint_seconds=0.0,  # a checkpoint after every step
)


def prepare() -> None:
    """One thread, grids in this process, and one plain figure: what makes a run small."""
    torch.set_num_threads(1)
    tuning._jobs = lambda wanted: 1
    figures.FIGURES.clear()
    figures.FIGURES["plain"] = _plain


def _plain(summary: Summary) -> Figure:
    """All values, without the axes that take a second to lay out."""
    figure, axis = plt.subplots()
    axis.set_axis_off()
    axis.plot([row["value"] for rows in summary.rows.values() for row in rows])
    return figure


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """The same for the time of a block."""
    jobs, threads, drawn = tuning._jobs, torch.get_num_threads(), dict(figures.FIGURES)
    prepare()
    try:
        yield
    finally:
        tuning._jobs = jobs
        torch.set_num_threads(threads)
        figures.FIGURES.clear()
        figures.FIGURES.update(drawn)


def run(folder: Path, settings: Settings = SMALL) -> None:
    """Run, or go on with, the small run, and write its page."""
    runner.run(settings, folder, Silent(), resume=(folder / "run.json").exists())
    write_page(read_run(folder), folder)


Records = dict[str, list[dict[str, Any]]]


def records(folder: Path) -> Records:
    """All rows but for the time they took."""
    return {
        path.stem: [{k: v for k, v in row.items() if k != "seconds"} for row in read_rows(path)]
        for path in sorted(folder.glob("*.jsonl"))
    }


def faults(folder: Path, whole: Records) -> str:
    """What is not as it should be in a folder that is finished; the empty string if all is."""
    ends = files.read_json(folder / "summary.json")["methods"]
    if failed := [key for key, end in ends.items() if end["status"] == "FAILED"]:
        return f"{failed} FAILED: {ends[failed[0]]['message']}"
    if records(folder) != whole:
        return "other records than those of a whole run"
    if left := [p.name for p in folder.rglob("*.part")] + list((folder / "checkpoints").glob("*")):
        return f"leftovers: {left}"
    return torn(folder)


def torn(folder: Path) -> str:
    """Which of the pages and pictures is not whole; the empty string if all are."""
    page, ends = folder / "report.html", {".png": b"IEND\xaeB`\x82", ".pdf": b"%%EOF\n"}
    if page.exists() and not page.read_text(encoding="utf-8").rstrip().endswith("</html>"):
        return "a torn page"
    for picture in (folder / "figures").glob("*.p??"):
        if not picture.read_bytes().endswith(ends[picture.suffix]):
            return f"a torn {picture.name}"
    return ""


def start(work: Callable[..., None], *arguments: Any) -> tuple[ForkServerProcess, Connection]:
    """A process that does the work, and where it says "begun" and how it ended."""
    ours, its = SERVER.Pipe()
    process = SERVER.Process(target=_work, args=(its, work, arguments), daemon=True)
    process.start()
    its.close()
    return process, ours


def _work(pipe: Connection, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    prepare()
    pipe.send("begun")
    if work is command:
        pipe.recv()  # all begin at the same time
    try:
        work(*arguments)
    except OSError as error:
        pipe.send(f"refused: {error}")
    except BaseException:
        pipe.send(traceback.format_exc())
    else:
        pipe.send("done")


def command(folder: Path, *words: str) -> None:
    """`firstish WORDS` in that folder; an exit code other than 0 is an error with what it said."""
    os.chdir(folder)
    said = io.StringIO()
    output.errors.file = said
    sys.argv = ["firstish", *words]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            app(list(words))
    except SystemExit as end:
        if end.code:
            raise OSError(said.getvalue().strip()) from None


def said(pipe: Connection) -> str:
    """The next thing a process says; the empty string if it was killed before."""
    try:
        return str(pipe.recv())
    except EOFError:
        return ""

"""`firstish run`: methods on a problem, into a run folder."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import typer

from firstish.distributed import Group
from firstish.errors import RankError
from firstish.experiments import runner
from firstish.experiments.commands.options import make_options, make_settings
from firstish.experiments.commands.output import MISTAKES, errors, fail, talk
from firstish.experiments.commands.report import report
from firstish.experiments.console import Live
from firstish.experiments.methods import PANEL
from firstish.experiments.observers import Several, Silent
from firstish.experiments.ranks import first_decides, joined, world_size
from firstish.experiments.settings import Settings
from firstish.experiments.storage import folders
from firstish.experiments.storage.files import StorageError
from firstish.experiments.tensorboard import TensorBoard
from firstish.problems import get


def run(
    *,
    problem: str,
    method: list[str] | None,
    budget: int | None,
    gtol: float | None,
    seed: int,
    subset: int | None,
    dtype: str | None,
    device: str,
    data: Path | None,
    out: Path | None,
    resume: bool,
    checkpoint_seconds: float,
    tensorboard: bool,
    chunk_size: int | None,
    processor_time: bool,
    timeout: float,
    quiet: bool,
    as_json: bool,
    left_open: set[str],
) -> None:
    """The command `firstish run`; `left_open` are the options that the user did not give."""
    folder = out or Path("runs") / problem
    given: dict[str, Any] = {
        "problem": problem,
        "methods": method or [],
        "budget": budget,
        "gtol": gtol,
        "seed": seed,
        "subset": subset,
        "dtype": dtype,
        "chunk_size": chunk_size,
        "processor_time": processor_time,
    }
    try:
        with ExitStack() as stack:
            group = stack.enter_context(joined(device, timeout))
            folder = first_decides(group, partial(_folder, out, problem, resume))
            if group.rank == 0 and out is None and not resume:
                stack.callback(folders.remove_empty, folder)
            if resume:
                if group.rank == 0 and out is None:
                    errors.print(f"going on with {folder}", markup=False, soft_wrap=True)
                given = first_decides(group, partial(_recalled, given, folder, left_open))
            settings = _settings(given, device, data, group, checkpoint_seconds)
            if group.rank != 0:
                runner.run(settings, folder, Silent(), resume)
                return
            events = [stack.enter_context(TensorBoard(folder))] if tensorboard else []
            live = stack.enter_context(Live(talk(quiet, as_json)))
            runner.run(settings, folder, Several(live, *events), resume)
    except (RankError, *MISTAKES) as error:
        fail(error, _advice(error, out, folder))
    except KeyboardInterrupt:
        if os.environ.get("RANK", "0") == "0":
            again = "nothing had begun, so there is nothing to go on with"
            if (folder / "run.json").exists():
                again = f"go on with: {_resumption(None if out else folder)}"
            errors.print(f"interrupted; {again}", highlight=False, soft_wrap=True, markup=False)
        raise typer.Exit(130) from None
    report(folder, None, quiet, as_json)


def _advice(error: Exception, out: Path | None, folder: Path) -> str:
    """How to resume after this error; empty if no run was begun."""
    # Only then is the environment known to be valid, which `_resumption` needs.
    if isinstance(error, RankError):
        return f" Go on with: {_resumption(None if out else folder)}"
    if type(error) is StorageError and (folder / "run.json").exists():
        return f" When that is mended, go on with: {_resumption(None if out else folder)}"
    return ""


def _resumption(folder: Path | None) -> str:
    """The command that resumes this run; `folder` if the user had not named one."""
    start = ["firstish"]
    if world_size() > 1:
        each = os.environ.get("LOCAL_WORLD_SIZE", "1")
        start = ["torchrun", "--nproc-per-node", each, "-m", "firstish"]
    words = [w for w in sys.argv[1:] if w != "--resume"]
    named = [] if folder is None else ["--out", str(folder)]
    return shlex.join([*start, *words, *named, "--resume"])


def _settings(
    given: dict[str, Any], device: str, data: Path | None, group: Group, checkpoint_seconds: float
) -> Settings:
    """What to run, of the options by name."""
    options = make_options(
        given["seed"], given["subset"], given["dtype"], device, data, given["chunk_size"], group
    )
    return make_settings(
        given["problem"],
        given["methods"] or get(given["problem"]).panel or PANEL,
        given["budget"],
        given["gtol"],
        options,
        checkpoint_seconds,
        given["processor_time"],
    )


def _recalled(given: dict[str, Any], folder: Path, left_open: set[str]) -> dict[str, Any]:
    """The options that the user gave; for the others, those the run was started with."""
    found = runner.started_with(folder)

    recalled = {k: found[k] if k in found and k in left_open else v for k, v in given.items()}
    return {**recalled, "methods": [*found["methods"], *given["methods"]]}


def _folder(out: Path | None, problem: str, resume: bool) -> Path:
    """The run folder: the one named, the one to resume, or a new one."""
    if out is not None:
        return out
    default = Path("runs") / get(problem).name  # which raises before a folder is made
    return folders.to_resume(default, problem) if resume else folders.fresh(default)

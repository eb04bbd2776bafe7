"""Run methods on a problem and record them in a folder, from which an interrupted run resumes.

DIR/run.json              what is being run; compared on resume
DIR/<method>.jsonl        a row per iteration, appended as it goes
DIR/checkpoints/          x, method state, random state and counters, every few seconds
DIR/final/                the same where the budget was spent, so that a larger one can go on
DIR/tuning/<method>.json  a grid of step sizes, its winner and its cost
DIR/summary.json          how each method ended
DIR/tensorboard/<method>  the same rows as events, with --tensorboard
DIR/.lock                 held while a process writes into the folder
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from firstish.distributed import Group
from firstish.experiments.interrupt import postponed
from firstish.experiments.methods import METHODS, Choice, fixed_rate, needs_tuning
from firstish.experiments.observers import Observer
from firstish.experiments.ranks import first_decides
from firstish.experiments.settings import Settings
from firstish.experiments.storage import checkpoints, files, folders, sessions
from firstish.experiments.storage.ends import Ends, read_ends, write_ends
from firstish.experiments.storage.rows import Mark, NoRows, RowWriter, check_rows, end_of
from firstish.experiments.tuning import tune
from firstish.loop import Run
from firstish.methods import AnyMethod
from firstish.problems import get
from firstish.problems.base import Instance, Problem
from firstish.result import Status


def run(settings: Settings, folder: Path, observer: Observer, resume: bool) -> None:
    """Run the methods that have not ended yet."""
    group = settings.options.group
    with ExitStack() as stack:
        new, said = first_decides(group, lambda: _enter(stack, folder, settings, resume))
        if said and group.rank == 0:
            observer.note(said)
        problem = get(settings.problem)
        instance = problem.load(settings.options)
        if group.rank == 0:
            # After the data are loaded: a run that cannot begin leaves no trace.
            _mark(folder, settings, new)
        ended = first_decides(group, lambda: _reopen(folder, settings))
        waiting = [m for m in settings.methods if m.key not in ended]
        if waiting and group.rank == 0 and (said := sessions.begin(folder)):
            observer.note(said)
        rates = {m: _rate(m, problem, instance, settings, folder, observer) for m in waiting}
        _warm_up(instance)
        for choice in waiting:
            outcome, end = _outcome(
                choice, problem, instance, rates[choice], settings, folder, observer
            )
            if group.rank == 0:
                _keep(folder, settings, choice, outcome, end)
            observer.ended(choice, outcome)


def _enter(stack: ExitStack, folder: Path, settings: Settings, resume: bool) -> tuple[bool, str]:
    """Lock the folder; True if a new run begins in it, and what the user should know of it."""
    stack.enter_context(folders.occupied(folder))
    new = _is_new(folder, settings, resume)
    ends = read_ends(folder, rebuild=False)
    for key, mark in ends.records.items():  # before hours are spent on the rest
        check_rows(folder / f"{key}.jsonl", mark)
    for key in ends.methods:  # a kill may have left it
        checkpoints.delete(_checkpoint(folder, key))
    if ends.note:
        write_ends(folder, ends, [m.key for m in settings.methods])
    return new, ends.note


def _outcome(
    choice: Choice,
    problem: Problem,
    instance: Instance,
    rate: float | None,
    settings: Settings,
    folder: Path,
    observer: Observer,
) -> tuple[dict[str, Any], Mark | None]:
    """Run one method; its outcome, also if it failed, and where its rows end."""
    observer.started(choice, settings.limits())
    group, rated = settings.options.group, METHODS[choice.name].rated
    try:
        method = METHODS[choice.name].make(problem, instance, rate)
        outcome, end = _one(choice, method, instance, settings, folder, observer, group)
    except OSError:  # of the disk or another rank, not of the method
        raise
    except Exception as error:  # a method that fails is a row in the table
        if not group.alone:
            raise  # the other ranks may not have failed
        failure = {
            "status": "FAILED",
            "message": f"{type(error).__name__}: {error}",
            "rate": rate,
        }
        records = folder / f"{choice.key}.jsonl"
        return failure, end_of(records) if records.exists() else None
    # Theory may have given it.
    return {**outcome, "rate": getattr(method, "step_size", None) if rated else rate}, end


def _keep(
    folder: Path, settings: Settings, choice: Choice, outcome: dict[str, Any], end: Mark | None
) -> None:
    """Write how a method ended and where its rows end; after that delete its checkpoints."""
    ends = _ends(folder)
    ends.methods[choice.key] = outcome
    if end is not None:
        ends.records[choice.key] = end
    write_ends(folder, ends, [m.key for m in settings.methods])
    checkpoints.delete(_checkpoint(folder, choice.key))


def started_with(folder: Path) -> dict[str, Any]:
    """The settings of the run in this folder."""
    path = folder / "run.json"
    if not path.exists():
        raise FileNotFoundError(f"--resume: {folder} holds no run. Start one without --resume.")
    return files.read_json(path)


def _mark(folder: Path, settings: Settings, new: bool) -> None:
    """Write run.json; a resumed run may add methods and raise the budget."""
    path, described = folder / "run.json", settings.describe()
    if new:
        started = {**described, **sessions.versions(), "started": sessions.now()}
        files.write_json(path, started)
        return
    before = started_with(folder)
    after = {**before, "methods": described["methods"], "budget": described["budget"]}
    if after != before:
        files.write_json(path, after)


def _reopen(folder: Path, settings: Settings) -> set[str]:
    """Let the methods that had spent a smaller budget go on; those that have ended for good."""
    budget, ends = settings.limits().max_oracle_calls, _ends(folder)
    assert budget is not None
    spent = [
        key
        for key, end in ends.methods.items()
        if end["status"] == Status.MAX_ORACLE_CALLS.name and end["oracle_calls"] < budget
    ]
    for key in spent:
        del ends.methods[key]
        ends.records.pop(key, None)
    if spent:
        write_ends(folder, ends, [m.key for m in settings.methods])
    for choice in settings.methods:  # also those that a kill has kept from here
        final, checkpoint = _final(folder, choice.key), _checkpoint(folder, choice.key)
        if choice.key not in ends.methods and final.exists() and not checkpoint.exists():
            with files.named(final, "move"):
                checkpoint.parent.mkdir(exist_ok=True)
                final.replace(checkpoint)
    return set(ends.methods)


def _is_new(folder: Path, settings: Settings, resume: bool) -> bool:
    """True if a new run may begin there; raises if it holds another run or something else."""
    mark, wanted = folder / "run.json", settings.describe()
    if not mark.exists():
        if not folders.is_free(folder):
            raise FileExistsError(f"{folder} is not empty and holds no run. Use another --out.")
        return True
    found = files.read_json(mark)
    if not resume:
        raise FileExistsError(f"{folder} holds a run. Go on with --resume, or use another --out.")
    if set(found.get("methods", ())) <= set(wanted["methods"]):
        del wanted["methods"]  # methods may be added
    if found.get("budget", math.inf) < wanted["budget"]:
        del wanted["budget"]  # and the budget raised
    differ = [k for k in wanted if found.get(k) != wanted[k]]
    if differ:
        told = "; ".join(f"{k} was {found.get(k)}, is {wanted[k]}" for k in differ)
        before = found.get("processes")
        hint = (
            f" Use `torchrun --nproc-per-node {before} -m firstish run ... --resume`."
            if "processes" in differ and before != 1
            else ""
        )
        hint += " The budget can be raised, not lowered." if "budget" in differ else ""
        raise ValueError(f"--resume: {folder} was started with other settings: {told}.{hint}")
    return False


def _ends(folder: Path) -> Ends:
    """The outcomes of the methods that have ended, and where their rows end."""
    return read_ends(folder) if (folder / "summary.json").exists() else Ends({}, {})


def _rate(
    choice: Choice,
    problem: Problem,
    instance: Instance,
    settings: Settings,
    folder: Path,
    observer: Observer,
) -> float | None:
    """The step size: given, from theory, or the best of a grid."""
    if not needs_tuning(choice, instance):
        return fixed_rate(choice, problem)
    path = folder / "tuning" / f"{choice.name}.json"
    if not path.exists():
        kept = path.with_suffix(".jsonl")
        found = tune(settings, choice, observer.tuning, kept)
        if settings.options.group.rank == 0:
            files.write_json(path, asdict(found))
            kept.unlink(missing_ok=True)
        observer.tuned(choice, found)
        return found.winner
    winner = files.read_json(path)["winner"]
    return None if winner is None else float(winner)


def _checkpoint(folder: Path, key: str) -> Path:
    return folder / "checkpoints" / f"{key}.npz"


def _final(folder: Path, key: str) -> Path:
    return folder / "final" / f"{key}.npz"


def _warm_up(instance: Instance) -> None:
    """Evaluate once, so that first-time checks are charged to no method."""
    point = instance.objective.at(instance.x0)
    point.require_finite()
    if point.grad_norm > 0:
        point.hvp(point.grad)
    point.release()


def _one(
    choice: Choice,
    method: AnyMethod,
    instance: Instance,
    settings: Settings,
    folder: Path,
    observer: Observer,
    group: Group,
) -> tuple[dict[str, Any], Mark | None]:
    """Run one method to its end, from its checkpoint if any; its outcome and where its rows end."""
    saved, place = _checkpoint(folder, choice.key), folder / f"{choice.key}.jsonl"
    found, said = first_decides(group, lambda: checkpoints.usable(saved, place))
    run, kept = _begin(method, instance, found, settings.now())
    if said:
        observer.note(said)
    if group.rank == 0:
        sessions.note_method(folder, choice.key, run.iterations)
    rows = RowWriter(place, kept) if group.rank == 0 else NoRows()
    try:
        with postponed() as requested:

            def stop_requested() -> bool:
                return group.any(requested())

            status = _drive(run, rows, saved, choice, settings, observer, stop_requested)
        if status is Status.MAX_ORACLE_CALLS and (mark := rows.sync()) is not None:
            checkpoints.save(_final(folder, choice.key), run.snapshot(), mark)
        last = run.here().row()
        rows.write(last.to_dict())
    finally:
        end = rows.close()
    return {
        "status": status.name,
        "message": status.value,
        "iterations": last.iteration,
        "oracle_calls": last.oracle_calls,
        "passes": last.passes,
        "seconds": last.seconds,
        "value": last.value,
        "grad_norm": last.grad_norm,
    }, end


_PAUSE = 20
"""Least pause between checkpoints, over the time of the last: saving takes 5 % at most."""


def _drive(
    run: Run,
    rows: RowWriter | NoRows,
    saved: Path,
    choice: Choice,
    settings: Settings,
    observer: Observer,
    stop_requested: Callable[[], bool],
) -> Status:
    """Iterate, record and save; only the iterations are timed."""
    limits, last_save = settings.limits(), time.monotonic()
    pause = settings.checkpoint_seconds
    while True:
        outcome = run.advance(limits)
        shown = run.clock.seconds()
        if isinstance(outcome, Status):
            return outcome
        row = outcome.row()
        rows.write(row.to_dict())
        observer.advanced(choice, row)
        begun = time.monotonic()
        stop = stop_requested()
        if begun - last_save >= pause or stop:
            if (mark := rows.sync()) is not None:
                checkpoints.save(saved, run.snapshot(), mark)
            last_save = time.monotonic()
            if pause:  # 0 saves after every iteration
                pause = max(settings.checkpoint_seconds, _PAUSE * (last_save - begun))
        if stop:
            raise KeyboardInterrupt
        run.clock.forget_since(shown)


def _begin(
    method: AnyMethod, instance: Instance, saved: Path | None, now: Callable[[], float]
) -> tuple[Run, Mark]:
    """A new run, or the saved one, and where its rows end."""
    if saved is None:
        return Run(instance.objective, instance.x0, method, now=now), Mark()
    pattern = method.init(instance.objective.at(instance.x0, method.order))
    snapshot, rows = checkpoints.load(saved, pattern, instance.x0)
    return Run(instance.objective, instance.x0, method, snapshot, now), rows

"""Run methods on a problem into a folder, so that any interruption can be gone on from.

DIR/run.json              what is being run; compared on resume
DIR/<method>.jsonl        a row per iteration, appended as it goes
DIR/checkpoints/          x, method state, random state and counters, every few seconds
DIR/tuning/<method>.json  a grid of step sizes, its winner and its price
DIR/summary.json          how each method ended
DIR/tensorboard/<method>  the same rows as events, if asked for
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import firstish
from firstish.experiments import storage
from firstish.experiments.interrupt import postponed
from firstish.experiments.methods import METHODS, Choice, fixed_rate, needs_tuning
from firstish.experiments.observers import Observer
from firstish.experiments.ranks import first_decides
from firstish.experiments.settings import Settings
from firstish.experiments.tuning import tune
from firstish.loop import Run, Status
from firstish.methods import AnyMethod
from firstish.objectives.group import Group
from firstish.problems import get
from firstish.problems.base import Instance, Problem


def run(settings: Settings, folder: Path, observer: Observer, resume: bool) -> None:
    """Run everything that is not done yet."""
    group = settings.options.group
    new = first_decides(group, lambda: _is_new(folder, settings, resume))
    problem = get(settings.problem)
    instance = problem.load(settings.options)
    if group.rank == 0:
        # Not before the data are there: a run that never began leaves no trace.
        _mark(folder, settings, new)
    outcomes = _outcomes(folder)
    waiting = [m for m in settings.methods if m.key not in outcomes]
    rates = {m: _rate(m, problem, instance, settings, folder, observer) for m in waiting}
    _warm_up(instance)
    for choice in waiting:
        observer.started(choice, settings.limits())
        try:
            method = METHODS[choice.name].make(problem, instance, rates[choice])
            outcome = _one(choice, method, instance, settings, folder, observer, group)
        except Exception as error:  # a method that fails is a row in the table
            if not group.alone:
                raise  # the other ranks may not have failed
            outcome = {"status": "FAILED", "message": f"{type(error).__name__}: {error}"}
            rate = rates[choice]
        else:
            rate = getattr(method, "step_size", None)  # which theory may have given
        outcome["rate"] = rate if METHODS[choice.name].rated else rates[choice]
        outcomes[choice.key] = outcome
        ordered = {m.key: outcomes[m.key] for m in settings.methods if m.key in outcomes}
        if group.rank == 0:
            storage.write_json(folder / "summary.json", {"methods": ordered})
            _checkpoint(folder, choice).unlink(missing_ok=True)
        observer.ended(choice, outcome)


def started_with(folder: Path) -> dict[str, Any]:
    """The settings of the run in this folder."""
    path = folder / "run.json"
    if not path.exists():
        raise FileNotFoundError(f"--resume: {folder} holds no run. Start one without --resume.")
    return dict(storage.read_json(path))


def _mark(folder: Path, settings: Settings, new: bool) -> None:
    """Write what is being run; of a run that goes on only its methods may have become more."""
    path, asked = folder / "run.json", settings.describe()
    if new:
        started = {**asked, **versions(), "started": time.strftime("%FT%T%z")}
        storage.write_json(path, started)
    elif started_with(folder)["methods"] != asked["methods"]:
        storage.write_json(path, {**started_with(folder), "methods": asked["methods"]})


def _is_new(folder: Path, settings: Settings, resume: bool) -> bool:
    """Whether the folder waits for a run; refused if it holds another run or something else."""
    mark, wanted = folder / "run.json", settings.describe()
    if not mark.exists():
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty and holds no run. Use another --out.")
        return True
    found = storage.read_json(mark)
    if not resume:
        raise FileExistsError(f"{folder} holds a run. Go on with --resume, or use another --out.")
    if set(found.get("methods", ())) <= set(wanted["methods"]):
        del wanted["methods"]  # more methods are welcome
    differ = [k for k in wanted if found.get(k) != wanted[k]]
    if differ:
        told = "; ".join(f"{k} was {found.get(k)}, is {wanted[k]}" for k in differ)
        before = found.get("processes")
        hint = (
            f" Use `torchrun --nproc-per-node {before} -m firstish run ... --resume`."
            if "processes" in differ and before != 1
            else ""
        )
        raise ValueError(f"--resume: {folder} was started with other settings: {told}.{hint}")
    return False


def versions() -> dict[str, Any]:
    """What the numbers depend on besides the settings."""
    return {
        "firstish": firstish.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def _outcomes(folder: Path) -> dict[str, Any]:
    path = folder / "summary.json"
    return dict(storage.read_json(path)["methods"]) if path.exists() else {}


def _rate(
    choice: Choice,
    problem: Problem,
    instance: Instance,
    settings: Settings,
    folder: Path,
    observer: Observer,
) -> float | None:
    """The step size, found by a grid if nothing else gives it."""
    if not needs_tuning(choice, instance):
        return fixed_rate(choice, problem, instance)
    path = folder / "tuning" / f"{choice.name}.json"
    if not path.exists():
        kept = path.with_suffix(".jsonl")
        found = tune(settings, choice, observer, kept)
        if settings.options.group.rank == 0:
            storage.write_json(path, asdict(found))
            kept.unlink(missing_ok=True)
        observer.tuned(choice, found)
        return found.winner
    winner = storage.read_json(path)["winner"]
    return None if winner is None else float(winner)


def _checkpoint(folder: Path, choice: Choice) -> Path:
    return folder / "checkpoints" / f"{choice.key}.npz"


def _warm_up(instance: Instance) -> None:
    """Let the objective make its first-time checks, so that they fall on no method's account."""
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
) -> dict[str, Any]:
    """Run one method to its end, from its checkpoint if there is one."""
    saved = _checkpoint(folder, choice)
    run, offset = _begin(method, instance, saved, settings.now())
    place = folder / f"{choice.key}.jsonl"
    rows = storage.RowWriter(place, keep=offset) if group.rank == 0 else storage.NoRows()
    try:
        with postponed() as asked_to_stop:

            def asked() -> bool:
                return any(group.from_all(asked_to_stop()))

            status = _drive(run, rows, saved, choice, settings, observer, asked)
        last = run.here().row()
        rows.write(last)
    finally:
        rows.close()
    return {
        "status": status.name,
        "message": status.value,
        "iterations": last.iteration,
        "oracle_calls": last.oracle_calls,
        "passes": last.passes,
        "seconds": last.seconds,
        "value": last.value,
        "grad_norm": last.grad_norm,
    }


def _drive(
    run: Run,
    rows: storage.RowWriter | storage.NoRows,
    saved: Path,
    choice: Choice,
    settings: Settings,
    observer: Observer,
    asked_to_stop: Callable[[], bool],
) -> Status:
    """Iterate, record and save; the clock stands still for all but the iterations."""
    limits, last_save = settings.limits(), time.monotonic()
    while True:
        outcome = run.advance(limits)
        shown = run.clock.seconds()
        if isinstance(outcome, Status):
            return outcome
        row = outcome.row()
        rows.write(row)
        observer.advanced(choice, row)
        due = time.monotonic() - last_save >= settings.checkpoint_seconds
        stop = asked_to_stop()
        if due or stop:
            rows.save(saved, run.snapshot())
            last_save = time.monotonic()
        if stop:
            raise KeyboardInterrupt
        run.clock.forget_since(shown)


def _begin(
    method: AnyMethod, instance: Instance, saved: Path, now: Callable[[], float]
) -> tuple[Run, int]:
    """A new run, or the saved one and how many bytes of its rows count."""
    if not saved.exists():
        return Run(instance.objective, instance.x0, method, now=now), 0
    pattern = method.init(instance.objective.at(instance.x0, method.depth))
    snapshot, offset = storage.load_checkpoint(saved, pattern, instance.x0)
    return Run(instance.objective, instance.x0, method, snapshot, now), offset

"""Commands at the same time: new runs of one problem, and going on with one run.

New runs get a folder each, with the records of a run that was alone. Of those that go on with one
run some are refused by the name of the folder and the process; the records are those of one run.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from attacks import small_runs
from attacks.damage import Stop
from attacks.tally import Tally
from firstish.experiments import runner
from firstish.experiments.methods import Choice
from firstish.experiments.observers import Silent
from firstish.experiments.settings import Settings
from firstish.experiments.storage import files
from firstish.problems.base import Options

TOGETHER, TRIALS = 3, 25
WORDS = ("--budget", "24", "--gtol", "0", "--subset", "40", "--method", "mr", "--method", "lbfgs")
FAST = ("--checkpoint-seconds", "0", "--quiet")


def attack(seed: int, effort: float) -> list[Tally]:
    """Start several commands at once, many times."""
    with tempfile.TemporaryDirectory() as name, small_runs.prepared():
        place, trials = Path(name), max(1, round(TRIALS * effort))
        alone = [_alone(place / f"alone-{k}", seed + k) for k in range(TOGETHER)]
        new, again = Tally("new runs at the same time"), Tally("--resume at the same time")
        for k in range(trials):
            _new(new, place / f"new-{k}", seed, alone)
            _again(again, place / f"again-{k}", seed, alone[0])
        return [new, again]


def _commands(folder: Path, *each: tuple[str, ...]) -> list[str]:
    """What each command said in the end, all having begun at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    started = [small_runs.start(small_runs.command, folder, *words) for words in each]
    for _, pipe in started:
        pipe.recv()
    for _, pipe in started:
        pipe.send("go")
    ended = [small_runs.said(pipe) for _, pipe in started]
    for process, _ in started:
        process.join()
    return ended


def _run(seed: int) -> tuple[str, ...]:
    return ("run", "digits-logistic", "--seed", str(seed), *WORDS, *FAST)


def _settings(seed: int) -> Settings:
    """Those of the commands."""
    return replace(
        small_runs.SMALL,
        methods=(Choice("mr"), Choice("lbfgs")),
        options=Options(subset=40, seed=seed),
    )


def _alone(folder: Path, seed: int) -> small_runs.Records:
    runner.run(_settings(seed), folder, Silent(), resume=False)
    return small_runs.records(folder)


def _new(tally: Tally, folder: Path, seed: int, alone: list[small_runs.Records]) -> None:
    said = _commands(folder, *(_run(seed + k) for k in range(TOGETHER)))
    runs = {files.read_json(p)["seed"]: p.parent for p in folder.glob("runs/*/run.json")}
    for k in range(TOGETHER):
        found = said[k] if said[k] != "done" else "no folder"
        if seed + k in runs and said[k] == "done":
            found = small_runs.faults(runs[seed + k], alone[k])
        tally.expect(not found, f"{folder.name}, seed {seed + k}: {found}")


def _again(tally: Tally, folder: Path, seed: int, alone: small_runs.Records) -> None:
    run = folder / "runs" / "digits-logistic"
    with suppress(KeyboardInterrupt):
        runner.run(_settings(seed), run, Stop(), resume=False)
    said = _commands(folder, *(("run", "--resume", *FAST),) * TOGETHER)
    refused = [s for s in said if "digits-logistic is in use by process" in s]
    others = [s for s in said if s not in refused and s != "done"]
    found = "; ".join(others) if "done" in said else f"nobody went on: {said}"
    tally.refused += len(refused)
    found = found or small_runs.faults(run, alone)
    tally.expect(not found, f"{folder.name}: {found}")
    shutil.rmtree(folder)

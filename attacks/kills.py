"""SIGKILL at random times over a run, its summary, its figures and its page; then going on.

The run that was killed, however often, must end with the records of one that was not. And at every
single write: a run that is killed at its k-th `fsync`, for every k.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from pathlib import Path

from attacks import small_runs
from attacks.tally import Tally
from firstish.experiments.report.summary import summarise
from firstish.experiments.storage import files, folders

KILLS = 200
PER_RUN = 8  # kills of one folder before it may end


def attack(seed: int, effort: float) -> list[Tally]:
    """Kill and go on."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with small_runs.prepared():
            small_runs.run(place / "whole")
            whole = small_runs.records(place / "whole")
        at_random = _at_random(place, whole, random.Random(seed), max(2, round(KILLS * effort)))
        return [*at_random, _at_writes(place, whole, effort)]


def _at_random(
    place: Path, whole: small_runs.Records, draw: random.Random, kills: int
) -> list[Tally]:
    during = {
        False: Tally("SIGKILL during a run"),
        True: Tally("SIGKILL during figures and page"),
    }
    ended = Tally("runs gone on with to their end")
    seconds = _seconds(place / "timed")
    done = number = 0
    while done < kills:
        number += 1
        folder = place / f"cut-{number}"
        for _ in range(min(PER_RUN, kills - done)):
            if not _killed_after(draw.uniform(0, seconds), folder):
                break
            done += 1
            late = _all_ended(folder)
            during[late].expect(not (found := _broken(folder)), f"kill {done}: {found}")
        ended.expect(not (found := _finish(folder, whole)), f"run {number}: {found}")
    return [*during.values(), ended]


def _seconds(folder: Path) -> float:
    """How long a whole run takes."""
    process, pipe = small_runs.start(small_runs.run, folder)
    pipe.recv()
    begun = time.perf_counter()
    assert pipe.recv() == "done"
    process.join()
    return time.perf_counter() - begun


def _killed_after(seconds: float, folder: Path) -> bool:
    """Whether it was still at work."""
    process, pipe = small_runs.start(small_runs.run, folder)
    pipe.recv()
    pipe.poll(seconds)  # it says something only when it has ended
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL and not small_runs.said(pipe)


def _all_ended(folder: Path) -> bool:
    path = folder / "summary.json"
    ended = files.read_json(path)["methods"] if path.exists() else {}
    return len(ended) == len(small_runs.SMALL.methods)


def _broken(folder: Path) -> str:
    """What a kill must not leave: a lock, a torn file, a finished record that is not right."""
    if folders.in_use(folder):
        return "the lock is still held"
    try:
        if (folder / "run.json").exists():
            files.read_json(folder / "run.json")
        if (folder / "summary.json").exists():
            summarise(folder)
    except OSError as error:
        return str(error)
    return small_runs.torn(folder)


def _finish(folder: Path, whole: small_runs.Records) -> str:
    process, pipe = small_runs.start(small_runs.run, folder)
    pipe.recv()
    said = small_runs.said(pipe)
    process.join()
    return small_runs.faults(folder, whole) if said == "done" else f"not gone on with: {said}"


def _at_writes(place: Path, whole: small_runs.Records, effort: float) -> Tally:
    tally, step = Tally("SIGKILL at every write"), max(1, round(0.6 / effort))
    for k in range(1, 10_000, step):
        folder = place / f"write-{k}"
        process, pipe = small_runs.start(_run_to_write, folder, k)
        pipe.recv()
        said = small_runs.said(pipe)
        process.join()
        if said == "done":  # there are fewer writes
            break
        found = said or _broken(folder) or _finish(folder, whole)
        tally.expect(not found, f"write {k}: {found}")
    return tally


def _run_to_write(folder: Path, number: int) -> None:
    """Run, and be killed when that many writes have been made."""
    real, left = os.fsync, number

    def fsync(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        real(descriptor)

    os.fsync = fsync
    small_runs.run(folder)

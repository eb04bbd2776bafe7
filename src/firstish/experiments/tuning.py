"""A grid of step sizes: the winner, and what the whole grid cost."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from firstish.experiments.methods import METHODS, Choice
from firstish.experiments.settings import Settings
from firstish.experiments.storage.rows import NoRows, RowWriter, end_of, read_rows
from firstish.experiments.workers import processes, sigint_blocked
from firstish.minimize import minimize
from firstish.problems import get
from firstish.result import Progress, Status

Begin = Callable[[Choice, Sequence[float], int], None]
"""Called with the method, its step sizes and the number of processes."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One step size of the grid."""

    rate: float
    value: float | None  # None if it was not finite in the end, or the run failed
    status: str
    oracle_calls: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """A grid after it ran.

    Args:
        method: its name.
        winner: the best step size; None if none stayed finite.
        oracle_calls: of the whole grid.
        seconds: the sum of the trials', on one core each, without data loading and the start of
            processes.
        jobs: how many of them ran at a time.
        trials: one for each step size.
    """

    method: str
    winner: float | None
    oracle_calls: float
    seconds: float
    jobs: int
    trials: tuple[Trial, ...]


def tune(settings: Settings, choice: Choice, begin: Begin, kept: Path | None = None) -> Tuning:
    """Run the problem's grid for that method, each step size at the full budget.

    Args:
        settings: problem, budget and tolerance.
        choice: the method.
        begin: called before the grid runs.
        kept: a file that keeps the step sizes done, so that an interrupted grid goes on.
    """
    problem = get(settings.problem)
    if not METHODS[choice.name].rated:
        raise ValueError(f"{choice.name} has no step size to tune.")
    rates = problem.grids.get(choice.name)
    if not rates:
        raise ValueError(
            f"{problem.name} has no grid for {choice.name}. Give a step size: {choice.name}@0.01."
        )
    # Ranks of a group take each step size together; else each one is a process of its own.
    group = settings.options.group
    jobs = _jobs(len(rates)) if group.alone else 1
    begin(choice, rates, jobs)
    done = {t.rate: t for t in _read(kept)}
    log = NoRows() if kept is None or group.rank != 0 else RowWriter(kept, end_of(kept))
    try:
        for trial in _run(settings, choice, [r for r in rates if r not in done], jobs):
            done[trial.rate] = trial
            log.write(asdict(trial))
            log.sync()
    finally:
        log.close()
    trials = tuple(done[rate] for rate in rates)
    return Tuning(
        choice.name,
        _winner(trials),
        sum(t.oracle_calls for t in trials),
        sum(t.seconds for t in trials),
        jobs,
        trials,
    )


def _run(settings: Settings, choice: Choice, rates: Sequence[float], jobs: int) -> Iterator[Trial]:
    """Yield each trial when it is done."""
    if jobs == 1:
        yield from (_trial(settings, choice, rate) for rate in rates)
        return
    with processes(jobs) as pool:
        with sigint_blocked():  # a worker that is still importing would end with a traceback
            waiting = [pool.submit(_trial, settings, choice, rate) for rate in rates]
        for finished in as_completed(waiting):
            yield finished.result()


def _read(kept: Path | None) -> list[Trial]:
    return [] if kept is None or not kept.exists() else [Trial(**t) for t in read_rows(kept)]


def _winner(trials: Sequence[Trial]) -> float | None:
    """The lowest final objective wins.

    The final objectives of step sizes that met the tolerance differ only by rounding: of those,
    the one that took the fewest calls wins.
    """
    finished = [t for t in trials if t.value is not None]
    converged = [t for t in finished if t.status == Status.CONVERGED.name]
    if converged:
        return min(converged, key=lambda t: t.oracle_calls).rate
    return min(finished, key=lambda t: t.value or 0.0).rate if finished else None


def _trial(settings: Settings, choice: Choice, rate: float) -> Trial:
    problem, limits = get(settings.problem), settings.limits()
    instance = problem.load(settings.options)
    method = METHODS[choice.name].make(problem, instance, rate)
    now = settings.now()
    start = now()
    divergence = Divergence()
    result = minimize(
        instance.objective,
        instance.x0,
        method=method,
        gtol=limits.gtol,
        max_oracle_calls=limits.max_oracle_calls,
        callback=divergence,
    )
    status = "DIVERGED" if result.status is Status.STOPPED else result.status.name
    failed = result.status in (Status.NON_FINITE, Status.STOPPED)
    value = None if failed or not math.isfinite(result.value) else result.value
    return Trial(rate, value, status, result.oracle_calls, now() - start)


class Divergence:
    """A callback that stops a run whose f has stayed far above its start.

    A step size at which f has risen to 100 times its first value, and stayed there for 100 steps,
    is not the best of its grid; the rest of its budget would tell nothing.
    """

    FACTOR, STEPS = 100.0, 100

    def __init__(self) -> None:
        self.first: float | None = None
        self.steps = 0

    def __call__(self, progress: Progress) -> bool:
        """True to stop."""
        if self.first is None:
            self.first = progress.row.value
        far = progress.value - self.first > self.FACTOR * abs(self.first)
        self.steps = self.steps + 1 if far else 0
        return self.steps >= self.STEPS


def _jobs(wanted: int) -> int:
    """The number of processes: one a core, as far as the machine's memory allows.

    Each is taken to need twice what this one has needed so far, the problem being loaded.
    """
    mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1  # not on a Mac
    return max(1, min(wanted, cores, memory // (2 * mine)))

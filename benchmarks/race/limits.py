"""When a run of the race ends."""

from __future__ import annotations

import time
from dataclasses import dataclass

from race.problem import RaceProblem

ENOUGH = 1e-10  # of f0 - f*: below the finest target
GTOL = 1e-10  # of |g0|
SECONDS = 20.0


class Clock:
    """Seconds of processor time since the start.

    With one thread that is the time on the wall of an idle machine, and other programs on a busy
    one are not counted.
    """

    def __init__(self) -> None:
        self._start = time.process_time()

    def seconds(self) -> float:
        """What the clock shows."""
        return time.process_time() - self._start


@dataclass(frozen=True, slots=True)
class Finish:
    """The budget, and from which value or gradient norm on nothing more is to be learnt."""

    max_calls: float
    max_seconds: float
    value: float
    grad_norm: float

    def reached(self, value: float, grad_norm: float) -> bool:
        """Whether to stop here."""
        return value <= self.value or grad_norm <= self.grad_norm


def finish(
    problem: RaceProblem, budget: float, seconds: float, f0: float, g0_norm: float
) -> Finish:
    """Where a run of that problem ends, given f and |g| at its start."""
    floor = problem.floor
    value = float("-inf") if floor is None else floor + ENOUGH * (f0 - floor)
    return Finish(budget, seconds, value, GTOL * g0_norm)

"""When a run of the race ends."""

from __future__ import annotations

from dataclasses import dataclass

from race.problem import RaceProblem

ENOUGH = 1e-10  # of f0 - f*: below the finest target
GTOL = 1e-10  # of |g0|
SECONDS = 20.0


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

"""All methods on one problem, taking turns."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from firstish.problems.base import Instance
from race import entrants
from race.catalogue import PROBLEMS
from race.limits import finish
from race.traces import Outcome, median_seconds

SHORT = 0.3  # seconds: a run as short as that is repeated


@dataclass(frozen=True, slots=True)
class Rules:
    """What applies to every method alike.

    Args:
        max_calls: cap on the problems' own budgets.
        max_seconds: of one run.
        repeats: of a short run; its seconds are the median.
    """

    max_calls: float
    max_seconds: float
    repeats: int

    def budget(self, problem: str) -> float:
        """Oracle calls of one run."""
        return min(self.max_calls, PROBLEMS[problem].budget)


def heat(name: str, methods: Sequence[str], rules: Rules) -> dict[str, Outcome]:
    """Run these methods on that problem.

    The objective is built and warmed up once. Methods take turns: all run once, then those whose
    runs are short once more, and so on, so that a slow spell of the machine falls on all alike.
    """
    warnings.simplefilter("ignore")  # overflow far from the minimum is part of the race
    problem = PROBLEMS[name]
    instance = problem.build()
    f0, g0_norm = _warm_up(instance)
    goal = finish(problem, rules.budget(name), rules.max_seconds, f0, g0_norm)
    runs: dict[str, list[Outcome]] = {}
    for method in methods:
        tried = []
        for rate in entrants.rates(method, instance):
            gc.collect()
            tried.append(entrants.run(method, rate, problem, instance, goal))
        best = entrants.winner(tried)
        if problem.error is not None and best.x is not None:
            best.error = problem.error(best.x)
        best.x = None
        runs[method] = [best]
    for _ in range(rules.repeats - 1):
        for method, done in runs.items():
            if done[0].seconds < SHORT:
                done.append(entrants.run(method, done[0].rate, problem, instance, goal))
    return {method: median_seconds(done) for method, done in runs.items()}


def _warm_up(instance: Instance) -> tuple[float, float]:
    """f and |g| at the start; the checks of a first evaluation are made here, untimed."""
    for _ in range(3):
        point = instance.objective.at(instance.x0)
        point.hvp(point.grad)
    return point.value, point.grad_norm

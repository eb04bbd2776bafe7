"""The entrants: every method of firstish's registry, and the solvers of others."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from firstish import FunctionObjective
from firstish.experiments.methods import METHODS
from firstish.methods import AnyMethod
from firstish.problems.base import Instance, Problem
from race import run_others, run_ours
from race.limits import Finish
from race.problem import RaceProblem
from race.traces import Outcome

ENTRANTS = (*METHODS, *run_others.NAMES)

CORE = (
    *("cgmr", "mrcg", "cg", "mr", "gm", "plane", "lazy", "asd", "dy", "sdc"),
    *("adam", "line-search", "pono", "torch-lbfgs", "scipy-lbfgsb", "scipy-trust-ncg"),
)
"""Those that `--quick` races."""

MAIN = ("lazy", "plane", "cgmr", "adam", *run_others.NAMES)
"""Those of the tables in docs/which-method.md: `--methods main`."""

GRIDS: dict[str, tuple[float, ...]] = {"adam": (1e0, 1e-1, 1e-2, 1e-3, 1e-4)}
GRID = (1e-1, 1e-2, 1e-3)
"""Step sizes tried for Adam, and for every other method that needs one, on every problem."""

AS_LOW = 1e-9
"""Of the decrease from the start, the smallest tau of the tables: step sizes are level in f."""


def grid(name: str) -> tuple[float, ...]:
    """The step sizes tried for a method that needs one."""
    return GRIDS.get(name, GRID)


def missing_package(name: str) -> str | None:
    """The package that an entrant needs, if that is not installed."""
    return run_others.missing_package(name) if name in run_others.NAMES else None


def as_problem(problem: RaceProblem) -> Problem:
    """A problem as the registry of methods knows them."""
    return Problem(
        name=problem.name,
        title=problem.name,
        formula="",
        choices=(),
        build=lambda options: problem.build(),
        sigma=problem.sigma,
        rho=problem.rho,
    )


def setting(name: str, problem: RaceProblem) -> str:
    """All that a result of that method depends on, besides its code and the budget."""
    if name in run_others.NAMES:
        return run_others.setting(name)
    spec = METHODS[name]
    if not spec.rated:
        return repr(spec.make(as_problem(problem), _blank(), None))
    theory = "theory's step size where there are constants, or " if spec.theory else ""
    first = repr(spec.make(as_problem(problem), _blank(), grid(name)[0]))
    return f"{first} and so on: {theory}the best of {grid(name)}"


def _blank() -> Instance:
    x0 = torch.zeros(1, dtype=torch.float64)
    return Instance(objective=FunctionObjective(lambda x: x.dot(x), x0), x0=x0, rows=1)


def rates(name: str, instance: Instance) -> Sequence[float | None]:
    """The step sizes to try: None for a method that has none, or whose theory gives it."""
    if name in run_others.NAMES or not METHODS[name].rated:
        return (None,)
    known = instance.mu is not None and instance.lipschitz is not None
    return (None,) if METHODS[name].theory and known else grid(name)


def run(
    name: str, rate: float | None, problem: RaceProblem, instance: Instance, finish: Finish
) -> Outcome:
    """One run of one method."""
    if name in run_others.NAMES:
        return run_others.run(instance, name, finish)
    method: AnyMethod = METHODS[name].make(as_problem(problem), instance, rate)
    outcome = run_ours.run(instance, method, finish)
    outcome.rate = rate
    return outcome


def winner(tried: Sequence[Outcome]) -> Outcome:
    """The best step size of a grid, charged with what the others spent.

    The one that came lowest; of those that ran to the finish and came as low, the quickest. A
    step size at which all units of a network saturate finishes too, its gradient being 0, but high.
    """
    first, lowest = tried[0].trace.values[0], min(_end(o) for o in tried)
    level = lowest + AS_LOW * (first - lowest)
    finished = [o for o in tried if o.status == "TARGET" and _end(o) <= level]
    best = min(finished, key=lambda o: o.calls) if finished else min(tried, key=_end)
    best.other_calls = sum(o.calls for o in tried if o is not best)
    best.other_seconds = sum(o.seconds for o in tried if o is not best)
    return best


def _end(outcome: Outcome) -> float:
    return outcome.trace.values[-1]

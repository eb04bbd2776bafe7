"""How many steps the plane step should keep: calls and unit steps on the race's problems.

    .venv/bin/python benchmarks/plane_memory.py [--memories 1,2,3,5,10]

Classical functions and quadratics that are not held out; calls to tau = 1e-6 as in `race.py`, in
ratios to the first memory, failures charged twice the budget. One run each: no seconds.
"""

from __future__ import annotations

import argparse
import statistics
import warnings

import torch
from race import run_ours
from race import statistics as st
from race.catalogue import PROBLEMS
from race.limits import SECONDS, finish
from race.problem import held_out

from firstish import Armijo, PlaneStep

TAU = 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memories", default="1,2,3,5,10")
    memories = [int(m) for m in parser.parse_args().memories.split(",")]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # overflow far from the minimum is part of the race
    for family in ("classical", "quadratic"):
        names = [n for n, p in PROBLEMS.items() if p.family == family and not held_out(n)]
        costs, units, solved = {}, {}, {}
        for memory in memories:
            costs[memory], units[memory], solved[memory] = _over(names, memory)
        print(f"{family}, {len(names)} problems")
        for memory in memories:
            ratio = st.ratio(costs[memory], costs[memories[0]])
            print(
                f"  memory {memory:2}: {ratio:.3f} times the calls of memory {memories[0]}, "
                f"{solved[memory]} solved, unit step in {units[memory]:.1%} of SPC steps"
            )


def _over(names: list[str], memory: int) -> tuple[list[float], float, int]:
    """The calls charged, the fraction of unit steps and how many problems were solved."""
    costs, steps = [], []
    solved = 0
    for name in names:
        problem = PROBLEMS[name]
        instance = problem.build()
        point = instance.objective.at(instance.x0)
        f0 = point.value
        goal = finish(problem, problem.budget, SECONDS, f0, point.grad_norm)
        search = Armijo(rho=problem.rho)
        method = PlaneStep(memory=memory, sigma=problem.sigma, line_search=search)
        outcome = run_ours.run(instance, method, goal)
        assert problem.reference is not None
        assert outcome.steps is not None
        found = st.cost(outcome.trace, st.target(f0, problem.reference, TAU), problem.budget)
        costs.append(st.charged_calls(None if found is None else found[0], problem.budget))
        solved += found is not None
        steps.append(outcome.steps)
    total = sum(s.spc for s in steps)
    return costs, statistics.fsum(s.spc_unit for s in steps) / total, solved


if __name__ == "__main__":
    main()

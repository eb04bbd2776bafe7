"""From results to costs: what each method paid on each problem for each target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from race import statistics as st
from race.catalogue import PROBLEMS
from race.store import Key, Result
from race.traces import Outcome

WITH_GRID = " +grid"  # after the name of a tuned method: charged with its whole grid


@dataclass(frozen=True, slots=True)
class Cost:
    """What a target took: None if it was not reached; and what is charged either way."""

    calls: float | None
    seconds: float | None
    charged_calls: float
    charged_seconds: float


@dataclass(frozen=True, slots=True)
class Board:
    """The costs of all methods on some problems.

    Args:
        problems: in order.
        methods: in order; tuned ones a second time, charged with their grid.
        references: f_ref of each problem.
        costs: by tau and method, a cost for each problem.
    """

    problems: tuple[str, ...]
    methods: tuple[str, ...]
    references: Mapping[str, float]
    costs: Mapping[float, Mapping[str, Sequence[Cost]]]

    def of(self, problems: Iterable[str]) -> Board:
        """The same for some of the problems."""
        kept = set(problems)
        at = [k for k, problem in enumerate(self.problems) if problem in kept]
        costs = {
            tau: {m: [row[k] for k in at] for m, row in by_method.items()}
            for tau, by_method in self.costs.items()
        }
        return Board(tuple(self.problems[k] for k in at), self.methods, self.references, costs)

    def calls(self, method: str, tau: float) -> list[float]:
        """What is charged in calls, problem by problem."""
        return [cost.charged_calls for cost in self.costs[tau][method]]

    def seconds(self, method: str, tau: float) -> list[float]:
        """What is charged in seconds, problem by problem."""
        return [cost.charged_seconds for cost in self.costs[tau][method]]

    def solved(self, method: str, tau: float) -> int:
        """On how many problems the target was reached."""
        return sum(cost.calls is not None for cost in self.costs[tau][method])


def reference(problem: str, results: Iterable[Result]) -> float:
    """f_ref: the known minimum; where there is none, the least value of any stored result.

    A known minimum stands even if some method comes lower: on a function of several minima a
    lucky jump into another valley does not turn the minimum the start leads to into a failure.
    """
    known = PROBLEMS[problem].reference
    if known is not None:
        return known
    return min(r.outcome.trace.values[-1] for r in results if r.key.problem == problem)


def board(
    problems: Sequence[str],
    methods: Sequence[str],
    results: Mapping[tuple[str, str], Result],
    everything: Iterable[Result],
) -> Board:
    """The costs of the methods selected, by targets that every stored result has a say in."""
    everything = list(everything)
    references = {p: reference(p, everything) for p in problems}
    costs: dict[float, dict[str, list[Cost]]] = {tau: {} for tau in st.TAUS}
    names = []
    for method in methods:
        rows = [results[p, method] for p in problems]
        kinds = [False, True] if any(r.outcome.other_calls for r in rows) else [False]
        for with_grid in kinds:
            name = method + WITH_GRID * with_grid
            names.append(name)
            for tau in st.TAUS:
                costs[tau][name] = [
                    _cost(r.key, r.outcome, references[r.key.problem], tau, with_grid) for r in rows
                ]
    return Board(tuple(problems), tuple(names), references, costs)


def _cost(key: Key, outcome: Outcome, f_ref: float, tau: float, with_grid: bool) -> Cost:
    trace, budget = outcome.trace, key.budget
    goal = st.target(trace.values[0], f_ref, tau)
    found = st.cost(trace, goal, budget)
    calls, seconds = (None, None) if found is None else found
    more_calls = outcome.other_calls if with_grid else 0.0
    more_seconds = outcome.other_seconds if with_grid else 0.0
    charged_seconds = st.charged_seconds(seconds, budget, outcome.calls, outcome.seconds)
    return Cost(
        None if calls is None else calls + more_calls,
        None if seconds is None else seconds + more_seconds,
        st.charged_calls(calls, budget) + more_calls,
        charged_seconds + more_seconds,
    )

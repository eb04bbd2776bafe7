"""How costs are compared: targets, failures, means, intervals and profiles. Numbers in and out."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import fmean

from race.traces import Trace

TAUS = (1e-3, 1e-6, 1e-9)
PENALTY = 2.0  # times the budget, for a failure


def target(f0: float, reference: float, tau: float) -> float:
    """Moré and Wild's convergence test: f <= f_ref + tau (f0 - f_ref).

    >>> target(10.0, 2.0, 0.25)
    4.0
    """
    return reference + tau * (f0 - reference)


def cost(trace: Trace, value: float, budget: float) -> tuple[float, float] | None:
    """Calls and seconds until f was at most `value`; None if that took more than the budget."""
    for calls, seconds, f in zip(trace.calls, trace.seconds, trace.values, strict=True):
        if f <= value:
            return (calls, seconds) if calls <= budget else None
    return None


def charged_calls(calls: float | None, budget: float) -> float:
    """A failure costs twice the budget."""
    return PENALTY * budget if calls is None else calls


def charged_seconds(
    seconds: float | None, budget: float, spent_calls: float, spent_seconds: float
) -> float:
    """A failure costs the time of twice the budget, at what the run's own calls took."""
    if seconds is not None:
        return seconds
    return PENALTY * budget * spent_seconds / spent_calls


def geometric_mean(costs: Sequence[float]) -> float:
    """exp of the mean logarithm.

    >>> geometric_mean([1.0, 100.0])
    10.0
    """
    return math.exp(fmean(math.log(c) for c in costs))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The geometric mean over problems of our cost over theirs."""
    return geometric_mean([a / b for a, b in zip(ours, theirs, strict=True)])


def interval(
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> tuple[float, float]:
    """A percentile bootstrap interval of `ratio`, problems drawn with replacement."""
    logs = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
    draw = random.Random(seed)
    means = sorted(fmean(draw.choices(logs, k=len(logs))) for _ in range(resamples))
    tail = (1 - level) / 2
    low = means[math.floor(tail * (resamples - 1))]
    high = means[math.ceil((1 - tail) * (resamples - 1))]
    return math.exp(low), math.exp(high)


def performance_ratios(
    costs: Mapping[str, Sequence[float | None]],
) -> dict[str, list[float]]:
    """Dolan and Moré's r: each method's cost over the best method's on the same problem.

    A failure (None) is infinite.
    """
    best = [
        min(math.inf if c is None else c for c in column)
        for column in zip(*costs.values(), strict=True)
    ]
    return {
        method: [math.inf if c is None else c / b for c, b in zip(row, best, strict=True)]
        for method, row in costs.items()
    }


def fraction_within(ratios: Sequence[float], factor: float) -> float:
    """rho(factor): the fraction of problems on which a method is within that factor of the best."""
    return sum(r <= factor for r in ratios) / len(ratios)

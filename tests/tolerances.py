"""Tolerances that follow from the arithmetic: from eps, the number of terms, and error growth.

A trace of iterates is compared with a straight-line NumPy reference. How far two correct
implementations may part is a property of the recursion, and the reference itself shows it: run
again with each f, g and Hv rounded differently (`rounded_otherwise`), it parts from its first run
by `spread`. Ours may part from it by `MARGIN` times as much; where that exceeds `COARSE`, or where
the runs decide differently, a trace says nothing more and the comparison ends.
"""

import numpy as np

EPS = 2.0**-52  # of float64
MARGIN = 100.0  # a handful of other roundings are a sample of all others, and of one ulp only
COARSE = 1e-6  # relative to 1 + |x|: a wrong formula differs by more, in the first steps
SEEDS = range(5)


def summed(n, cancellation=1.0, eps=EPS):
    """How far two sums of n products may differ, relative to the sum, in whatever order each is.

    n + 1 roundings on either side. `cancellation` is the sum of absolute values over the sum: 1
    where all terms have one sign.
    """
    return 2 * (n + 1) * cancellation * eps


def rounded_otherwise(function, seed):
    """A function of arrays with arguments and result wrong by an ulp: another correct program.

    This is what a backward stable evaluation promises: the nearly right answer to a nearly right
    question. An error of the result alone would miss what cancellation does.
    """
    rng = np.random.default_rng(seed)

    def moved(array):
        return array * (1 + EPS * rng.integers(-1, 2, size=np.shape(array)))

    return lambda *arrays: moved(function(*map(moved, arrays)))


def distance(x, y):
    """The largest difference of two arrays, relative to 1 + |y|."""
    return np.max(np.abs(np.subtract(x, y))) / (1 + np.max(np.abs(y)))


def spread(first, others):
    """How far the other runs part from the first, step by step: the largest distance so far.

    A run is a sequence of arrays, one for each step; the shortest decides.
    """
    steps = min(map(len, [first, *others]))
    apart = [max(distance(run[k], first[k]) for run in others) for k in range(steps)]
    return np.maximum.accumulate(apart)


def allowed(first, others):
    """The tolerance of each step, as far as a comparison says anything."""
    tolerance = MARGIN * (spread(first, others) + EPS)
    return tolerance[tolerance <= COARSE]


def agreeing(one, two):
    """For how many steps two lists of decisions are the same."""
    differ = [k for k, (a, b) in enumerate(zip(one, two, strict=False)) if a != b]
    return min([*differ, len(one), len(two)])


def bounded(run, parts):
    """What a reference decided and computed at each step, with the tolerances of its numbers.

    `run(*parts)` gives a pair for each step: decisions (a value) and a tuple of numbers or arrays.
    Triples of the two and the tolerances come back, as far as a comparison says anything.
    """
    first = run(*parts)
    others = [run(*(rounded_otherwise(part, seed) for part in parts)) for seed in SEEDS]
    same = min(agreeing([d for d, _ in first], [d for d, _ in other]) for other in others)
    columns = [list(zip(*(numbers for _, numbers in r), strict=True)) for r in [first, *others]]
    tolerances = [allowed(one[:same], rest) for one, *rest in zip(*columns, strict=True)]
    return [
        (decided, numbers, bounds)
        for (decided, numbers), *bounds in zip(first, *tolerances, strict=False)
    ]

"""Non-negative least squares: seconds and accuracy of ours and of direct solvers.

    .venv/bin/python benchmarks/bounded_least_squares.py [--repeats 5]

`nnls` (Lawson and Hanson), `lsq_linear` and scikit-learn's `LinearRegression(positive=True)`, which
calls `nnls`, solve this one problem and count no calls, so only seconds of processor time are
compared: the median of runs that take turns, each at its own default tolerance and, for ours, also
at a tight one. `error` is (f - f*) / (f(0) - f*), f* the lowest value of all. A solver that takes
more than `LONG` seconds for a problem is not run on it again.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import lsq_linear, nnls
from sklearn.linear_model import LinearRegression

import firstish
from firstish.sklearn import ScaledRidge

Array = NDArray[np.float64]
LONG = 20.0
SIZES = [(60, 30), (200, 100), (400, 50), (2000, 200), (2000, 1000), (50_000, 100), (20_000, 500)]


def data(rows: int, n: int) -> tuple[Array, Array]:
    """Correlated columns of positive numbers; half of the true coefficients are 0."""
    random = np.random.default_rng(rows + n)
    A = random.random((rows, n))
    w = np.maximum(random.random(n) - 0.5, 0)
    return A, A @ w + 0.1 * random.standard_normal(rows)


def ours(A: Array, y: Array) -> Array:
    """`minimize` of a `LinearModel` at its default tolerance."""
    model = firstish.LinearModel(
        torch.from_numpy(A), torch.from_numpy(y), firstish.families.LeastSquares()
    )
    return firstish.minimize(
        model, torch.zeros(A.shape[1], dtype=torch.float64), bounds=(0, None)
    ).x


def ridge(tol: float) -> Callable[[Array, Array], Array]:
    """`ScaledRidge(positive=True)` without a penalty."""
    settings = {"alpha": 0.0, "fit_intercept": False, "positive": True, "tol": tol}
    return lambda A, y: ScaledRidge(**settings, max_iter=10_000).fit(A, y).coef_


SOLVERS: dict[str, Callable[[Array, Array], Array]] = {
    "minimize(LinearModel)": ours,
    "ScaledRidge, tol 1e-4": ridge(1e-4),
    "ScaledRidge, tol 1e-8": ridge(1e-8),
    "LinearRegression": lambda A, y: (
        LinearRegression(fit_intercept=False, positive=True).fit(A, y).coef_
    ),
    "nnls": lambda A, y: nnls(A, y)[0],
    "lsq_linear, trf": lambda A, y: lsq_linear(A, y, (0, np.inf)).x,
    "lsq_linear, bvls": lambda A, y: lsq_linear(A, y, (0, np.inf), method="bvls").x,
}


def compare(rows: int, n: int, repeats: int) -> None:
    """One line for each solver."""
    A, y = data(rows, n)
    seconds: dict[str, list[float]] = {name: [] for name in SOLVERS}
    values: dict[str, float] = {}
    for _ in range(repeats):
        for name, solve in SOLVERS.items():
            if any(s > LONG for s in seconds[name]):
                continue
            start = time.process_time()
            x = np.asarray(solve(A, y))
            seconds[name].append(time.process_time() - start)
            values[name] = float(((A @ np.maximum(x, 0) - y) ** 2).sum())
    least, zero = min(values.values()), float((y**2).sum())
    print(f"\n{rows} rows, {n} columns")
    for name in SOLVERS:
        error = (values[name] - least) / (zero - least)
        print(f"  {name:24}{statistics.median(seconds[name]) * 1e3:10.1f} ms   error {error:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for rows, n in SIZES:
        compare(rows, n, args.repeats)


if __name__ == "__main__":
    main()

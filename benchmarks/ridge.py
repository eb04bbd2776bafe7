"""Time and error of `ScaledRidge` against scikit-learn's `Ridge`, both as they are by default.

    .venv/bin/python benchmarks/ridge.py

Prints the processor's seconds of a fit, one thread, and the distance of the coefficients from those
of the lowest objective that any of the solvers reaches with a tolerance of 1e-12, relative to their
norm. alpha = 1.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import make_regression
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from firstish.sklearn import ScaledRidge

TIGHT = {"tol": 1e-12, "max_iter": 10_000}


def dense(rows: int, columns: int) -> tuple[Any, np.ndarray]:
    X, y = make_regression(rows, columns, n_informative=min(50, columns), noise=1.0, random_state=0)
    return X, y


def sparse(rows: int, columns: int, density: float) -> tuple[Any, np.ndarray]:
    random = np.random.default_rng(0)
    X = sp.random(rows, columns, density, format="csr", random_state=0)
    return X, X @ random.standard_normal(columns) + 0.1 * random.standard_normal(rows)


PROBLEMS = {
    "2,000 x 2,000": (dense(2000, 2000), False),
    "500 x 5,000": (dense(500, 5000), False),
    "50,000 x 50": (dense(50_000, 50), False),
    "50,000 x 1,000, sparse, 0.5 %": (sparse(50_000, 1000, 0.005), False),
    "20,000 x 5,000, sparse, 0.1 %": (sparse(20_000, 5000, 0.001), False),
    "2,000 x 500, positive": (dense(2000, 500), True),
    "50,000 x 50, positive": (dense(50_000, 50), True),
    "50,000 x 1,000, sparse, 0.5 %, positive": (sparse(50_000, 1000, 0.005), True),
}


def objective(model: Any, X: Any, y: np.ndarray) -> float:
    residual = X @ model.coef_ + model.intercept_ - y
    return float(residual @ residual + model.coef_ @ model.coef_)


def fit(model: Any, X: Any, y: np.ndarray) -> tuple[Any, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tolerances that rounding does not allow
        start = time.process_time()
        model.fit(X, y)
        return model, time.process_time() - start


def line(name: str, X: Any, y: np.ndarray, positive: bool) -> str:
    kinds = (ScaledRidge, Ridge)
    tight = [fit(kind(positive=positive, **TIGHT), X, y)[0] for kind in kinds]
    best = min(tight, key=lambda model: objective(model, X, y)).coef_
    cells = [name]
    for kind in kinds:
        model, seconds = fit(kind(positive=positive), X, y)
        error = np.linalg.norm(model.coef_ - best) / np.linalg.norm(best)
        cells.append(f"{seconds:.2f} s, {error:.0e}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    print("| X | `ScaledRidge()` | `Ridge()` |\n|---|---|---|")
    with threadpool_limits(1):
        for name, ((X, y), positive) in PROBLEMS.items():
            print(line(name, X, y, positive), flush=True)


if __name__ == "__main__":
    main()

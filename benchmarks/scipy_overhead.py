"""Milliseconds per evaluation that SciPy's L-BFGS-B and `firstish.scipy_method` add to f's own.

    .venv/bin/python benchmarks/scipy_overhead.py

Rosenbrock's function in NumPy, 100 iterations, one thread, the processor's time, the best of 3.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import scipy.optimize
from scipy.optimize import rosen, rosen_der
from threadpoolctl import threadpool_limits

import firstish

METHODS = ("L-BFGS-B", firstish.scipy_method)


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def overhead(method: object, x0: np.ndarray) -> tuple[float, float]:
    """Milliseconds of f and its gradient, and those an evaluation takes besides."""
    given = {"jac": rosen_der, "method": method, "tol": 1e-12, "options": {"maxiter": 100}}
    calls = scipy.optimize.minimize(rosen, x0, **given).nfev
    own = min(seconds(lambda: (rosen(x0), rosen_der(x0))) for _ in range(50))
    run = min(seconds(lambda: scipy.optimize.minimize(rosen, x0, **given)) for _ in range(3))
    return 1e3 * own, 1e3 * (run / calls - own)


def main() -> None:
    print("| variables | f and its gradient | L-BFGS-B adds | `firstish.scipy_method` adds |")
    print("|--:|--:|--:|--:|")
    with threadpool_limits(1):
        for n in (10, 100, 1000, 10_000):
            x0 = np.tile([-1.2, 1.0], n // 2)
            (own, theirs), (_, ours) = (overhead(method, x0) for method in METHODS)
            print(f"| {n:,} | {own:.2f} ms | {theirs:.2f} ms | {ours:.2f} ms |", flush=True)


if __name__ == "__main__":
    main()

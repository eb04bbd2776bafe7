"""All problems of the race by name."""

from __future__ import annotations

from race.functions import CLASSICAL
from race.learning import LEARNING
from race.problem import RaceProblem
from race.quadratics import QUADRATICS

PROBLEMS: dict[str, RaceProblem] = {p.name: p for p in (*CLASSICAL, *QUADRATICS, *LEARNING)}

QUICK = (
    "rosenbrock",
    "brown-dennis",
    "watson6",
    "chebyquad8",
    "penalty2",
    "broyden-tridiagonal",
    "engval1",
    "woods",
    "cragglvy",
    "quadratic-geometric-1e+04",
    "quadratic-outliers-1e+06",
    "digits-logistic",
    "digits-autoencoder",
    "pinn-poisson",
    "robust-student",
    "matrix-factorisation",
)
"""What `--quick` takes, held-out or not."""

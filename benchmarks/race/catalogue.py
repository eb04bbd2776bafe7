"""All problems of the race by name."""

from __future__ import annotations

from race.functions import CLASSICAL
from race.learning import LEARNING
from race.problem import RaceProblem
from race.quadratics import QUADRATICS

PROBLEMS: dict[str, RaceProblem] = {p.name: p for p in (*CLASSICAL, *QUADRATICS, *LEARNING)}

QUICK = (
    "rosenbrock",
    "bard",
    "biggs-exp6",
    "watson6",
    "penalty2",
    "broyden-tridiagonal",
    "woods",
    "edensch",
    "genrose",
    "quadratic-geometric-1e+04",
    "quadratic-outliers-1e+06",
    "digits-logistic",
    "digits-autoencoder",
    "pinn-poisson",
    "robust-huber",
    "matrix-completion",
)
"""What `--quick` takes: none of the held-out ones, since it is what one runs while developing."""

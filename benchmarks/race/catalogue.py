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
    "bdqrtic",
    "broyden-banded",
    "woods",
    "fletchcr",
    "genrose",
    "quadratic-clustered-1e+06",
    "quadratic-outliers-1e+08",
    "digits-logistic",
    "digits-autoencoder",
    "pinn-poisson",
    "robust-huber",
    "phase-retrieval",
)
"""What `--quick` takes: none of the held-out ones, since it is what one runs while developing."""

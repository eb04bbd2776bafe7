"""Problems whose f and gradient take milliseconds, where the cost of an iteration itself is small.

Those of the other files take a tenth of one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bounded.problems import (
    INF,
    draw,
    f64,
    factorisation,
    logistic,
    membrane,
    poisson,
    problem,
    random_least_squares,
    to_boundary,
)

SIDE = 150


def wide_network(seed: int) -> Callable[[Tensor], Tensor]:
    """20 inputs, 40 hidden units, 3,000 rows."""
    X = torch.randn(3000, 20, generator=draw(seed), dtype=f64)
    y = torch.sin(X[:, 0]) + X[:, 1] * X[:, 2]

    def f(x: Tensor) -> Tensor:
        W, b, v, c = torch.split(x, [800, 40, 40, 1])
        return ((torch.tanh(X @ W.view(20, 40) + b) @ v + c - y) ** 2).mean()

    return f


problem("large-logistic", logistic(20_000, 200, 501), torch.zeros(200), -0.2, 0.2, convex=True)
problem(
    "large-logistic-positive", logistic(8000, 500, 511), torch.zeros(500), 0.0, INF, convex=True
)
problem("large-poisson", poisson(10_000, 200, 521), torch.ones(200), 0.0, INF, convex=True)
problem("large-nnls", random_least_squares(6000, 500, 531), torch.ones(500), 0.0, INF, convex=True)
problem(
    "large-torsion",
    membrane(SIDE, 5.0),
    torch.zeros(SIDE * SIDE),
    -to_boundary(SIDE),
    to_boundary(SIDE),
    convex=True,
)
problem(
    "large-nmf",
    factorisation(400, 300, 8, 541),
    torch.rand(5600, generator=draw(542)),
    0.0,
    INF,
    convex=True,  # it is not; one start, for the time it takes
)
problem(
    "large-network",
    wide_network(551),
    0.2 * torch.randn(881, generator=draw(552)),
    -1.0,
    1.0,
    convex=True,  # likewise
)

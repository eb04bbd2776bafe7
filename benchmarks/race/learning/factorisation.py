"""Matrices of low rank, and points from their distances: not convex."""

from __future__ import annotations

import torch
from torch import Tensor

from firstish.problems.base import Instance
from race.learning.making import learning, normal
from race.problem import function


def _low_rank(seed: int) -> Tensor:
    """40 x 30 of rank 4, its singular values spread, with noise of 0.05."""
    sizes = torch.tensor([3.0, 1.5, 1.0, 0.5], dtype=torch.float64)
    exact = (normal(seed, 40, 4) * sizes) @ normal(seed + 1, 4, 30)
    return exact + 0.05 * normal(seed + 2, 40, 30)


def factorisation() -> Instance:
    """|UV - M|² / 2 over 40 x 4 and 4 x 30, from small random factors."""
    M = _low_rank(90)

    def loss(x: Tensor) -> Tensor:
        U, V = x[:160].view(40, 4), x[160:].view(4, 30)
        return ((U @ V - M) ** 2).sum() / 2

    return function(loss, 0.1 * normal(93, 280))


def completion() -> Instance:
    """The same with half of the entries seen, and a penalty of 0.01."""
    M = _low_rank(100)
    seen = (normal(103, 40, 30) > 0).double()

    def loss(x: Tensor) -> Tensor:
        U, V = x[:160].view(40, 4), x[160:].view(4, 30)
        return ((seen * (U @ V - M)) ** 2).sum() / 2 + 0.005 * x.dot(x)

    return function(loss, 0.1 * normal(104, 280))


def scaling() -> Instance:
    """Multidimensional scaling: 30 points of the plane from their noisy squared distances."""
    points = normal(110, 30, 2)
    rows, columns = torch.triu_indices(30, 30, 1)
    distances = ((points[rows] - points[columns]) ** 2).sum(1)
    distances = distances * (1 + 0.05 * normal(111, len(rows)))

    def loss(x: Tensor) -> Tensor:
        p = x.view(30, 2)
        d = ((p[rows] - p[columns]) ** 2).sum(1)
        return ((d - distances) ** 2).mean()

    return function(loss, 0.5 * normal(112, 60))


FACTORISATION = (
    learning("matrix-factorisation", factorisation),
    learning("matrix-completion", completion),
    learning("multidimensional-scaling", scaling),
)

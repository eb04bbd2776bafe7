"""Regressions on synthetic data, and the likelihood of a Gaussian process."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from firstish.problems.base import Instance
from firstish.problems.logistic import logistic_regression
from race.learning.making import learning, normal
from race.problem import function


def _design(seed: int, rows: int, width: int, decades: float) -> Tensor:
    """Normal columns whose sizes fall by so many powers of ten."""
    sizes = 10 ** torch.linspace(0, -decades, width, dtype=torch.float64)
    return normal(seed, rows, width) * sizes


def ill_conditioned_logistic() -> Instance:
    """Columns from 1 down to 1e-3, labels noisy, λ = 1e-6."""
    A = _design(40, 400, 40, 3)
    noise = normal(41, 400)
    signs = torch.sign(A @ (normal(42, 40) / A.std(0)) + 3 * noise)
    return logistic_regression(A, signs, 1e-6)


def student() -> Instance:
    """-log likelihood of Student's t with 3 degrees of freedom, a tenth gross outliers."""
    A, truth = _design(50, 300, 30, 1), normal(51, 30)
    y = A @ truth + 0.1 * normal(52, 300)
    y[::10] += 10 * normal(53, 30)

    def loss(x: Tensor) -> Tensor:
        r = (A @ x - y) / 0.1
        return 2 * torch.log1p(r * r / 3).mean()

    return function(loss, torch.zeros(30, dtype=torch.float64))


def pseudo_huber() -> Instance:
    """δ² (√(1 + (r/δ)²) - 1), columns from 1 down to 1e-2, a tenth gross outliers."""
    A, truth, delta = _design(60, 300, 40, 2), normal(61, 40), 0.2
    y = A @ truth + 0.1 * normal(62, 300)
    y[::10] += 10 * normal(63, 30)

    def loss(x: Tensor) -> Tensor:
        r = (A @ x - y) / delta
        return (delta**2 * (torch.sqrt(1 + r * r) - 1)).mean()

    return function(loss, torch.zeros(40, dtype=torch.float64))


def poisson_counts() -> Instance:
    """Counts with mean exp <a, x>, start 0."""
    A = 0.3 * _design(70, 300, 20, 1)
    rates = torch.exp(A @ normal(71, 20) + 1)
    y = torch.poisson(rates, generator=torch.Generator().manual_seed(72))
    A = F.pad(A, (0, 1), value=1.0)

    def loss(x: Tensor) -> Tensor:
        z = A @ x
        return (torch.exp(z) - y * z).mean()

    return function(loss, torch.zeros(21, dtype=torch.float64))


def gaussian_process() -> Instance:
    """Negative log marginal likelihood, 40 points in 4 dimensions.

    x holds the logarithms of four length scales, of the signal's size and of the noise's; a
    squared exponential kernel. The data depend on the first two coordinates only.
    """
    t = normal(80, 40, 4)
    y = torch.sin(2 * t[:, 0]) + 0.5 * t[:, 1] + 0.1 * normal(81, 40)
    eye = torch.eye(40, dtype=torch.float64)
    gaps = (t[:, None] - t[None]) ** 2

    def loss(x: Tensor) -> Tensor:
        squared = gaps @ torch.exp(-2 * x[:4])
        K = torch.exp(2 * x[4] - squared / 2) + (torch.exp(2 * x[5]) + 1e-8) * eye
        L = torch.linalg.cholesky(K)
        w = torch.linalg.solve_triangular(L, y[:, None], upper=False)[:, 0]
        f: Tensor = w.dot(w) / 2 + torch.log(L.diagonal()).sum() + 20 * math.log(2 * math.pi)
        return f

    return function(loss, torch.zeros(6, dtype=torch.float64))


REGRESSION = (
    learning("logistic-ill-conditioned", ill_conditioned_logistic),
    learning("robust-student", student),
    learning("robust-huber", pseudo_huber),
    learning("poisson-regression", poisson_counts),
    learning("gaussian-process", gaussian_process),
)

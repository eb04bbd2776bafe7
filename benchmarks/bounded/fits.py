"""Fits of models with bounded parameters: what people use L-BFGS-B for. None is convex."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bounded.problems import INF, draw, f64, problem


def peaks(x: Tensor) -> Tensor:
    """Three Gaussian peaks on a background: amplitudes, centres, widths, background."""
    t = torch.linspace(0, 1, 120, dtype=f64)
    true = sum(
        a * torch.exp(-(((t - c) / w) ** 2) / 2)
        for a, c, w in ((1.0, 0.2, 0.05), (2.0, 0.5, 0.08), (0.7, 0.75, 0.04))
    )
    y = true + 0.1 + 0.03 * torch.sin(40 * t)
    shape = torch.exp(-(((t[:, None] - x[3:6]) / x[6:9]) ** 2) / 2)
    return ((shape @ x[:3] + x[9] - y) ** 2).sum()


def hill(x: Tensor) -> Tensor:
    """A dose-response curve: bottom, top, dose of half effect, exponent."""
    dose = torch.logspace(-2, 2, 25, dtype=f64)
    y = 0.1 + 0.8 * dose**1.7 / (2.0**1.7 + dose**1.7) + 0.02 * torch.cos(3 * dose)
    return ((x[0] + (x[1] - x[0]) / (1 + (x[2] / dose) ** x[3]) - y) ** 2).sum()


def growth(x: Tensor) -> Tensor:
    """Logistic growth with an offset."""
    t = torch.linspace(0, 10, 40, dtype=f64)
    y = 3 / (1 + torch.exp(-1.3 * (t - 4))) + 0.05 * torch.sin(5 * t)
    return ((x[3] + x[0] * torch.sigmoid(x[1] * (t - x[2])) - y) ** 2).sum()


def robust(rows: int, n: int, seed: int) -> Callable[[Tensor], Tensor]:
    """Non-negative regression with Student's t as the noise."""
    A = torch.randn(rows, n, generator=draw(seed), dtype=f64)
    w = torch.randn(n, generator=draw(seed + 1), dtype=f64).clamp(min=0)
    noise = torch.randn(rows, generator=draw(seed + 2), dtype=f64)
    y = A @ w + 0.1 * noise / torch.rand(rows, generator=draw(seed + 3), dtype=f64)
    return lambda x: torch.log1p(((A @ x - y) / 0.2) ** 2).mean()


def broyden(x: Tensor) -> Tensor:
    """Broyden's tridiagonal function."""
    zero = x.new_zeros(1)
    left, right = torch.cat([zero, x[:-1]]), torch.cat([x[1:], zero])
    return (((3 - 2 * x) * x - left - 2 * right + 1) ** 2).sum()


def gaussian_process(seed: int) -> Callable[[Tensor], Tensor]:
    """-log of the marginal likelihood: logarithms of 4 length scales, variance and noise."""
    X = torch.rand(40, 4, generator=draw(seed), dtype=f64)
    y = (
        torch.sin(6 * X[:, 0])
        + X[:, 1]
        + 0.1 * torch.randn(40, generator=draw(seed + 1), dtype=f64)
    )

    def f(x: Tensor) -> Tensor:
        Z = X / x[:4].exp()
        K = x[4].exp() * torch.exp(-((Z[:, None] - Z) ** 2).sum(2) / 2)
        L = torch.linalg.cholesky(K + x[5].exp() * torch.eye(40, dtype=f64))
        white = torch.linalg.solve_triangular(L, y[:, None], upper=False)
        return (white**2).sum() / 2 + L.diagonal().log().sum()

    return f


def mixture(x: Tensor) -> Tensor:
    """-log of the likelihood of three normal distributions, their widths at least 0.05."""
    z = torch.randn(150, generator=draw(11), dtype=f64)
    data = torch.cat([0.4 * z[:50] - 2, 0.2 * z[50:90] + 0.5, 0.8 * z[90:] + 2])[:, None]
    logits, mean, width = x[:3], x[3:6], x[6:9]
    log = -(((data - mean) / width) ** 2) / 2 - width.log() + torch.log_softmax(logits, 0)
    return -torch.logsumexp(log, 1).mean()


def completion(rows: int, columns: int, rank: int, seed: int) -> Callable[[Tensor], Tensor]:
    """A non-negative factorisation of which 40 % of the entries are known."""
    V = torch.rand(rows, rank, generator=draw(seed), dtype=f64)
    V = V @ torch.rand(rank, columns, generator=draw(seed + 1), dtype=f64)
    known = torch.rand(rows, columns, generator=draw(seed + 2)) < 0.4

    def f(x: Tensor) -> Tensor:
        W, H = x[: rows * rank].view(rows, rank), x[rows * rank :].view(rank, columns)
        return (((V - W @ H) * known) ** 2).sum() / 2 + 1e-3 * (x**2).sum()

    return f


def predators(x: Tensor) -> Tensor:
    """The four rates of Lotka and Volterra, from 8 observations; 16 steps of the midpoint rule."""

    def slope(u: Tensor, rates: Tensor) -> Tensor:
        return torch.stack(
            [u[0] * (rates[0] - rates[1] * u[1]), u[1] * (rates[2] * u[0] - rates[3])]
        )

    def path(rates: Tensor) -> Tensor:
        u, h, seen = torch.tensor([1.0, 0.5], dtype=f64), 0.375, []
        for k in range(16):
            u = u + h * slope(u + h / 2 * slope(u, rates), rates)
            if k % 2:
                seen.append(u)
        return torch.stack(seen)

    with torch.no_grad():
        y = path(torch.tensor([1.1, 0.9, 0.8, 1.0], dtype=f64))
    return ((path(x) - y - 0.02 * torch.cos(7 * y)) ** 2).sum()


def censored(seed: int) -> Callable[[Tensor], Tensor]:
    """Poisson regression through softplus with bounded weights, and a dispersion in [0.1, 10]."""
    A = torch.randn(200, 20, generator=draw(seed), dtype=f64)
    w = torch.randn(20, generator=draw(seed + 1), dtype=f64) / 3
    counts = torch.poisson(softplus(A @ w + 1), generator=draw(seed + 2))

    def f(x: Tensor) -> Tensor:
        mean, r = softplus(A @ x[:20] + x[20]), 1 / x[21]
        log = torch.lgamma(counts + r) - torch.lgamma(r) - torch.lgamma(counts + 1)
        log = log + r * torch.log(r / (r + mean)) + counts * torch.log(mean / (r + mean))
        return -log.mean()

    return f


problem(
    "peaks",
    peaks,
    [1.0, 1.0, 1.0, 0.25, 0.5, 0.75, 0.1, 0.1, 0.1, 0.0],
    [0.0] * 6 + [0.02] * 3 + [0.0],
    [5.0] * 3 + [1.0] * 3 + [0.5] * 3 + [1.0],
    drawn=lambda seed: torch.rand(10, generator=seed, dtype=f64),
)
problem("hill", hill, [0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.01, 0.2], [0.5, 1.5, 100.0, 1.5])
problem("growth", growth, [1.0, 1.0, 5.0, 0.0], 0.0, [10.0, 5.0, 10.0, 0.02])
for k in range(2):
    problem(f"robust-{k}", robust(120, 30, 100 + 10 * k), torch.ones(30), 0.0, INF)
problem("broyden-60", broyden, [-0.3] * 60, -0.5, 0.2)
for k in range(2):
    low, high = [math.log(0.05)] * 4 + [-3.0, -6.0], [math.log(5.0)] * 4 + [2.0, 1.0]
    problem(f"gaussian-process-{k}", gaussian_process(200 + 10 * k), [0.0] * 5 + [-2.0], low, high)
problem(
    "mixture",
    mixture,
    [0.0] * 3 + [-1.0, 0.0, 1.0] + [1.0] * 3,
    [-3.0] * 3 + [-INF] * 3 + [0.05] * 3,
    [3.0] * 3 + [INF] * 3 + [5.0] * 3,
)
for k in range(2):
    problem(
        f"completion-{k}",
        completion(25, 25, 3, 300 + 10 * k),
        torch.rand(150, generator=draw(320 + k)),
        0.0,
        INF,
        drawn=lambda seed: torch.rand(150, generator=seed),
    )
problem("predators", predators, [0.7] * 4, 0.3, [1.05, 2.0, 2.0, 2.0])
problem("dispersion", censored(400), [0.0] * 21 + [1.0], [-0.5] * 21 + [0.1], [0.5] * 21 + [10.0])

"""u_t = 10⁻³ u_xx + 5 (u - u³) on (-1, 1) x (0, 1); u = x² cos πx at t = 0, -1 at x = ±1."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from race.learning.pinns.equation import Equation, line, spread

DIFFUSION, REACTION = 1e-3, 5.0
INSIDE, START, WALL = 400, 50, 15
WEIGHT = 100  # of the initial and boundary values, as is usual for this equation
CHEBYSHEV = 96  # intervals of the reference


def _points() -> Tensor:
    x, t = line(-1, 1, START), line(0, 1, WALL)
    start = torch.stack([x, torch.zeros_like(x)], 1)
    walls = [torch.stack([torch.full_like(t, side), t], 1) for side in (-1.0, 1.0)]
    return torch.cat([spread(INSIDE, (-1, 0), (1, 1)), start, *walls])


def _loss(values: Tensor, points: Tensor) -> Tensor:
    u, _, ut, uxx, _ = values.unbind()
    residual = (ut - DIFFUSION * uxx - REACTION * (u - u**3))[:INSIDE]
    x, t = points[INSIDE:].unbind(1)
    known = torch.where(t == 0, x**2 * torch.cos(math.pi * x), -torch.ones_like(x))
    return residual.square().mean() + WEIGHT * (u[INSIDE:] - known).square().mean()


def chebyshev(intervals: int) -> tuple[np.ndarray, np.ndarray]:
    """Chebyshev's points, from 1 to -1, and the matrix that differentiates there (Trefethen)."""
    k = np.arange(intervals + 1)
    x = np.cos(np.pi * k / intervals)
    c = np.where((k == 0) | (k == intervals), 2.0, 1.0) * (-1.0) ** k
    gaps = x[:, None] - x[None, :] + np.eye(intervals + 1)
    D = np.outer(c, 1 / c) / gaps
    return x, D - np.diag(D.sum(axis=1))


@cache
def _solution() -> tuple[Tensor, Tensor]:
    """By a spectral method in x and SciPy's implicit one in t."""
    x, D = chebyshev(CHEBYSHEV)
    second = DIFFUSION * (D @ D)

    def rate(_: float, u: np.ndarray) -> np.ndarray:
        change: np.ndarray = second @ u + REACTION * (u - u**3)
        change[[0, -1]] = 0
        return change

    times = line(0, 1, 101)
    u0 = x**2 * np.cos(np.pi * x)
    done = solve_ivp(rate, (0, 1), u0, "Radau", times.numpy(), rtol=1e-9, atol=1e-11)
    points, steps = torch.from_numpy(x.copy()), len(times)
    grid = torch.stack([points.repeat_interleave(steps), times.repeat(len(points))], 1)
    return grid, torch.from_numpy(done.y.copy()).flatten()


ALLEN_CAHN = Equation(
    name="pinn-allen-cahn",
    widths=(2, 20, 20, 20, 1),
    points=_points,
    loss=_loss,
    solution=_solution,
)

"""u_t + u u_x = ν u_xx on (-1, 1) x (0, 1), ν = 0.01/π; u = -sin πx at t = 0, 0 at x = ±1."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor

from race.learning.pinns.equation import Equation, line, spread

NU = 0.01 / math.pi
INSIDE, START, WALL = 500, 50, 15


def _points() -> Tensor:
    x, t = line(-1, 1, START), line(0, 1, WALL)
    start = torch.stack([x, torch.zeros_like(x)], 1)
    walls = [torch.stack([torch.full_like(t, side), t], 1) for side in (-1.0, 1.0)]
    return torch.cat([spread(INSIDE, (-1, 0), (1, 1)), start, *walls])


def _loss(values: Tensor, points: Tensor) -> Tensor:
    u, ux, ut, uxx, _ = values.unbind()
    residual = (ut + u * ux - NU * uxx)[:INSIDE]
    x, t = points[INSIDE:].unbind(1)
    known = torch.where(t == 0, -torch.sin(math.pi * x), torch.zeros_like(x))
    return residual.square().mean() + (u[INSIDE:] - known).square().mean()


def cole_hopf(x: np.ndarray, t: np.ndarray, nodes: int = 100) -> np.ndarray:
    """The exact solution, t > 0: quotients of heat integrals, by Gauss and Hermite's rule.

    u = -∫ sin π(x - η) F(x - η) G(η, t) dη / ∫ F(x - η) G(η, t) dη,
    F(y) = exp(-cos πy / 2πν) and G the heat kernel. Both are scaled by the greatest exponent.
    """
    z, weights = np.polynomial.hermite.hermgauss(nodes)
    y = x[:, None] - np.sqrt(4 * NU * t)[:, None] * z
    exponent = -np.cos(np.pi * y) / (2 * np.pi * NU)
    F = weights * np.exp(exponent - exponent.max(axis=1, keepdims=True))
    found: np.ndarray = -(np.sin(np.pi * y) * F).sum(axis=1) / F.sum(axis=1)
    return found


@cache
def _solution() -> tuple[Tensor, Tensor]:
    grid = torch.cartesian_prod(line(-1, 1, 201), line(0.01, 1, 100))
    x, t = grid.unbind(1)
    return grid, torch.from_numpy(cole_hopf(x.numpy(), t.numpy()))


BURGERS = Equation(
    name="pinn-burgers-front",
    widths=(2, 20, 20, 20, 1),
    points=_points,
    loss=_loss,
    solution=_solution,
)

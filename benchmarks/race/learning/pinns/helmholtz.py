"""u_xx + u_yy + u = q on (-1, 1)², u = 0 on its boundary; q such that u = sin πx sin 2πy."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from race.learning.pinns.equation import Equation, line, spread

INSIDE, SIDE = 300, 15
WAVES = (1, 2)


def _exact(points: Tensor) -> Tensor:
    a, b = WAVES
    return torch.sin(a * math.pi * points[:, 0]) * torch.sin(b * math.pi * points[:, 1])


def _points() -> Tensor:
    s = line(-1, 1, SIDE)
    one = torch.ones_like(s)
    sides = [torch.stack(pair, 1) for pair in ((s, one), (s, -one), (one, s), (-one, s))]
    return torch.cat([spread(INSIDE, (-1, -1), (1, 1)), *sides])


def _loss(values: Tensor, points: Tensor) -> Tensor:
    u, _, _, uxx, uyy = values.unbind()
    q = (1 - math.pi**2 * (WAVES[0] ** 2 + WAVES[1] ** 2)) * _exact(points)
    residual = (uxx + uyy + u - q)[:INSIDE]
    return residual.square().mean() + u[INSIDE:].square().mean()


def _solution() -> tuple[Tensor, Tensor]:
    grid = torch.cartesian_prod(line(-1, 1, 101), line(-1, 1, 101))
    return grid, _exact(grid)


HELMHOLTZ = Equation(
    name="pinn-helmholtz-2d",
    widths=(2, 20, 20, 20, 1),
    points=_points,
    loss=_loss,
    solution=_solution,
)

"""-u'' = π² sin πx on (-1, 1), u(±1) = 0: u = sin πx. The equation of examples/pinn.py."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from race.learning.pinns.equation import Equation, line

INSIDE = 100


def _points() -> Tensor:
    return torch.cat([line(-1, 1, INSIDE), line(-1, 1, 2)])[:, None]


def _loss(values: Tensor, points: Tensor) -> Tensor:
    u, _, uxx = values.unbind()
    force = math.pi**2 * torch.sin(math.pi * points[:INSIDE, 0])
    return (uxx[:INSIDE] + force).square().mean() + u[INSIDE:].square().mean()


def _solution() -> tuple[Tensor, Tensor]:
    x = line(-1, 1, 1001)[:, None]
    return x, torch.sin(math.pi * x[:, 0])


POISSON = Equation(
    name="pinn-poisson-1d",
    widths=(1, 20, 20, 1),
    points=_points,
    loss=_loss,
    solution=_solution,
)

"""u' = -λ (u - cos t) on (0, 2), u(0) = 0, λ = 50: Curtiss and Hirschfelder's stiff equation."""

from __future__ import annotations

import torch
from torch import Tensor

from race.learning.pinns.equation import Equation, line

RATE = 50.0
SLOW, FAST, LAYER = 100, 100, 0.2


def _points() -> Tensor:
    return torch.cat([line(0, LAYER, FAST), line(LAYER, 2, SLOW)])[:, None]


def _loss(values: Tensor, points: Tensor) -> Tensor:
    u, ut, _ = values.unbind()
    residual = ut / RATE + u - torch.cos(points[:, 0])
    return residual.square().mean() + u[0].square()


def exact(t: Tensor) -> Tensor:
    """(λ² (cos t - exp(-λt)) + λ sin t) / (1 + λ²)."""
    slow = RATE**2 * torch.cos(t) + RATE * torch.sin(t)
    return (slow - RATE**2 * torch.exp(-RATE * t)) / (1 + RATE**2)


def _solution() -> tuple[Tensor, Tensor]:
    t = line(0, 2, 2001)[:, None]
    return t, exact(t[:, 0])


STIFF = Equation(
    name="pinn-stiff-ode",
    widths=(1, 20, 20, 1),
    points=_points,
    loss=_loss,
    solution=_solution,
)

"""Physics-informed networks of one hidden quantity; derivatives carried along with the values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from firstish.problems.base import Instance
from race.learning.making import glorot, learning, shapes, split
from race.problem import function


def network(parts: Sequence[Tensor], inputs: Tensor) -> Tensor:
    """A tanh network's values, first and second derivatives by each input: 1 + 2k rows of them.

    Each layer maps (a, a', a'') on: z = Wa + b, z' = Wa', z'' = Wa'', and through tanh
    t = tanh z, t' = (1 - t²) z', t'' = (1 - t²) (z'' - 2 t z'²).
    """
    rows, k = inputs.shape
    unit = torch.eye(k, dtype=inputs.dtype)[:, None].expand(k, rows, k)
    a = torch.cat([inputs[None], unit, torch.zeros_like(unit)])
    layers = list(zip(parts[::2], parts[1::2], strict=True))
    for depth, (weight, bias) in enumerate(layers, 1):
        z = a @ weight.T
        if depth == len(layers):
            return torch.cat([z[:1] + bias, z[1:]])[..., 0]
        t, first, second = torch.tanh(z[0] + bias), z[1 : 1 + k], z[1 + k :]
        slope = 1 - t * t
        a = torch.cat([t[None], slope * first, slope * (second - 2 * t * first * first)])
    raise ValueError("`network(parts, ...)` needs at least one layer.")


def poisson() -> Instance:
    """u'' = -π² sin πx - 4π² sin 2πx / 2 on (0, 1), u(0) = u(1) = 0; 1-16-16-1, 40 points."""
    widths = (1, 16, 16, 1)
    layout = shapes(widths)
    t = torch.linspace(0, 1, 42, dtype=torch.float64)[:, None]
    s = math.pi * t[1:-1, 0]
    source = -(math.pi**2) * torch.sin(s) - 2 * math.pi**2 * torch.sin(2 * s)

    def loss(x: Tensor) -> Tensor:
        parts = split(x, layout)
        u, _, uxx = network(parts, t).unbind()
        boundary = u[0] ** 2 + u[-1] ** 2
        return ((uxx[1:-1] - source) ** 2).mean() + 50 * boundary

    return function(loss, glorot(20, widths))


def burgers() -> Instance:
    """u_t + u u_x = 0.05 u_xx on (-1, 1) x (0, 1), u = -sin πx at t = 0, 0 at ±1; 2-16-16-1."""
    widths = (2, 16, 16, 1)
    layout = shapes(widths)
    across = torch.linspace(-1, 1, 17, dtype=torch.float64)
    times = torch.linspace(0, 1, 9, dtype=torch.float64)
    inside = torch.cartesian_prod(across[1:-1], times[1:])
    start = torch.stack([across, torch.zeros_like(across)], 1)
    walls = torch.cartesian_prod(across[[0, -1]], times)
    points = torch.cat([inside, start, walls])
    wanted = torch.cat([-torch.sin(math.pi * across), torch.zeros(len(walls)).double()])

    def loss(x: Tensor) -> Tensor:
        parts = split(x, layout)
        u, ux, ut, uxx, _ = network(parts, points).unbind()
        residual = (ut + u * ux - 0.05 * uxx)[: len(inside)]
        return (residual**2).mean() + ((u[len(inside) :] - wanted) ** 2).mean()

    return function(loss, glorot(30, widths))


PHYSICS = (learning("pinn-poisson", poisson), learning("pinn-burgers", burgers))

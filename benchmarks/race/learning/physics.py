"""Physics-informed networks of one hidden quantity; derivatives carried along with the values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from firstish.problems.base import Instance
from race.learning.making import glorot, learning, shapes, split
from race.problem import function


def network(
    parts: Sequence[Tensor], inputs: Tensor, along: Sequence[int]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """A tanh network's value, and its first and second derivatives by the inputs named.

    Each layer maps (a, a', a'') on: z = Wa + b, z' = Wa', z'' = Wa'', and through tanh
    t = tanh z, t' = (1 - t²) z', t'' = (1 - t²) (z'' - 2 t z'²).
    """
    rows, width = inputs.shape
    a = inputs
    first = [torch.eye(width, dtype=a.dtype)[k].expand(rows, width) for k in along]
    second = [torch.zeros_like(a) for _ in along]
    layers = list(zip(parts[::2], parts[1::2], strict=True))
    for depth, (weight, bias) in enumerate(layers, 1):
        a = a @ weight.T + bias
        first = [d @ weight.T for d in first]
        second = [d @ weight.T for d in second]
        if depth < len(layers):
            a = torch.tanh(a)
            slope = 1 - a * a
            second = [slope * (s - 2 * a * d * d) for s, d in zip(second, first, strict=True)]
            first = [slope * d for d in first]
    return a[:, 0], [d[:, 0] for d in first], [d[:, 0] for d in second]


def poisson() -> Instance:
    """u'' = -π² sin πx - 4π² sin 2πx / 2 on (0, 1), u(0) = u(1) = 0; 1-16-16-1, 40 points."""
    widths = (1, 16, 16, 1)
    layout = shapes(widths)
    t = torch.linspace(0, 1, 42, dtype=torch.float64)[1:-1, None]
    ends = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    s = math.pi * t[:, 0]
    source = -(math.pi**2) * torch.sin(s) - 2 * math.pi**2 * torch.sin(2 * s)

    def loss(x: Tensor) -> Tensor:
        parts = split(x, layout)
        _, _, (uxx,) = network(parts, t, [0])
        boundary, _, _ = network(parts, ends, [])
        return ((uxx - source) ** 2).mean() + 100 * (boundary**2).mean()

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
    edge = torch.cat([start, walls])
    wanted = torch.cat([-torch.sin(math.pi * across), torch.zeros(len(walls)).double()])

    def loss(x: Tensor) -> Tensor:
        parts = split(x, layout)
        u, (ux, ut), (uxx, _) = network(parts, inside, [0, 1])
        boundary, _, _ = network(parts, edge, [])
        return ((ut + u * ux - 0.05 * uxx) ** 2).mean() + ((boundary - wanted) ** 2).mean()

    return function(loss, glorot(30, widths))


PHYSICS = (learning("pinn-poisson", poisson), learning("pinn-burgers", burgers))

"""A differential equation as a problem of the race."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from firstish.problems.base import Instance
from race.learning.making import glorot, shapes, split
from race.learning.physics import network
from race.problem import RaceProblem, function

BUDGET = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """An equation, the network for its solution, and the points at which it has to hold.

    Args:
        name: of its problems, before the seed.
        widths: of the network's layers.
        points: all points, those of the equation first.
        loss: from the network's values and derivatives at these (see `network`) to the loss.
        solution: makes the points of a fine grid, and u* there.
    """

    name: str
    widths: Sequence[int]
    points: Callable[[], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]
    solution: Callable[[], tuple[Tensor, Tensor]]

    def problem(self, seed: int) -> RaceProblem:
        """The equation, and a network drawn by that seed to begin with."""
        return RaceProblem(
            name=f"{self.name}-{seed}",
            family="learning",
            build=partial(self.build, seed),
            budget=BUDGET,
            error=self.error,
        )

    def build(self, seed: int) -> Instance:
        """The loss and the start."""
        points, layout = self.points(), shapes(self.widths)

        def loss(x: Tensor) -> Tensor:
            return self.loss(network(split(x, layout), points), points)

        return function(loss, glorot(1_000 * (seed + 1), self.widths))

    def error(self, x: Tensor) -> float:
        """|u - u*| / |u*|."""
        where, exact = self.solution()
        with torch.no_grad():
            u = network(split(x, shapes(self.widths)), where)[0]
        return float((u - exact).norm() / exact.norm())


def spread(count: int, low: Sequence[float], high: Sequence[float]) -> Tensor:
    """Points spread evenly over a rectangle without being a grid: Roberts' R2 sequence."""
    plastic = 1.32471795724474602596
    k = torch.arange(1, count + 1, dtype=torch.float64)[:, None]
    steps = torch.tensor([1 / plastic, 1 / plastic**2], dtype=torch.float64)
    a, b = (torch.tensor(ends, dtype=torch.float64) for ends in (low, high))
    return a + (b - a) * ((0.5 + k * steps) % 1)


def line(low: float, high: float, count: int) -> Tensor:
    """Equidistant numbers."""
    return torch.linspace(low, high, count, dtype=torch.float64)

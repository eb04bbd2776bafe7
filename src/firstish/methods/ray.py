"""The line search's view of points along a direction."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from firstish.line_search import Ray
from firstish.objectives.point import Depth, Point
from firstish.vectors import dot


class PointTrial:
    """The point x + alpha p as a trial of the line search."""

    def __init__(self, start: Point, p: Tensor, alpha: float, depth: Depth) -> None:
        self.start = start
        self.p = p
        self.point = start.along(p, alpha, depth)

    @property
    def value(self) -> float:
        """The value of f there."""
        return self.point.value

    def slope(self) -> float:
        """<g(x + alpha p), p>."""
        return dot(self.point.grad, self.p)

    def moved(self) -> bool:
        """Whether the trial differs from x at all, in floating point."""
        return not torch.equal(self.point.x, self.start.x)

    def usable(self) -> bool:
        """Whether the gradient is finite, where it is wanted next anyway."""
        return self.point.depth == "value" or math.isfinite(self.point.grad_norm)


def ray(point: Point, p: Tensor, slope: float, depth: Depth = "product") -> Ray[PointTrial]:
    """f along x + alpha p, `slope` being <g, p>."""
    return Ray(
        value=point.value,
        slope=slope,
        trial=lambda alpha: PointTrial(point, p, alpha, depth),
        eps=point.eps,
    )

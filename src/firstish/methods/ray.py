"""The line search's view of points along a direction."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from firstish.line_search import NOISE_ULPS, Ray
from firstish.methods.base import Failure
from firstish.objectives.point import Depth, Point
from firstish.vectors import dot, norm


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


def why_stuck(point: Point, along: Ray[PointTrial], length: float) -> Failure:
    """Whether rounding explains that no trial was accepted, `length` being |p|.

    It does when even the whole linear decrease is within the noise of f, or the whole step within
    that of x.
    """
    lost_in_f = -along.slope <= along.noise
    lost_in_x = length <= NOISE_ULPS * torch.finfo(point.x.dtype).eps * norm(point.x)
    return Failure.ROUNDING if lost_in_f or lost_in_x else Failure.LINE_SEARCH

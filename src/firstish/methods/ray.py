"""The line search's view of points along a direction."""

from __future__ import annotations

import math
import sys
from functools import partial

import torch
from torch import Tensor

from firstish.line_search import NOISE_ULPS, TELLING, Armijo, Found, Ray
from firstish.methods.base import Failure, Step
from firstish.objectives.point import Depth, Point
from firstish.scaling import Curvature
from firstish.vectors import dot, norm


class PointTrial:
    """The point x + alpha p as a trial of the line search, p being a multiple of a vector."""

    __slots__ = ("_slope", "_vector", "_weight", "point", "start", "value")

    def __init__(
        self, start: Point, vector: Tensor, weight: float, depth: Depth, alpha: float
    ) -> None:
        self.start = start
        self.point = start.along(vector, alpha * weight, depth)
        self.value = self.point.value
        self._vector = vector
        self._weight = weight
        self._slope: float | None = None

    def slope(self) -> float:
        """<g(x + alpha p), p>."""
        if self._slope is None:
            self._slope = self._weight * dot(self.point.grad, self._vector)
        return self._slope

    def moved(self) -> bool:
        """Whether the trial differs from x at all, in floating point."""
        return not torch.equal(self.point.x, self.start.x)

    def usable(self) -> bool:
        """Whether the gradient is finite, where it is wanted next anyway."""
        return self.point.depth == "value" or math.isfinite(self.point.grad_norm)


def ray(
    point: Point, vector: Tensor, slope: float, *, weight: float = 1.0, depth: Depth = "product"
) -> Ray[PointTrial]:
    """f along x + alpha p with p = weight vector, `slope` being <g, p>."""
    return Ray(
        value=point.value,
        slope=slope,
        trial=partial(PointTrial, point, vector, weight, depth),
        eps=point.eps,
    )


def resolved(point: Point, length: float, down: float = 1.0) -> float:
    """The length of a step: `length`, or more where rounding would hide a step so short.

    For steps whose length is not from the curvature but from a setting, s_lpc or s_nc, which knows
    nothing of the scales of f and x. `down` is the cosine of the angle between the step and -g.
    """
    noise = NOISE_ULPS * point.eps * abs(point.value)
    ulp = torch.finfo(point.x.dtype).eps * norm(point.x)
    if length * point.grad_norm * down > noise and length > NOISE_ULPS * ulp:
        return length
    telling = TELLING * noise / point.grad_norm / down
    return max(length, TELLING * ulp, telling if telling < math.inf else 0.0)


def resolved_scale(point: Point, s: float) -> float:
    """s, or more where rounding would hide the step -s g."""
    length = s * point.grad_norm
    longer = resolved(point, length)
    return s if longer == length else min(longer / point.grad_norm, sys.float_info.max)


def search_along(
    search: Armijo, along: Ray[PointTrial], case: Curvature, *, grown: bool
) -> Found[PointTrial]:
    """Track forward where curvature is negative, backtrack elsewhere.

    A step that was `grown` to be seen at all is the shortest of its kind: it is tracked forward as
    long as f falls.
    """
    if case is Curvature.NC:
        return search.forward_track(along)
    return search.forward_track(along, falling=True) if grown else search.backtrack(along)


def why_stuck(point: Point, along: Ray[PointTrial], length: float) -> Failure:
    """Whether rounding explains that no trial was accepted, `length` being |p|.

    It does when even the whole linear decrease is within the noise of f, or the whole step within
    that of x.
    """
    lost_in_f = -along.slope <= along.noise
    lost_in_x = length <= NOISE_ULPS * torch.finfo(point.x.dtype).eps * norm(point.x)
    return Failure.ROUNDING if lost_in_f or lost_in_x else Failure.LINE_SEARCH


def searched(
    point: Point,
    along: Ray[PointTrial],
    found: Found[PointTrial],
    *,
    length: float,
    bend: float | None,
) -> Step:
    """What a search along p tells of the step: `length` is |p|, `bend` is <p, Hp> where known."""
    slope, alpha, trial = along.slope, found.step_size, found.trial
    return Step(
        step_size=alpha,
        trials=found.trials,
        descent_margin=None if bend is None else slope + bend,
        predicted_decrease=None if bend is None else -alpha * (slope + alpha / 2 * bend),
        actual_decrease=0.0 if trial is None else point.value - trial.value,
        slope_ratio=None
        if trial is None or trial.point.depth == "value"
        else trial.slope() / slope,
        failure=None if trial is not None else why_stuck(point, along, length),
    )

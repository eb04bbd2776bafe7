"""Steps along -g and their records."""

from __future__ import annotations

import math
from functools import partial

from firstish.linalg import dot
from firstish.line_search import Found, LineFunction
from firstish.methods.base import Failure, Step
from firstish.methods.take_step import PointTrial, search_failure
from firstish.objectives.base import Order, Point

STATIONARY = Step(step_size=0.0, failure=Failure.STATIONARY)


def against_gradient(point: Point, alpha: float, order: Order = 1) -> Point:
    """The point x - alpha g."""
    return point.along(point.grad, -alpha, order)


def down_gradient(point: Point, order: Order, reference: float) -> LineFunction[PointTrial]:
    """phi(alpha) = f(x - alpha g), whose trials are compared with `reference`."""
    return LineFunction(
        value=reference,
        slope=-point.grad_norm * point.grad_norm,
        trial=partial(PointTrial, point, point.grad, -1.0, order),
        eps=point.eps,
        lifted=reference > point.value,
    )


def plain_step(point: Point, new: Point, alpha: float, trials: int | None = None) -> Step:
    """The record of a step to x - alpha g; the direction is -g itself, so its scale is 1.

    The slope ratio <g_new, g> / <g, g> costs nothing, as the next iteration needs g_new anyway. It
    is None if f overflowed: no gradient will be needed then.
    """
    ratio = None
    if math.isfinite(new.value):
        ratio = dot(new.grad, point.grad) / point.grad_norm / point.grad_norm
    return Step(
        scale=1.0,
        step_size=alpha,
        trials=trials,
        actual_decrease=point.value - new.value,
        slope_ratio=ratio,
    )


def searched_step(
    point: Point, phi: LineFunction[PointTrial], first: float, found: Found[PointTrial]
) -> Step:
    """The record of a line search along -g whose first trial was `first`."""
    trial = found.trial
    if trial is None:
        below_noise = -phi.slope * first <= phi.noise
        return Step(
            scale=1.0,
            step_size=0.0,
            trials=found.trials,
            actual_decrease=0.0,
            failure=Failure.ROUNDING if below_noise else search_failure(found),
        )
    return Step(
        scale=1.0,
        step_size=found.step_size,
        trials=found.trials,
        actual_decrease=point.value - trial.value,
        slope_ratio=-trial.slope() / point.grad_norm / point.grad_norm,
    )

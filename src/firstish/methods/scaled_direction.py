"""Any descent direction, scaled by the curvature along it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from firstish.line_search import Armijo
from firstish.methods.base import Failure, Step
from firstish.methods.cases import (
    angle_along,
    check_cases,
    check_monotone,
    limited_scale,
    require_finite,
)
from firstish.methods.directions import AdamDirection, AnyDirection
from firstish.methods.ray import ray, resolved, search_along, searched
from firstish.objectives.point import Depth, Point
from firstish.scaling import Curvature, curvature_case
from firstish.vectors import in_range, norm, norm_and_cosine

DESCENT = 1e-8  # least cosine of the angle between p and -g


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledDirection:
    """A direction p that another rule gives, scaled by one product along it.

        s = -<g,p> / <p,Hp>,    x <- x + alpha s p,    alpha = 1 tried first

    s minimises the quadratic model along p, so the direction's own length does not matter, and
    there is no step size to tune. The curvature cases are those of `ScaledGradient`, met along p
    instead of g; where curvature is limited or negative, s p is as long as its step would be,
    s_lpc |g| or s_nc |g|. A p that does not descend is replaced by -g for that step. A unit-step
    iteration costs 4 oracle calls.

    Args:
        direction: what gives p: `AdamDirection()`, `MomentumDirection()`, or anything with their
            two methods, `init(point)` and `direction(point, state)`; see `Direction`.
        sigma: curvature above which it counts as strong; 0 is right for strongly convex f.
        s_lpc: scale where curvature is limited, in (0, 1/sigma]; "1/sigma" for that; by default
            min(1, 1/sigma).
        s_nc: scale where curvature is negative, before forward tracking.
        line_search: Armijo's settings.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0], dtype=torch.float64)
        >>> method = ScaledDirection(direction=firstish.MomentumDirection())
        >>> firstish.minimize(lambda x: (x**2).sum(), x0, method=method).iterations
        1
    """

    depth: ClassVar[Depth] = "product"

    direction: AnyDirection = field(default_factory=AdamDirection)
    sigma: float = 1e-6
    s_lpc: float | Literal["1/sigma"] | None = None
    s_nc: float = 1.0
    line_search: Armijo = field(default_factory=Armijo)

    def __post_init__(self) -> None:
        named = all(hasattr(self.direction, name) for name in ("init", "direction"))
        if isinstance(self.direction, type) or not named:
            raise TypeError(
                "`ScaledDirection(direction=...)` must be a direction such as `AdamDirection()` or "
                f"`MomentumDirection()`, got {self.direction!r}."
            )
        check_cases("ScaledDirection", self.sigma, self.s_lpc, self.s_nc)
        check_monotone("ScaledDirection", self.line_search)

    def init(self, point: Point) -> Any:
        """The direction's own state."""
        return self.direction.init(point)

    def step(self, point: Point, state: Any) -> tuple[Point, Step, Any]:
        """A direction, one product along it, then the line search."""
        g_norm = point.grad_norm
        if g_norm == 0:
            return point, Step(step_size=0.0, trials=0, failure=Failure.STATIONARY), state
        p, after = self.direction.direction(point, state)
        p, p_norm, _ = in_range(p, norm(p))
        down = -norm_and_cosine(point.grad, p, p_norm)[1] if math.isfinite(p_norm) else 0.0
        name = "direction"
        if not down >= DESCENT:
            v, v_norm, _ = point.grad_in_range()
            p, p_norm, down, name = v.neg(), v_norm, 1.0, "gradient"
        angle = angle_along(point, p, p_norm)
        require_finite(angle, "Hp")
        case = curvature_case(angle, self.sigma)
        grown = False
        if case is Curvature.SPC:
            length = down * (g_norm / angle.rayleigh)  # |s p| = -<g,p>/<p,Hp> |p|
        else:
            limited = limited_scale(self.sigma, self.s_lpc)
            setting = g_norm * (limited if case is Curvature.LPC else self.s_nc)
            length = resolved(point, setting, down)
            grown = length > setting
        s = length / p_norm
        slope = -length * (g_norm * down)  # <g, s p>
        bend = length * (length * angle.rayleigh)  # <s p, H s p>
        if slope == 0 or not 0 < s < math.inf:  # under- or overflow: no decrease could be seen
            return point, Step(step_size=0.0, trials=0, failure=Failure.ROUNDING), state
        along = ray(point, p, slope, weight=s)
        found = search_along(self.line_search, along, case, grown=grown)

        trial = found.trial
        step = replace(
            searched(point, along, found, length=length, bend=bend),
            curvature=case,
            scaling=name if case is Curvature.SPC else None,
            scale=s,
        )
        if trial is None:
            return point, step, state
        return trial.point, step, after

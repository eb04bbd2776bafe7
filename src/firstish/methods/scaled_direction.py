"""Any descent direction, scaled by the curvature along it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from firstish.linalg import in_range, norm, norm_and_cosine
from firstish.line_search import Armijo
from firstish.methods.base import Step
from firstish.methods.directions import AdamDirection, AnyDirection
from firstish.methods.take_step import Proposal, ProposingMethod, check_stateless, resolved_length
from firstish.objectives.base import Order, Point
from firstish.scaling import Curvature, LimitedScale, algorithm_1, check_cases

DESCENT = 1e-8  # smallest cosine between p and -g


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledDirection(ProposingMethod[Any]):
    """A direction p of another method, scaled by one product along it.

        s = -<g,p> / <p,Hp>,    x <- x + alpha s p,    alpha = 1 tried first

    s minimises the quadratic model along p, so the length of p does not matter and there is no step
    size to tune. The curvature cases are those of `ScaledGradient`, along p instead of g. In LPC
    and NC the length of s p is that of its step, s_lpc |g| or s_nc |g|. If p is not a descent
    direction, -g is used instead. A unit-step iteration costs 4 oracle calls.

    Args:
        direction: the rule for p: `AdamDirection()`, `MomentumDirection()`, or any object with
            their methods `init(point)` and `direction(point, state)`; see `Direction`.
        sigma: the curvature pHp/pp above which it is strong; 0 is right for strongly convex f.
        s_lpc: the scale in LPC, in (0, 1/sigma]; "1/sigma" for that bound; by default
            min(1, 1/sigma).
        s_nc: the scale in NC, before forward tracking.
        line_search: settings of the line search.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0], dtype=torch.float64)
        >>> method = ScaledDirection(direction=firstish.MomentumDirection())
        >>> firstish.minimize(lambda x: (x**2).sum(), x0, method=method).iterations
        1
    """

    order: ClassVar[Order] = 2

    direction: AnyDirection = field(default_factory=AdamDirection)
    sigma: float = 1e-6
    s_lpc: LimitedScale = None
    s_nc: float = 1.0
    line_search: Armijo = field(default_factory=Armijo)

    def __post_init__(self) -> None:
        has_methods = all(hasattr(self.direction, name) for name in ("init", "direction"))
        if isinstance(self.direction, type) or not has_methods:
            raise TypeError(
                "`ScaledDirection(direction=...)` must be a direction such as `AdamDirection()` or "
                f"`MomentumDirection()`, got {self.direction!r}."
            )
        check_cases("ScaledDirection", self.sigma, self.s_lpc, self.s_nc)
        check_stateless("ScaledDirection", self.line_search)

    def init(self, point: Point) -> Any:
        """The initial state of the direction."""
        return self.direction.init(point)

    def propose(self, point: Point, state: Any) -> Proposal:
        """The direction, scaled by one product along it."""
        g_norm = point.grad_norm
        p, state_after = self.direction.direction(point, state)
        p, p_norm, _ = in_range(p, norm(p))
        name = "direction"
        down = -norm_and_cosine(point.grad, p, p_norm)[1] if math.isfinite(p_norm) else 0.0
        if not down >= DESCENT:
            v, v_norm, _ = point.grad_in_range()
            p, p_norm, down, name = v.neg(), v_norm, 1.0, "gradient"
        angle = point.angle(p, p_norm)
        case, scale = algorithm_1(angle, "CG", sigma=self.sigma, s_lpc=self.s_lpc, s_nc=self.s_nc)
        strong, short = case is Curvature.SPC, False
        if strong:
            length = down * (g_norm / angle.rayleigh)  # |s p| = -<g,p>/<p,Hp> |p|
        else:
            length = resolved_length(point, g_norm * scale, down)
            short = length > g_norm * scale
        s = length / p_norm
        return Proposal(
            vector=p,
            weight=s,
            slope=-length * (g_norm * down) if 0 < s < math.inf else 0.0,  # <g, s p>
            length=length,
            curvature=length * (length * angle.rayleigh),  # <s p, H s p>
            forward=short or case is Curvature.NC,
            interpolate=short and case is not Curvature.NC,
            record=Step(curvature=case, scaling=name if strong else None, scale=s),
            state_after=state_after,
        )

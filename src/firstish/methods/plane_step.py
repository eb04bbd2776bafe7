"""The plane step: the lowest point of the quadratic model over the gradient and the last step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor

from firstish.line_search import Armijo
from firstish.methods.base import Failure, Step
from firstish.methods.cases import check_cases, check_monotone, limited_scale, require_finite
from firstish.methods.ray import ray, why_stuck
from firstish.objectives.point import Depth, Point
from firstish.scaling import Angle, Curvature, curvature_case, scale
from firstish.vectors import norm, norm_and_cosine

DEFINITE = 1e-8  # least 1 - kappa^2: then rounding leaves half of the digits of the solution
DESCENT = 1e-6  # least cosine of the angle between p and -g


@dataclass(frozen=True, slots=True)
class LastPoint:
    """The point before and the gradient there; None before the first step."""

    x: Tensor | None = None
    grad: Tensor | None = None


class Plane(NamedTuple):
    """p = -s g + t d, and what the line search wants to know of it."""

    p: Tensor
    s: float
    length: float
    slope: float
    bend: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneStep:
    """The minimiser of the quadratic model over span{g, d}, d the last step.

        [ gHg  -gHd ] [s]   [  gg ]
        [ -gHd  dHd ] [t] = [ -gd ]        p = -s g + t d,    x <- x + alpha p

    Hg is the one product, and H d is free: y = g - g_prev, the change of the gradient over d, so
    gHd = <Hg,d> and dHd = <y,d>. On a quadratic with unit steps this is the method of conjugate
    gradients. Where curvature along g is not strong, before the second step, and where the system
    is not safely positive definite, the step is that of `ScaledGradient` with the CG scale. A
    unit-step iteration costs 4 oracle calls.

    Args:
        sigma: curvature above which it counts as strong; 0 is right for strongly convex f.
        s_lpc: scale where curvature is limited, in (0, 1/sigma]; "1/sigma" for that; by default
            min(1, 1/sigma).
        s_nc: scale where curvature is negative, before forward tracking.
        line_search: Armijo's settings.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
        >>> h = torch.tensor([1.0, 5.0, 9.0], dtype=torch.float64)
        >>> firstish.minimize(lambda x: (h * x**2).sum(), x0, method=PlaneStep()).iterations
        3
    """

    depth: ClassVar[Depth] = "product"

    sigma: float = 1e-6
    s_lpc: float | Literal["1/sigma"] | None = None
    s_nc: float = 1.0
    line_search: Armijo = field(default_factory=Armijo)

    def __post_init__(self) -> None:
        check_cases("PlaneStep", self.sigma, self.s_lpc, self.s_nc)
        check_monotone("PlaneStep", self.line_search)

    def init(self, point: Point) -> LastPoint:
        """No step taken."""
        return LastPoint()

    def step(self, point: Point, state: LastPoint) -> tuple[Point, Step, LastPoint]:
        """One product, one small system, then the line search."""
        if point.grad_norm == 0:
            return point, Step(step_size=0.0, trials=0, failure=Failure.STATIONARY), state
        angle = point.angle()
        require_finite(angle)
        case = curvature_case(angle, self.sigma)
        plane = self._plane(point, angle, state) if case is Curvature.SPC else None
        L1 = angle.product_norm / angle.grad_norm  # |Hg| / |g|
        if plane is not None:
            _, s, length, slope, bend = plane
        else:
            s = self._gradient_scale(case, angle)
            length = s * angle.grad_norm  # |p|
            slope = -length * angle.grad_norm  # <g, p>
            bend = length * (length * (angle.cosine * L1))  # <p, Hp>
        if slope == 0:  # it underflowed: no decrease of f could be seen
            return point, Step(step_size=0.0, trials=0, failure=Failure.ROUNDING), state
        if plane is not None:
            along = ray(point, plane.p, slope)
        else:
            along = ray(point, point.grad, slope, weight=-s)  # p = -s g
        search = self.line_search
        found = search.forward_track(along) if case is Curvature.NC else search.backtrack(along)

        alpha, trial = found.step_size, found.trial
        spc = case is Curvature.SPC
        step = Step(
            curvature=case,
            scaling=("CG" if plane is None else "plane") if spc else None,
            scale=s,
            step_size=alpha,
            trials=found.trials,
            cosine=angle.cosine,
            local_lipschitz=L1,
            descent_margin=slope + bend,
            predicted_decrease=-alpha * (slope + alpha / 2 * bend),
            actual_decrease=0.0 if trial is None else point.value - trial.value,
            slope_ratio=None
            if trial is None or trial.point.depth == "value"
            else trial.slope() / slope,
            failure=None if trial is not None else why_stuck(point, along, length),
        )
        if trial is None:
            return point, step, state
        return trial.point, step, LastPoint(point.x, point.grad)

    def _gradient_scale(self, case: Curvature, angle: Angle) -> float:
        if case is Curvature.SPC:
            return scale("CG", angle, self.sigma)
        return limited_scale(self.sigma, self.s_lpc) if case is Curvature.LPC else self.s_nc

    def _plane(self, point: Point, angle: Angle, state: LastPoint) -> Plane | None:
        """The step in the plane; None where the system cannot be trusted.

        In the unit vectors u = g/|g| and w = d/|d|, with a = uHu, b = uHw, c = wHw, r = <u,w>,
        the system is [a -b; -b c] [s; t'] = [1; -r], t = t' |g|/|d|; scaled by the roots of its
        diagonal its matrix is [1 -kappa; -kappa 1]. No square of a norm appears.
        """
        if state.x is None or state.grad is None:
            return None
        g, g_norm, Hg = point.grad, angle.grad_norm, point.hvp(point.grad).vector
        d, y = point.x - state.x, g - state.grad
        d_norm = norm(d)
        if d_norm == 0:
            return None
        y_norm, y_cosine = norm_and_cosine(y, d, d_norm)
        Hg_cosine = norm_and_cosine(Hg, d, d_norm)[1]
        r = norm_and_cosine(g, d, d_norm)[1]
        a, b = angle.rayleigh, Hg_cosine * (angle.product_norm / g_norm)
        c = y_cosine * (y_norm / d_norm)
        if not self.sigma < c < math.inf:
            return None
        root_a, root_c = math.sqrt(a), math.sqrt(c)
        kappa = b / root_a / root_c
        definite = (1 - kappa) * (1 + kappa)
        if not definite >= DEFINITE:
            return None
        s = (1 / root_a - kappa * r / root_c) / definite / root_a
        t = (kappa / root_a - r / root_c) / definite / root_c
        down = s - t * r  # of p in units of |g|, along -u
        size = math.hypot(down, t * math.sqrt((1 - r) * (1 + r)))
        weight = t * (g_norm / d_norm)
        if not (down >= DESCENT * size and math.isfinite(g_norm * size) and math.isfinite(weight)):
            return None
        p = d.mul_(weight).sub_(g, alpha=s)
        bend = a * s * s - 2 * b * s * t + c * t * t
        return Plane(p, s, g_norm * size, -g_norm * (g_norm * down), g_norm * (g_norm * bend))

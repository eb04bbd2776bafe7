"""The paper's method: p = -s g, s from one Hessian-vector product, a unit step tried first."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from firstish.errors import NonFiniteError
from firstish.line_search import Armijo
from firstish.methods.base import Failure, Step
from firstish.methods.ray import ray, why_stuck
from firstish.objectives.point import Depth, Point
from firstish.scaling import Curvature, curvature_case, parse_cycle, scale


@dataclass(frozen=True, slots=True)
class CycleState:
    """How many SPC steps have been taken: which scale of the cycle is next."""

    turns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledGradient:
    """Gradient descent scaled by the curvature along the gradient.

        p = -s g,    x <- x + alpha p,    alpha = 1 tried first

    Args:
        scaling: "CG", "MR", "GM" or a cycle of them such as "CGMR", in any case of letters. The
            cycle advances on steps of strong positive curvature only.
        sigma: curvature above which it counts as strong; 0 is right for strongly convex f.
        s_lpc: scale where curvature is limited, in (0, 1/sigma]; "1/sigma" for that; by default
            min(1, 1/sigma).
        s_nc: scale where curvature is negative, before forward tracking.
        line_search: Armijo's settings.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0], dtype=torch.float64)
        >>> method = ScaledGradient(scaling="MRCG")
        >>> firstish.minimize(lambda x: (x**2).sum(), x0, method=method).iterations
        1
    """

    depth: ClassVar[Depth] = "product"

    scaling: str = "CGMR"
    sigma: float = 1e-6
    s_lpc: float | Literal["1/sigma"] | None = None
    s_nc: float = 1.0
    line_search: Armijo = field(default_factory=Armijo)

    def __post_init__(self) -> None:
        parse_cycle(self.scaling)
        if not 0 <= self.sigma < math.inf:
            raise ValueError(
                f"`ScaledGradient(sigma=...)` must be at least 0 and finite, got {self.sigma}."
            )
        if not 0 < self.s_nc < math.inf:
            raise ValueError(
                f"`ScaledGradient(s_nc=...)` must be positive and finite, got {self.s_nc}."
            )
        self._check_s_lpc()

    def _check_s_lpc(self) -> None:
        if self.s_lpc is None:
            return
        if isinstance(self.s_lpc, str):
            if self.s_lpc != "1/sigma":
                raise ValueError(
                    "`ScaledGradient(s_lpc=...)` must be a number or '1/sigma', "
                    f"got {self.s_lpc!r}."
                )
            if self.sigma == 0:
                raise ValueError(
                    "`ScaledGradient(s_lpc='1/sigma')` needs sigma > 0, got sigma=0. "
                    "Pass a number, or leave it out."
                )
        elif not (0 < self.s_lpc < math.inf and self.s_lpc * self.sigma <= 1):
            raise ValueError(
                f"`ScaledGradient(s_lpc=...)` must lie in (0, 1/sigma], sigma={self.sigma}, "
                f"got {self.s_lpc}."
            )

    def limited_scale(self) -> float:
        """The scale of the LPC case."""
        if isinstance(self.s_lpc, str):
            return 1 / self.sigma
        if self.s_lpc is not None:
            return self.s_lpc
        return 1.0 if self.sigma <= 1 else 1 / self.sigma

    def init(self, point: Point) -> CycleState:
        """The start of the cycle."""
        return CycleState()

    def step(self, point: Point, state: CycleState) -> tuple[Point, Step, CycleState]:
        """One product, then the line search."""
        if point.grad_norm == 0:
            return point, Step(step_size=0.0, trials=0, failure=Failure.STATIONARY), state
        cycle = parse_cycle(self.scaling)
        name = cycle[state.turns % len(cycle)]
        angle = point.angle_along() if name == "CG" else point.angle()
        if not math.isfinite(angle.product_norm):
            raise NonFiniteError(
                "The Hessian-vector product Hg is not finite at the starting point although f and "
                "its gradient are. Look for a root at 0 (such as sqrt or norm), or start elsewhere."
            )
        case = curvature_case(angle, self.sigma)
        if case is Curvature.SPC:
            s = scale(name, angle, self.sigma)
        else:
            s = self.limited_scale() if case is Curvature.LPC else self.s_nc
        length = s * angle.grad_norm  # |p|
        slope = -length * angle.grad_norm  # <g, p>
        L1 = angle.product_norm / angle.grad_norm  # |Hg| / |g|, or of its part along g
        bend = length * (length * (angle.cosine * L1))  # <p, Hp>
        if slope == 0:  # it underflowed: no decrease of f could be seen
            return point, Step(step_size=0.0, trials=0, failure=Failure.ROUNDING), state
        along = ray(point, point.grad, slope, weight=-s)  # p = -s g
        search = self.line_search
        found = search.forward_track(along) if case is Curvature.NC else search.backtrack(along)

        alpha, trial = found.step_size, found.trial
        step = Step(
            curvature=case,
            scaling=name if case is Curvature.SPC else None,
            scale=s,
            step_size=alpha,
            trials=found.trials,
            cosine=None if angle.partial else angle.cosine,
            local_lipschitz=None if angle.partial else L1,
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
        turns = state.turns + (case is Curvature.SPC)
        return trial.point, step, CycleState(turns)

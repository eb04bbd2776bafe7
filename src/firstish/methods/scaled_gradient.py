"""The paper's method: p = -s g, s from one Hessian-vector product, a unit step tried first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, Literal

from firstish.line_search import Armijo, NonMonotone
from firstish.methods.base import Failure, Step
from firstish.methods.cases import check_cases, limited_scale, require_finite
from firstish.methods.ray import ray, resolved_scale, search_along, searched
from firstish.objectives.point import Depth, Point
from firstish.rules import LOOKING_BACK, RULES, Memory, ruled
from firstish.scaling import SCALES, Curvature, curvature_case, parse_cycle, scale
from firstish.schedules import Schedule
from firstish.zhang_hager import updated


@dataclass(frozen=True, slots=True)
class CycleState:
    """Which scale is next, and what rules, schedules and non-monotone searches remember.

    Args:
        turns: how many SPC steps have been taken: which scale of the cycle is next.
        iterations: how many steps, for a schedule; 0 where there is none.
        weight: Zhang and Hager's Q, for a non-monotone search.
        mean: Zhang and Hager's C.
        memory: the numbers of `rules.Memory`; empty where the scaling is no rule.
    """

    turns: int = 0
    iterations: int = 0
    weight: float = 0.0
    mean: float = 0.0
    memory: tuple[float, ...] = ()


@lru_cache
def cycle_of(scaling: str) -> tuple[str, ...]:
    """The scales of a cycle such as "CGMR", or of a rule such as "DY".

    >>> cycle_of("CGMR"), cycle_of("dy")
    (('CG', 'MR'), ('CG', 'CG', 'Y', 'Y'))
    """
    if isinstance(scaling, str) and scaling.upper() in RULES:
        return RULES[scaling.upper()]
    return parse_cycle(scaling)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledGradient:
    """Gradient descent scaled by the curvature along the gradient.

        p = -s g,    x <- x + alpha p,    alpha = 1 tried first

    Args:
        scaling: "CG", "MR", "GM" or a cycle of them such as "CGMR", in any case of letters. The
            cycle advances on steps of strong positive curvature only. Or one of the rules "ASD",
            "DY" and "SDC" (see `firstish.rules`); DY and SDC begin again after a step of another
            curvature or one that was cut.
        sigma: curvature above which it counts as strong; 0 is right for strongly convex f.
        s_lpc: scale where curvature is limited, in (0, 1/sigma]; "1/sigma" for that; by default
            min(1, 1/sigma).
        s_nc: scale where curvature is negative, before forward tracking. A step of `s_lpc` or
            `s_nc` that would be lost in rounding is lengthened until it is not.
        line_search: Armijo's settings; `NonMonotone()` lets f rise above its mean's past, for
            steps beyond 1.
        schedule: from the iteration to the first trial step, which it multiplies; such as
            `Anneal(iterations=100)`, from 2 to 1. By default none.

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
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        cycle_of(self.scaling)
        check_cases("ScaledGradient", self.sigma, self.s_lpc, self.s_nc)
        if self.schedule is not None and not callable(self.schedule):
            raise TypeError(
                "`ScaledGradient(schedule=...)` must be a function of the iteration, such as "
                f"`Anneal(iterations=100)`, got {self.schedule!r}."
            )

    def limited_scale(self) -> float:
        """The scale of the LPC case."""
        return limited_scale(self.sigma, self.s_lpc)

    def init(self, point: Point) -> CycleState:
        """The start of the cycle."""
        return CycleState()

    def step(self, point: Point, state: CycleState) -> tuple[Point, Step, CycleState]:
        """One product, then the line search."""
        if point.grad_norm == 0:
            return point, Step(step_size=0.0, trials=0, failure=Failure.STATIONARY), state
        # --8<-- [start:step]
        cycle = cycle_of(self.scaling)
        name = cycle[state.turns % len(cycle)]
        angle = point.angle_along() if name == "CG" else point.angle()
        case = curvature_case(angle, self.sigma)
        v, _, ratio = point.grad_in_range()  # g = ratio v, and nearly always g = v
        grown = False
        if case is Curvature.SPC:
            if name in SCALES:
                s = scale(name, angle, self.sigma)
            else:
                past = Memory(*state.memory)
                past = past._replace(length=past.length / ratio)  # as |v| to |g|
                s = ruled(name, angle, self.sigma, past)
        else:
            require_finite(angle)
            setting = self.limited_scale() if case is Curvature.LPC else self.s_nc
            s = resolved_scale(point, setting)
            grown = s > setting
        g_norm = point.grad_norm
        length = s * g_norm  # |p|
        slope = -length * g_norm  # <g, p>
        L1 = angle.product_norm / angle.grad_norm  # |Hg| / |g|, or of its part along g
        bend = length * (length * (angle.cosine * L1))  # <p, Hp>
        # --8<-- [end:step]
        if slope == 0:  # it underflowed: no decrease of f could be seen
            return point, Step(step_size=0.0, trials=0, failure=Failure.ROUNDING), state
        along = ray(point, v, slope, weight=-s * ratio)  # p = -s g
        search, weight, mean = self.line_search, 0.0, 0.0
        if self.schedule is not None:
            first = search.initial_step * self.schedule(state.iterations)
            search = replace(search, initial_step=first)
        if isinstance(search, NonMonotone):
            weight, mean = updated(state.weight, state.mean, point.value, search.eta)
            along.lift(mean)
        found = search_along(search, along, case, grown=grown)

        alpha, trial = found.step_size, found.trial
        step = replace(
            searched(point, along, found, length=length, bend=bend),
            curvature=case,
            scaling=name if case is Curvature.SPC else None,
            scale=s,
            cosine=None if angle.partial else angle.cosine,
            local_lipschitz=None if angle.partial else L1,
        )
        if trial is None:
            return point, step, state
        turns, memory = state.turns + (case is Curvature.SPC), state.memory
        if cycle in LOOKING_BACK:
            if case is Curvature.SPC and found.trials == 1:
                held = s if name == "Y" else Memory(*memory).held
                memory = (angle.rayleigh, alpha * length, held)
            else:  # the steps before tell nothing of those to come
                turns, memory = 0, ()
        iterations = 0 if self.schedule is None else state.iterations + 1
        return trial.point, step, CycleState(turns, iterations, weight, mean, memory)

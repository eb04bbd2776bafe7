"""The lazy step: pairs give the direction, and the Hessian is asked only where they cannot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

from torch import Tensor

from firstish.line_search import Armijo
from firstish.methods.base import Failure, Step
from firstish.methods.cases import angle_along, check_memory, check_monotone, require_finite
from firstish.methods.pairs import Pair, direction, pair
from firstish.methods.ray import ray, resolved, searched
from firstish.objectives.point import Depth, Point
from firstish.scaling import Curvature, curvature_case
from firstish.vectors import dot, norm

POSITIVE = 1e-8  # least cosine of the angle between the changes of x and g
DESCENT = 1e-10  # least cosine of the angle between p and -g


@dataclass(frozen=True, slots=True)
class LazyState:
    """The point before and the pairs until then, the oldest first.

    Args:
        x: the point before; None before the first step.
        grad: the gradient there.
        moves: s/|s| of each pair, s the change of x.
        changes: y/|y| of each pair, y the change of the gradient.
        cosines: of the angle between the two.
        stretches: |y|/|s|.
    """

    x: Tensor | None = None
    grad: Tensor | None = None
    moves: tuple[Tensor, ...] = ()
    changes: tuple[Tensor, ...] = ()
    cosines: tuple[float, ...] = ()
    stretches: tuple[float, ...] = ()

    def pairs(self) -> tuple[Pair, ...]:
        """The pairs."""
        columns = (self.moves, self.changes, self.cosines, self.stretches)
        return tuple(map(Pair, *columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyStep:
    """The L-BFGS direction, unit steps first, and a product only where the pairs cannot tell.

        p = -B g,    x <- x + alpha p,    alpha = 1 tried first

    B is the inverse Hessian that the last pairs (change of x, change of g) show. An iteration with
    a unit step costs 2 oracle calls. The row's `product` tells when the Hessian was asked, and why:

        start      there is no pair yet
        curvature  the last pair shows no positive curvature
        descent    rounding left no descent direction: the pairs are forgotten
        search     no trial along p was accepted: the pairs are forgotten

    One product along p, 2 calls more, then gives p its length, s = -<g,p>/<p,Hp>, times the
    cosine of the angle between p and Hp at the start (the GM scale: measured, a shorter first step
    serves the steps after it). Where <p,Hp> is not positive p is tracked forward, as long as f
    falls. A refused step is cut to the lowest point of a parabola, within [0.1, theta] of itself.

    Points keep no graph for products that are rarely made. One made all the same evaluates again,
    for the same 2 oracle calls: a gradient difference, 2 passes, unless the objective was told
    `product="double-backward"`, 4 passes.

    Args:
        memory: how many pairs are kept.
        line_search: Armijo's settings.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([-1.2, 1.0], dtype=torch.float64)
        >>> rosenbrock = lambda x: (1 - x[0])**2 + 100 * (x[1] - x[0]**2)**2
        >>> result = firstish.minimize(rosenbrock, x0, method=LazyStep())
        >>> result.success, result.history[0].product, result.history[1].product
        (True, 'start', None)
    """

    depth: ClassVar[Depth] = "gradient"

    memory: int = 10
    line_search: Armijo = field(default_factory=Armijo)

    def __post_init__(self) -> None:
        check_memory("LazyStep", self.memory)
        check_monotone("LazyStep", self.line_search)

    def init(self, point: Point) -> LazyState:
        """No step taken."""
        return LazyState()

    def step(self, point: Point, state: LazyState) -> tuple[Point, Step, LazyState]:
        """A direction from the pairs, a product if they leave a doubt, then the line search."""
        if point.grad_norm == 0:
            return point, Step(step_size=0.0, trials=0, failure=Failure.STATIONARY), state
        pairs, doubt = self._learn(point, state)
        v, _, ratio = point.grad_in_range()  # g = ratio v, and nearly always g = v
        p = direction(pairs, point.grad if pairs else v)
        slope, length = dot(point.grad, p), norm(p)
        if pairs and not _descends(slope, length, point.grad_norm):
            pairs, doubt = (), "descent"
            new, step = self._along_gradient(point, doubt)
        else:
            unit = 1.0 if pairs else ratio
            new, step = self._along(point, p, slope, length, doubt, unit)
        if step.failure is Failure.LINE_SEARCH and pairs:
            pairs, spent = (), step.trials or 0
            new, step = self._along_gradient(point, "search")
            step.trials = spent + (step.trials or 0)
        if step.failure is not None:
            return point, step, state
        columns = tuple(zip(*pairs, strict=True)) or ((),) * 4
        return new, step, LazyState(point.x, point.grad, *columns)

    def _learn(self, point: Point, state: LazyState) -> tuple[tuple[Pair, ...], str | None]:
        """The pairs with that of the last step, and whether they leave a doubt."""
        if state.x is None or state.grad is None:
            return (), "start"
        last = pair(point.x - state.x, point.grad - state.grad, POSITIVE)
        if last is None:
            return state.pairs(), "curvature"
        return (*state.pairs(), last)[-self.memory :], None

    def _along_gradient(self, point: Point, doubt: str) -> tuple[Point, Step]:
        v, v_norm, ratio = point.grad_in_range()
        return self._along(point, v.neg(), -point.grad_norm * v_norm, v_norm, doubt, ratio)

    def _along(
        self, point: Point, p: Tensor, slope: float, length: float, doubt: str | None, unit: float
    ) -> tuple[Point, Step]:
        """Search along p, scaled by a product if there is a doubt, by `unit` where that is none."""
        s, case, angle = 1.0, None, None
        if doubt is not None:
            angle = angle_along(point, p, length)
            require_finite(angle, "Hp")
            case = curvature_case(angle, sigma=0.0)
            if case is Curvature.SPC:
                s = -slope / length / length / angle.rayleigh
                s *= angle.cosine if doubt == "start" else 1.0
            else:
                short = unit * length
                longer = resolved(point, short, max(-slope / length / point.grad_norm, DESCENT))
                s = unit if longer == short else longer / length
        slope, length = s * slope, s * length
        if slope == 0:  # it underflowed: no decrease of f could be seen
            return point, Step(step_size=0.0, trials=0, product=doubt, failure=Failure.ROUNDING)
        along = ray(point, p, slope, weight=s, depth=self.depth)
        if case is None or case is Curvature.SPC:
            found = self.line_search.backtrack(along, interpolate=True)
        else:
            found = self.line_search.forward_track(along, falling=True)
        trial = found.trial
        bend = None if angle is None else length * (length * angle.rayleigh)  # <p, Hp>
        step = replace(
            searched(point, along, found, length=length, bend=bend),
            curvature=case,
            scaling="pairs",
            scale=s,
            product=doubt,
        )
        return (point if trial is None else trial.point), step


def _descends(slope: float, length: float, g_norm: float) -> bool:
    """Whether p is safely a descent direction."""
    return 0 < -slope < math.inf and -slope >= DESCENT * g_norm * length

"""The lazy step: pairs give the direction, and the Hessian is asked only where they cannot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from firstish._validate import check_count
from firstish.linalg import dot, norm
from firstish.line_search import Armijo
from firstish.methods.base import Step
from firstish.methods.lbfgs import Pair, direction, pair
from firstish.methods.take_step import Proposal, ProposingMethod, check_stateless, resolved_length
from firstish.objectives.base import Order, Point
from firstish.scaling import Curvature, curvature_case, require_finite

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
class LazyStep(ProposingMethod[LazyState]):
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

    order: ClassVar[Order] = 1

    memory: int = 10
    line_search: Armijo = field(default_factory=Armijo)

    def __post_init__(self) -> None:
        check_count("LazyStep", "memory", self.memory)
        check_stateless("LazyStep", self.line_search)

    def init(self, point: Point) -> LazyState:
        """No step taken."""
        return LazyState()

    def propose(self, point: Point, state: LazyState) -> Proposal:
        """The direction that the pairs give, with a product where they are not enough."""
        pairs, reason = self._pairs(point, state)
        if not pairs:
            return self._gradient(point, reason or "start")
        p = direction(pairs, point.grad)
        slope, length = dot(point.grad, p), norm(p)
        if not _descends(slope, length, point.grad_norm):
            return self._gradient(point, "descent")
        return self._along(point, p, slope, length, reason, pairs)

    def propose_again(self, point: Point, proposal: Proposal) -> Proposal | None:
        """The gradient, without the pairs, unless it was tried."""
        return self._gradient(point, "search") if proposal.state_after.moves else None

    def _pairs(self, point: Point, state: LazyState) -> tuple[tuple[Pair, ...], str | None]:
        """The pairs with that of the last step, and the reason for a product if there is one."""
        if state.x is None or state.grad is None:
            return (), "start"
        last = pair(point.x - state.x, point.grad - state.grad, POSITIVE)
        if last is None:
            return state.pairs(), "curvature"
        return (*state.pairs(), last)[-self.memory :], None

    def _gradient(self, point: Point, reason: str) -> Proposal:
        v, v_norm, ratio = point.grad_in_range()  # g = ratio v, and nearly always g = v
        return self._along(point, v.neg(), -dot(point.grad, v), v_norm, reason, (), ratio)

    def _along(
        self,
        point: Point,
        p: Tensor,
        slope: float,
        length: float,
        reason: str | None,
        pairs: tuple[Pair, ...],
        unit: float = 1.0,
    ) -> Proposal:
        """The step along p, scaled by a product if there is a reason for one.

        `unit` is the factor of p where the curvature gives none.
        """
        s, case, pHp = 1.0, None, None
        if reason is not None:
            angle = point.angle(p, length)
            case = curvature_case(angle, sigma=0.0)
            if case is Curvature.SPC:
                s = -slope / length / length / angle.rayleigh
                s *= angle.cosine if reason == "start" else 1.0
            else:
                require_finite(angle)
                down = max(-slope / length / point.grad_norm, DESCENT)
                longer = resolved_length(point, unit * length, down)
                s = unit if longer == unit * length else longer / length
            pHp = (s * length) * ((s * length) * angle.rayleigh)
        columns = tuple(zip(*pairs, strict=True)) or ((),) * 4
        return Proposal(
            vector=p,
            weight=s,
            slope=s * slope,
            length=s * length,
            curvature=pHp,
            forward=case in (Curvature.LPC, Curvature.NC),
            interpolate=True,
            record=Step(curvature=case, scaling="pairs", scale=s, product=reason),
            state_after=LazyState(point.x, point.grad, *columns),
        )


def _descends(slope: float, length: float, g_norm: float) -> bool:
    """Whether p is safely a descent direction."""
    return 0 < -slope < math.inf and -slope >= DESCENT * g_norm * length

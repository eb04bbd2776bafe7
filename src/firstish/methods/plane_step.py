"""The plane step: the lowest point of the quadratic model over the gradient and the last steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import ClassVar

from torch import Tensor

from firstish._validate import check_count
from firstish.linalg import add_, dot, norm, norm_and_cosine
from firstish.line_search import Armijo
from firstish.methods.base import Step
from firstish.methods.cholesky import solve
from firstish.methods.take_step import (
    Proposal,
    ProposingMethod,
    along_gradient,
    check_stateless,
)
from firstish.objectives.base import Order, Point
from firstish.scaling import Angle, Curvature, LimitedScale, algorithm_1, check_cases

DESCENT = 1e-6  # least cosine of the angle between p and -g
CHANGED = 0.3  # most that two values of <w_i, Hw_j> differ, at unit diagonal


@dataclass(frozen=True, slots=True)
class PlaneState:
    """The point before and the steps until then, the newest first.

    Args:
        x: the point before; None before the first step.
        grad: the gradient there.
        moves: w = d/|d| of each step, d the change of x.
        bends: Hw of each, y/|d|, y the change of the gradient.
        forms: <w_i, Hw_j>, j up to i, for each step i in turn; nan where H has changed too much
            between the two for that to be told.
    """

    x: Tensor | None = None
    grad: Tensor | None = None
    moves: tuple[Tensor, ...] = ()
    bends: tuple[Tensor, ...] = ()
    forms: tuple[float, ...] = ()

    def then(self, point: Point, memory: int) -> PlaneState:
        """At the next point: the steps, with that from the last point to this one."""
        x, g = point.x, point.grad
        if self.x is None or self.grad is None:
            return PlaneState(x, g)
        d, y = x - self.x, g - self.grad
        d_norm = norm(d)
        if d_norm == 0:
            return PlaneState(x, g, self.moves, self.bends, self.forms)
        moves, bends = (d.div_(d_norm), *self.moves), (y.div_(d_norm), *self.bends)
        moves, bends = moves[:memory], bends[:memory]
        own = dot(moves[0], bends[0])
        forms: list[tuple[float, ...]] = [(own,)]
        for w, bend, row in zip(moves[1:], bends[1:], self.rows(), strict=False):
            form = _agreed(dot(w, bends[0]), dot(moves[0], bend), _root(own) * _root(row[-1]))
            forms.append((form, *row))
        return PlaneState(x, g, moves, bends, tuple(chain.from_iterable(forms)))

    def rows(self) -> list[tuple[float, ...]]:
        """The forms, those of one step in a row."""
        starts = [i * (i + 1) // 2 for i in range(len(self.moves) + 1)]
        return [self.forms[a:b] for a, b in pairwise(starts)]


def _root(form: float) -> float:
    return math.sqrt(form) if form > 0 else math.nan


def _agreed(one: float, other: float, size: float) -> float:
    """The mean of two values for one form, or nan; they differ where H has changed."""
    return (one + other) / 2 if abs(one - other) <= CHANGED * size else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneStep(ProposingMethod[PlaneState]):
    """The minimiser of the quadratic model over span{g, d_1, ..., d_m}, d_i the last steps.

        with d = d_1 alone    [ gHg  -gHd ] [s]   [  gg ]
                              [ -gHd  dHd ] [t] = [ -gd ]        p = -s g + t d
        x <- x + alpha p

    Hg is the one product, and H d is free: y = g - g_prev, the change of the gradient over d, so
    gHd = <Hg,d> and dHd = <y,d>. On a quadratic with unit steps this is the method of conjugate
    gradients, whatever m. On other functions more than one step tells more of H; an older step
    is left out where H has changed since, which shows as <d_i,y_j> and <d_j,y_i> differ. Where
    curvature along g is not strong, before the second step, and where no step fits, the step is
    that of `ScaledGradient` with the CG scale. A unit-step iteration costs 4 oracle calls.

    Args:
        memory: m, how many steps are kept; 1 is the plane in the word's own sense.
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

    order: ClassVar[Order] = 2

    memory: int = 3
    sigma: float = 1e-6
    s_lpc: LimitedScale = None
    s_nc: float = 1.0
    line_search: Armijo = field(default_factory=Armijo)

    def __post_init__(self) -> None:
        check_count("PlaneStep", "memory", self.memory)
        check_cases("PlaneStep", self.sigma, self.s_lpc, self.s_nc)
        check_stateless("PlaneStep", self.line_search)

    def init(self, point: Point) -> PlaneState:
        """No step taken."""
        return PlaneState()

    def propose(self, point: Point, state: PlaneState) -> Proposal:
        """One product and one small system."""
        angle = point.angle()
        case, s = algorithm_1(angle, "CG", sigma=self.sigma, s_lpc=self.s_lpc, s_nc=self.s_nc)
        here = state.then(point, self.memory)
        proposal = self._in_plane(point, angle, here) if case is Curvature.SPC else None
        if proposal is None:
            proposal = along_gradient(point, angle, case, s, scaling="CG")
        proposal.state_after = here
        return proposal

    def _in_plane(self, point: Point, angle: Angle, here: PlaneState) -> Proposal | None:
        """The step in the plane; None where no earlier step can be trusted to span it.

        In the unit vectors u = g/|g| and w_i the system is A c = r with A_00 = uHu, A_0i = uHw_i,
        A_ij = <w_i, Hw_j>, r_0 = 1, r_i = <u,w_i>; p = -|g| (c_0 u + sum c_i w_i). No square of a
        norm appears.
        """
        if not here.moves:
            return None
        g, g_norm, ratio = point.grad_in_range()  # or g over a power of two
        Hg = point.hvp(g).vector
        across = [dot(Hg, w) / g_norm for w in here.moves]  # uHw_i
        forms = [[angle.rayleigh], *([b, *row] for b, row in zip(across, here.rows(), strict=True))]
        sides = [1.0, *(dot(g, w) / g_norm for w in here.moves)]
        s, *weights = solve(forms, sides, self.sigma)
        if not any(weights):
            return None
        p = g * (-s * ratio)
        for t, w in zip(weights, here.moves, strict=True):
            add_(p, w, -t * (ratio * g_norm))
        length, cosine = norm_and_cosine(p, g, g_norm)
        if not (-cosine >= DESCENT and math.isfinite(length)):
            return None
        slope = point.grad_norm * (cosine * length)
        return Proposal(
            vector=p,
            slope=slope,
            length=length,
            curvature=-slope,  # <p,Hp> = -<g,p> at the minimum of the model
            record=Step(
                curvature=Curvature.SPC,
                scaling="plane",
                scale=s,
                cosine=angle.cosine,
                local_lipschitz=angle.local_lipschitz,
            ),
        )

"""The plane step: the minimiser of the quadratic model over the gradient and the last steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import chain, pairwise, takewhile
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

DESCENT = 1e-6  # smallest cosine between p and -g
CHANGED = 0.3  # largest |<s_i,y_j> - <s_j,y_i>|, relative to sqrt(<s_i,y_i> <s_j,y_j>)


@dataclass(frozen=True, slots=True)
class PlaneState:
    """The last point and the curvature pairs (s, y) up to it, the newest first, with |s| = 1.

    Args:
        x: the last point; None before the first step.
        grad: the gradient there.
        S: s of each pair, the change of x divided by its length.
        Y: y = Hs of each pair, the change of the gradient divided by the same length.
        SY: <s_i, y_j> for j <= i, row by row; nan if H has changed too much between the two.
    """

    x: Tensor | None = None
    grad: Tensor | None = None
    S: tuple[Tensor, ...] = ()
    Y: tuple[Tensor, ...] = ()
    SY: tuple[float, ...] = ()

    def then(self, point: Point, memory: int) -> PlaneState:
        """The state at the next point, with the pair from the last point to this one."""
        x, g = point.x, point.full_grad
        if self.x is None or self.grad is None:
            return PlaneState(x, g)
        s, y = x - self.x, g - self.grad
        s_norm = norm(s)
        if s_norm == 0:
            return PlaneState(x, g, self.S, self.Y, self.SY)
        S = (s.div_(s_norm), *self.S)[:memory]
        Y = (y.div_(s_norm), *self.Y)[:memory]
        sHs = dot(S[0], Y[0])
        rows: list[tuple[float, ...]] = [(sHs,)]
        for s, y, row in zip(S[1:], Y[1:], self.rows(), strict=False):
            mean = _symmetric(dot(s, Y[0]), dot(S[0], y), _root(sHs) * _root(row[-1]))
            rows.append((mean, *row))
        return PlaneState(x, g, S, Y, tuple(chain.from_iterable(rows)))

    def over(self, free: Tensor | None) -> PlaneState:
        """The newest pairs whose steps did not move a variable that is held now."""
        if free is None:
            return self
        k = sum(1 for _ in takewhile(lambda s: not s[~free].any(), self.S))
        return PlaneState(self.x, self.grad, self.S[:k], self.Y[:k], self.SY[: k * (k + 1) // 2])

    def rows(self) -> list[tuple[float, ...]]:
        """The rows of the lower triangle of SY."""
        starts = [i * (i + 1) // 2 for i in range(len(self.S) + 1)]
        return [self.SY[a:b] for a, b in pairwise(starts)]


def _root(sHs: float) -> float:
    return math.sqrt(sHs) if sHs > 0 else math.nan


def _symmetric(one: float, other: float, size: float) -> float:
    """The mean of <s_i,y_j> and <s_j,y_i>; nan if they differ too much, as H has changed."""
    return (one + other) / 2 if abs(one - other) <= CHANGED * size else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneStep(ProposingMethod[PlaneState]):
    """The minimiser of the quadratic model over span{g, d_1, ..., d_m}, d_i the last steps.

        with d = d_1 alone    [ gHg  -gHd ] [s]   [  gg ]
                              [ -gHd  dHd ] [t] = [ -gd ]        p = -s g + t d
        x <- x + alpha p

    Hg is the only product; H d needs none: it is y = g - g_prev, the change of the gradient over d,
    so gHd = <Hg,d> and dHd = <y,d>. On a quadratic with unit steps this is the method of conjugate
    gradients for every m. On other functions older steps add information on H; one is omitted if H
    has changed since, which shows as a difference of <d_i,y_j> and <d_j,y_i>. The step is that of
    `ScaledGradient` with the CG scale outside of SPC, at the first step, and if no d_i can be used.
    A unit-step iteration costs 4 oracle calls.

    It is right for a smooth, nearly quadratic f whose products are cheap. On networks take
    `LazyStep`: a step that is best for the quadratic model now is not the best over many steps.
    On FashionMNIST's network it ends with CG alone, behind CGMR (docs/results/fashion-mlp.md).

    Args:
        memory: m, the number of steps kept; 1 gives a plane, span{g, d}.
        sigma: the curvature gHg/gg above which it is strong; 0 is right for strongly convex f.
        s_lpc: the scale in LPC, in (0, 1/sigma]; "1/sigma" for that bound; by default
            min(1, 1/sigma).
        s_nc: the scale in NC, before forward tracking.
        line_search: settings of the line search.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
        >>> h = torch.tensor([1.0, 5.0, 9.0], dtype=torch.float64)
        >>> firstish.minimize(lambda x: (h * x**2).sum(), x0, method=PlaneStep()).iterations
        3
    """

    order: ClassVar[Order] = 2
    needs_same_loss: ClassVar[bool] = True

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
        """The state without pairs."""
        return PlaneState()

    def propose(self, point: Point, state: PlaneState) -> Proposal:
        """The step from one product and one small linear system."""
        angle = point.angle()
        case, s = algorithm_1(angle, "CG", sigma=self.sigma, s_lpc=self.s_lpc, s_nc=self.s_nc)
        here = state.then(point, self.memory)
        usable = here.over(point.free)
        proposal = self._in_plane(point, angle, usable) if case is Curvature.SPC else None
        if proposal is None:
            proposal = along_gradient(point, angle, case, s, scaling="CG")
        proposal.state_after = here
        return proposal

    def _in_plane(self, point: Point, angle: Angle, here: PlaneState) -> Proposal | None:
        """The minimiser over g and the pairs; None if no pair can be used.

        In the unit vectors u = g/|g| and s_i the system is A c = r with A_00 = uHu, A_0i = uHs_i,
        A_ij = s_iHs_j, r_0 = 1, r_i = <u,s_i>; p = -|g| (c_0 u + sum c_i s_i). Squares of norms
        are not formed.
        """
        if not here.S:
            return None
        g, g_norm, ratio = point.grad_in_range()  # the gradient is ratio g
        Hg = point.hvp(g).vector
        uHs = [dot(Hg, s) / g_norm for s in here.S]
        A = [[angle.rayleigh], *([b, *row] for b, row in zip(uHs, here.rows(), strict=True))]
        r = [1.0, *(dot(g, s) / g_norm for s in here.S)]
        scale, *weights = solve(A, r, self.sigma)
        if not any(weights):
            return None
        p = g * (-scale * ratio)
        for c, s in zip(weights, here.S, strict=True):
            add_(p, s, -c * (ratio * g_norm))
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
                scale=scale,
                cosine=angle.cosine,
                local_lipschitz=angle.local_lipschitz,
            ),
        )

"""CDAT: a learning rate from the curvature along the gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from firstish._validate import check_positive
from firstish.baselines.fixed_step import NoState
from firstish.baselines.steps import STATIONARY, against_gradient, plain_step
from firstish.errors import NonFiniteError
from firstish.methods.base import Step
from firstish.objectives.base import Order, Point


@dataclass(frozen=True, slots=True, kw_only=True)
class CDAT:
    """Curvature dynamics aware tuning of gradient descent, full batch.

        x <- x - eta g,    eta = sigma <g,g> / (|<g,Hg>| + eps)

    sigma = 1 minimises the quadratic model along -g (the CG scale with the absolute curvature, no
    line search). sigma = 2 is the edge of stability: on a quadratic f does not change.
    4 oracle calls per iteration.

    Args:
        sigma: from 1 (greedy) to 2 (edge of stability).
        eps: keeps the quotient finite.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0], dtype=torch.float64)
        >>> firstish.minimize(lambda x: (x**2).sum(), x0, method=CDAT()).iterations
        1
    """

    order: ClassVar[Order] = 2

    sigma: float = 1.0
    eps: float = 1e-30

    def __post_init__(self) -> None:
        check_positive("CDAT", "sigma", self.sigma)
        check_positive("CDAT", "eps", self.eps)

    def init(self, point: Point) -> NoState:
        """The empty state: a full batch needs no moving average."""
        return NoState()

    def step(self, point: Point, state: NoState) -> tuple[Point, Step, NoState]:
        """One Hessian-vector product, one step along -g."""
        if point.grad_norm == 0:
            return point, STATIONARY, state
        v, v_norm, _ = point.grad_in_range()
        u = v / v_norm  # so that nothing overflows
        uHu = point.curvature(u)
        if not math.isfinite(uHu):
            raise NonFiniteError("The curvature <g, Hg> is not finite.")
        curvature = abs(uHu) + self.eps / point.grad_norm / point.grad_norm
        rate = self.sigma / curvature if curvature > 0 else math.inf
        new = against_gradient(point, rate, self.order)
        return new, plain_step(point, new, rate), state

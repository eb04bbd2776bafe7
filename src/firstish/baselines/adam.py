"""Adam, computed by torch's own code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.optim.adam import adam

from firstish._validate import check_below_one, check_positive
from firstish.methods.base import Step
from firstish.methods.directions import Moments
from firstish.objectives.base import Order, Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam:
    """Adam by the functional form of `torch.optim.Adam`, equal to it bit for bit.

        m <- beta1 m + (1 - beta1) g,    v <- beta2 v + (1 - beta2) g^2
        x <- x - alpha m' / (sqrt(v') + eps),    m' = m / (1 - beta1^k),    v' = v / (1 - beta2^k)

    2 oracle calls per iteration.

    Args:
        step_size: alpha.
        betas: beta1 and beta2, each in [0, 1).
        eps: keeps the quotient finite.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0], dtype=torch.float64)
        >>> firstish.minimize(lambda x: (x**2).sum(), x0, method=Adam(step_size=0.3)).success
        True
    """

    order: ClassVar[Order] = 1

    step_size: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check_positive("Adam", "step_size", self.step_size)
        if len(self.betas) != 2:
            raise ValueError(f"`Adam(betas=...)` must be two numbers, got {self.betas!r}.")
        for beta in self.betas:
            check_below_one("Adam", "betas", beta, zero=True)
        check_positive("Adam", "eps", self.eps)

    def init(self, point: Point) -> Moments:
        """The state before the first step."""
        return Moments(torch.zeros_like(point.x), torch.zeros_like(point.x))

    def step(self, point: Point, state: Moments) -> tuple[Point, Step, Moments]:
        """One step of Adam."""
        x, first, second = point.x.clone(), state.first.clone(), state.second.clone()
        adam(  # writes into x, first and second
            [x],
            [point.grad],
            [first],
            [second],
            [],
            [torch.tensor(float(state.steps))],
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=self.step_size,
            weight_decay=0.0,
            eps=self.eps,
            maximize=False,
        )
        new = point.at(x, self.order)
        step = Step(step_size=self.step_size, actual_decrease=point.value - new.value)
        return new, step, Moments(first, second, state.steps + 1)

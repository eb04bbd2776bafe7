"""Gradient descent with a constant step size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from firstish._validate import check_positive
from firstish.baselines import checks
from firstish.baselines.steps import STATIONARY, against_gradient, plain_step
from firstish.methods.base import Step
from firstish.objectives.base import Order, Point


@dataclass(frozen=True, slots=True)
class NoState:
    """The empty state, of methods that remember nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedStep:
    """Gradient descent with a constant step size.

        x <- x - alpha g

    2 oracle calls per iteration.

    Args:
        step_size: alpha.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0], dtype=torch.float64)
        >>> method = FixedStep.from_constants(mu=2.0, lipschitz=2.0)
        >>> firstish.minimize(lambda x: (x**2).sum(), x0, method=method).iterations
        1
    """

    order: ClassVar[Order] = 1

    step_size: float

    def __post_init__(self) -> None:
        check_positive("FixedStep", "step_size", self.step_size)

    @classmethod
    def from_constants(cls, mu: float, lipschitz: float) -> FixedStep:
        """The method with step size 1/L; mu is not used."""
        checks.constants("FixedStep", mu, lipschitz, strongly=False)
        return cls(step_size=1 / lipschitz)

    def init(self, point: Point) -> NoState:
        """The empty state."""
        return NoState()

    def step(self, point: Point, state: NoState) -> tuple[Point, Step, NoState]:
        """One step along -g."""
        if point.grad_norm == 0:
            return point, STATIONARY, state
        new = against_gradient(point, self.step_size)
        return new, plain_step(point, new, self.step_size), state

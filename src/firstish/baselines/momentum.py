"""Gradient descent with momentum: heavy ball and Nesterov.

Both start with v = 0 and compute

    v <- beta v - alpha g

Heavy ball adds the new v to x, Nesterov beta v - alpha g with the new v.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from firstish._validate import check_below_one, check_positive
from firstish.baselines import checks
from firstish.linalg import add, add_
from firstish.methods.base import Step
from firstish.objectives.base import Order, Point


@dataclass(frozen=True, slots=True)
class Velocity:
    """The state of both methods, v."""

    v: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyBall:
    """Polyak's heavy ball.

        v <- beta v - alpha g,    x <- x + v

    2 oracle calls per iteration.

    Args:
        step_size: alpha.
        momentum: beta, in [0, 1).

    Examples:
        >>> HeavyBall.from_constants(mu=1.0, lipschitz=9.0)
        HeavyBall(step_size=0.25, momentum=0.25)
    """

    order: ClassVar[Order] = 1

    step_size: float
    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_positive("HeavyBall", "step_size", self.step_size)
        check_below_one("HeavyBall", "momentum", self.momentum, zero=True)

    @classmethod
    def from_constants(cls, mu: float, lipschitz: float) -> HeavyBall:
        """The method with the optimal constants for quadratics with spectrum in [mu, L].

        alpha = 4 / (sqrt(L) + sqrt(mu))^2,  beta = ((sqrt(L) - sqrt(mu)) / (sqrt(L) + sqrt(mu)))^2
        """
        checks.constants("HeavyBall", mu, lipschitz, strongly=True)
        total = math.sqrt(lipschitz) + math.sqrt(mu)
        ratio = (math.sqrt(lipschitz) - math.sqrt(mu)) / total
        return cls(step_size=4 / (total * total), momentum=ratio**2)

    def init(self, point: Point) -> Velocity:
        """v = 0."""
        return Velocity(torch.zeros_like(point.x))

    def step(self, point: Point, state: Velocity) -> tuple[Point, Step, Velocity]:
        """One step of heavy ball."""
        v = add_(state.v.mul(self.momentum), point.grad, -self.step_size)
        new = point.at(point.x + v, self.order)
        return new, _record(point, new, self.step_size), Velocity(v)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nesterov:
    """Nesterov's acceleration; x is the point at which the gradient is evaluated.

        v <- beta v - alpha g,    x <- x - alpha g + beta v

    2 oracle calls per iteration.

    Args:
        step_size: alpha.
        momentum: beta, in [0, 1).

    Examples:
        >>> Nesterov.from_constants(mu=1.0, lipschitz=4.0).step_size
        0.25
    """

    order: ClassVar[Order] = 1

    step_size: float
    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_positive("Nesterov", "step_size", self.step_size)
        check_below_one("Nesterov", "momentum", self.momentum, zero=True)

    @classmethod
    def from_constants(cls, mu: float, lipschitz: float) -> Nesterov:
        """The method with alpha = 1/L and beta = (sqrt(kappa) - 1) / (sqrt(kappa) + 1).

        kappa = L/mu.
        """
        checks.constants("Nesterov", mu, lipschitz, strongly=True)
        root = math.sqrt(lipschitz / mu)
        return cls(step_size=1 / lipschitz, momentum=(root - 1) / (root + 1))

    def init(self, point: Point) -> Velocity:
        """v = 0."""
        return Velocity(torch.zeros_like(point.x))

    def step(self, point: Point, state: Velocity) -> tuple[Point, Step, Velocity]:
        """One step of Nesterov's method."""
        g, alpha, beta = point.grad, self.step_size, self.momentum
        v = add_(state.v.mul(beta), g, -alpha)
        new = point.at(add(point.x, g, -alpha).add_(v, alpha=beta), self.order)
        return new, _record(point, new, alpha), Velocity(v)


def _record(point: Point, new: Point, alpha: float) -> Step:
    return Step(step_size=alpha, actual_decrease=point.value - new.value)

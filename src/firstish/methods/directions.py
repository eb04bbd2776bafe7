"""Directions for `ScaledDirection`: the updates of Adam and of heavy ball, without a step size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from firstish._validate import check_below_one, check_positive
from firstish.objectives.base import Point

State = TypeVar("State")


class Direction(Protocol[State]):
    """The settings of a rule for a direction; its state is passed in and returned.

    The state is a dataclass whose fields are tensors, numbers and tuples of them, so that a run can
    be saved. Neither the gradient nor the state passed in may be modified.
    """

    def init(self, point: Point) -> State:
        """The state before the first step."""

    def direction(self, point: Point, state: State) -> tuple[Tensor, State]:
        """A direction p of any length, and the next state."""


AnyDirection = Direction[Any]


@dataclass(frozen=True, slots=True)
class Velocity:
    """The last v."""

    v: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentumDirection:
    """The velocity of heavy ball, without a step size.

        v <- beta v - g,    p = v

    Args:
        momentum: beta, in [0, 1).

    Examples:
        >>> MomentumDirection().momentum
        0.9
    """

    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_below_one("MomentumDirection", "momentum", self.momentum)

    def init(self, point: Point) -> Velocity:
        """Velocity 0."""
        return Velocity(torch.zeros_like(point.x))

    def direction(self, point: Point, state: Velocity) -> tuple[Tensor, Velocity]:
        """The new velocity."""
        v = state.v.mul(self.momentum).sub_(point.grad)
        return v, Velocity(v)


@dataclass(frozen=True, slots=True)
class Moments:
    """The running means of g and of g^2, and the number of steps."""

    first: Tensor
    second: Tensor
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamDirection:
    """The update of Adam, without a step size.

        m <- beta1 m + (1 - beta1) g,    v <- beta2 v + (1 - beta2) g^2
        p = -m' / (sqrt(v') + eps),      m' = m / (1 - beta1^k),    v' = v / (1 - beta2^k)

    Args:
        betas: beta1 and beta2, each in [0, 1).
        eps: added to the denominator.

    Examples:
        >>> AdamDirection().betas
        (0.9, 0.999)
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if len(self.betas) != 2:
            raise ValueError(f"`AdamDirection(betas=...)` must be two numbers, got {self.betas!r}.")
        for beta in self.betas:
            check_below_one("AdamDirection", "betas", beta)
        check_positive("AdamDirection", "eps", self.eps)

    def init(self, point: Point) -> Moments:
        """Means of 0, before the first gradient."""
        return Moments(torch.zeros_like(point.x), torch.zeros_like(point.x))

    def direction(self, point: Point, state: Moments) -> tuple[Tensor, Moments]:
        """The update with one more gradient."""
        (beta1, beta2), g, k = self.betas, point.grad, state.steps + 1
        m = state.first.mul(beta1).add_(g, alpha=1 - beta1)
        v = state.second.mul(beta2).addcmul_(g, g, value=1 - beta2)
        root = v.div(1 - beta2**k).sqrt_().add_(self.eps)
        return m.div(beta1**k - 1).div_(root), Moments(m, v, k)

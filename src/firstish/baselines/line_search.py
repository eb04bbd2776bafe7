"""Gradient descent with a backtracking line search and a choice of its first trial."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from firstish.baselines.steps import STATIONARY, down_gradient, searched_step
from firstish.line_search import Armijo
from firstish.methods.base import Step
from firstish.objectives.base import Order, Point

Reset = Literal["full", "no", "limited"]


@dataclass(frozen=True, slots=True)
class LastStep:
    """The last accepted step size."""

    step_size: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSearch:
    """Armijo backtracking along p = -g; `reset` sets the first trial of each search.

        full: alpha_init      no: the last alpha      limited: the last alpha / theta

    In the first iteration the last alpha is alpha_init, so a limited reset starts at
    alpha_init / theta. An iteration costs 1 oracle call for the gradient and 1 for each trial.

    Args:
        reset: "full", "no" or "limited".
        line_search: Armijo's settings; its `initial_step` is alpha_init.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0], dtype=torch.float64)
        >>> result = firstish.minimize(lambda x: (x**2).sum(), x0, method=LineSearch(reset="full"))
        >>> result.history[0].trials, result.history[0].step_size
        (2, 0.5)
    """

    order: ClassVar[Order] = 1

    reset: Reset = "limited"
    line_search: Armijo = field(default_factory=Armijo)

    def __post_init__(self) -> None:
        if self.reset not in get_args(Reset):
            names = ", ".join(map(repr, get_args(Reset)))
            raise ValueError(f"`LineSearch(reset={self.reset!r})` is unknown. Use one of {names}.")

    def init(self, point: Point) -> LastStep:
        """The state before the first step: alpha_init."""
        return LastStep(self.line_search.initial_step)

    def step(self, point: Point, state: LastStep) -> tuple[Point, Step, LastStep]:
        """One gradient, then a line search."""
        if point.grad_norm == 0:
            return point, STATIONARY, state
        first = self._first_trial(state.step_size)
        phi = down_gradient(point, self.order, reference=point.value)
        found = self.line_search.backtrack(phi, first)
        step = searched_step(point, phi, first, found)
        if found.trial is None:
            return point, step, state
        return found.trial.point, step, LastStep(found.step_size)

    def _first_trial(self, last: float) -> float:
        if self.reset == "full":
            return self.line_search.initial_step
        if self.reset == "no":
            return max(last, sys.float_info.min)
        return min(last / self.line_search.theta, sys.float_info.max)

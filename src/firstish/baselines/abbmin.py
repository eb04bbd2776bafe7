"""ABBmin: one of the two Barzilai-Borwein step sizes, chosen by their ratio."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from firstish._validate import check_below_one, check_count, check_positive
from firstish.baselines.steps import STATIONARY, down_gradient, searched_step
from firstish.linalg import dot
from firstish.line_search import Armijo, zhang_hager_mean
from firstish.methods.base import Step
from firstish.objectives.base import Order, Point


@dataclass(frozen=True, slots=True)
class ABBminState:
    """The previous point, the last short step sizes and the mean of f.

    Args:
        step_size: the last accepted step size.
        x: the previous point; None before the first step.
        grad: the gradient at x.
        short_steps: the last values of BB2, oldest first; None if there are none yet.
        weight: Zhang and Hager's Q.
        mean: Zhang and Hager's C.
    """

    step_size: float
    x: Tensor | None = None
    grad: Tensor | None = None
    short_steps: Tensor | None = None
    weight: float = 0.0
    mean: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ABBmin:
    """Adaptive Barzilai-Borwein (ABBmin1) with a non-monotone Armijo search.

    With s = x - x_prev and y = g - g_prev,

        BB1 = <s,s> / <s,y>,    BB2 = <s,y> / <y,y>
        alpha = min of the last `memory` + 1 values of BB2 if BB2 < tau BB1, else BB1

    clipped to [min_step, max_step], is the first trial along p = -g. If <s,y> <= 0 there is no such
    alpha, and the first trial is the last step size over theta. Trials are accepted by Armijo's
    condition with Zhang and Hager's mean C in place of f. An iteration costs 1 oracle call for the
    gradient and 1 for each trial.

    Args:
        tau: the ratio BB2 / BB1 below which the short step size is used.
        memory: the number of earlier values of BB2 in the minimum.
        eta: Zhang and Hager's factor, from 0 (monotone) to 1.
        min_step: the smallest first trial.
        max_step: the largest first trial.
        line_search: Armijo's settings; its `initial_step` is the first trial of the run.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0], dtype=torch.float64)
        >>> firstish.minimize(lambda x: (x**2).sum(), x0, method=ABBmin()).success
        True
    """

    order: ClassVar[Order] = 1

    tau: float = 0.8
    memory: int = 9
    eta: float = 0.85
    min_step: float = 1e-10
    max_step: float = 1e10
    line_search: Armijo = field(default_factory=Armijo)

    def __post_init__(self) -> None:
        check_below_one("ABBmin", "tau", self.tau, zero=False)
        check_count("ABBmin", "memory", self.memory, least=0)
        if not 0 <= self.eta <= 1:
            raise ValueError(f"`ABBmin(eta=...)` must lie in [0, 1], got {self.eta}.")
        check_positive("ABBmin", "max_step", self.max_step)
        if not 0 < self.min_step <= self.max_step:
            raise ValueError(
                f"`ABBmin(min_step=...)` must lie in (0, max_step], max_step={self.max_step}, "
                f"got {self.min_step}."
            )

    def init(self, point: Point) -> ABBminState:
        """The state before the first step."""
        return ABBminState(self.line_search.initial_step)

    def step(self, point: Point, state: ABBminState) -> tuple[Point, Step, ABBminState]:
        """One gradient, then a line search."""
        if point.grad_norm == 0:
            return point, STATIONARY, state
        first, short_steps = self._first_trial(point, state)
        weight, mean = zhang_hager_mean(state.weight, state.mean, point.value, self.eta)
        # Rounding may leave f above the mean.
        phi = down_gradient(point, self.order, reference=max(mean, point.value))
        found = self.line_search.backtrack(phi, first)
        step = searched_step(point, phi, first, found)
        if found.trial is None:
            return point, step, state
        after = ABBminState(found.step_size, point.x, point.grad, short_steps, weight, mean)
        return found.trial.point, step, after

    def _first_trial(self, point: Point, state: ABBminState) -> tuple[float, Tensor | None]:
        """The first trial, and the short step sizes including that of this point."""
        if state.x is None or state.grad is None:
            return state.step_size, None
        s, y = point.x - state.x, point.grad - state.grad
        ss, sy, yy = dot(s, s), dot(s, y), dot(y, y)
        if sy > 0 and yy > 0:
            long, short = ss / sy, sy / yy
            short_steps = self._remember(state.short_steps, short)
            alpha = float(short_steps.min()) if short < self.tau * long else long
            return self._clipped(alpha), short_steps
        return self._clipped(state.step_size / self.line_search.theta), state.short_steps

    def _clipped(self, alpha: float) -> float:
        return max(self.min_step, min(alpha, self.max_step))

    def _remember(self, before: Tensor | None, short: float) -> Tensor:
        last = torch.tensor([short], dtype=torch.float64)
        return last if before is None else torch.cat((before.cpu(), last))[-self.memory - 1 :]

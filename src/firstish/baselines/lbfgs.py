"""L-BFGS with a strong Wolfe line search, by torch's own optimizer.

`torch.optim.LBFGS` holds its state itself. Here an optimizer is built for each iteration, given our
state before it and read out after it. Its early stopping is off, so the iterates are those of one
long run of torch's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from firstish._validate import check_count
from firstish.baselines.steps import STATIONARY
from firstish.linalg import dot
from firstish.line_search import NOISE_ULPS
from firstish.methods.base import Failure, Step
from firstish.objectives.base import Order, Point


@dataclass(frozen=True, slots=True)
class LBFGSState:
    """What torch's optimizer remembers between iterations.

    Args:
        iterations: the number of iterations so far.
        direction: d, the last direction.
        step_size: t, the last step size along d.
        grad: g before that step.
        value: f before that step.
        grad_changes: y of each curvature pair, oldest first.
        steps: s of each curvature pair.
        inverse_products: 1 / <y, s> of each pair; None if there are none yet.
        inverse_scale: <y, s> / <y, y> of the last pair.
    """

    iterations: int = 0
    direction: Tensor | None = None
    step_size: float = 0.0
    grad: Tensor | None = None
    value: float = 0.0
    grad_changes: tuple[Tensor, ...] = ()
    steps: tuple[Tensor, ...] = ()
    inverse_products: Tensor | None = None
    inverse_scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LBFGS:
    """`torch.optim.LBFGS(line_search_fn="strong_wolfe")`, one iteration at a time.

    The first trial is min(1, 1 / |g|_1) in the first iteration and 1 in all others. Each trial
    costs 2 oracle calls, for value and gradient. A trial at which f overflows may break torch's
    interpolation; the run then ends as not finite.

    Args:
        memory: the number of curvature pairs kept; 100 is torch's default.
        max_trials: cap on the trials of one line search.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0], dtype=torch.float64)
        >>> firstish.minimize(lambda x: (x**2).sum(), x0, method=LBFGS()).iterations
        2
    """

    order: ClassVar[Order] = 1

    memory: int = 100
    max_trials: int = 25

    def __post_init__(self) -> None:
        check_count("LBFGS", "memory", self.memory, least=1)
        check_count("LBFGS", "max_trials", self.max_trials, least=1)
        # The first optimizer of a process makes torch import its compiler, which takes about a
        # second. Building one here keeps that out of the measured time of a run.
        self._optimizer(torch.zeros(1))

    def init(self, point: Point) -> LBFGSState:
        """The state without curvature pairs."""
        return LBFGSState()

    def step(self, point: Point, state: LBFGSState) -> tuple[Point, Step, LBFGSState]:
        """One direction, one line search."""
        if point.grad_norm == 0:
            return point, STATIONARY, state
        x = point.x.clone()  # torch writes its trials into it
        known = [point]

        def closure() -> float:
            here = _find(known, x)
            if here is None:
                here = point.at(x.clone(), self.order)
                known.append(here)
            x.grad = here.grad
            return here.value

        optimizer = self._optimizer(x)
        optimizer.state[x].update(_to_torch(state))
        optimizer.step(closure)  # type: ignore[no-untyped-call]
        new_state = _from_torch(optimizer.state[x], state)
        new = _find(known, x)
        if new is None:  # x has NaNs, which equal nothing
            new = point.at(x.clone(), self.order)

        d = new_state.direction
        assert d is not None
        trials, slope = len(known) - 1, dot(point.grad, d)
        if new is point:
            noise = NOISE_ULPS * point.eps * abs(point.value)
            failure = Failure.ROUNDING if abs(slope) <= noise else Failure.LINE_SEARCH
            return point, Step(step_size=0.0, trials=trials, failure=failure), state
        step = Step(
            step_size=new_state.step_size,
            trials=trials,
            actual_decrease=point.value - new.value,
            slope_ratio=dot(new.grad, d) / slope if slope < 0 and new.is_finite() else None,
        )
        return new, step, new_state

    def _optimizer(self, x: Tensor) -> torch.optim.LBFGS:
        return torch.optim.LBFGS(
            [x],
            max_iter=1,
            max_eval=self.max_trials + 1,  # the first evaluation is that of x itself
            tolerance_grad=0.0,
            tolerance_change=0.0,
            history_size=self.memory,
            line_search_fn="strong_wolfe",
        )


def _find(known: list[Point], x: Tensor) -> Point | None:
    return next((point for point in known if torch.equal(point.x, x)), None)


def _to_torch(state: LBFGSState) -> dict[str, Any]:
    if state.grad is None or state.direction is None:
        return {}
    products = state.inverse_products
    return {
        "n_iter": state.iterations,
        "func_evals": 0,
        "d": state.direction,
        "t": state.step_size,
        "old_dirs": list(state.grad_changes),
        "old_stps": list(state.steps),
        "ro": [] if products is None else list(products.unbind()),
        "H_diag": state.inverse_scale,
        "prev_flat_grad": state.grad.clone(),  # torch writes into it
        "prev_loss": state.value,
    }


def _from_torch(memory: dict[str, Any], before: LBFGSState) -> LBFGSState:
    products = memory["ro"]
    return LBFGSState(
        iterations=before.iterations + 1,
        direction=memory["d"],
        step_size=float(memory["t"]),
        grad=memory["prev_flat_grad"],
        value=memory["prev_loss"],
        grad_changes=tuple(memory["old_dirs"]),
        steps=tuple(memory["old_stps"]),
        inverse_products=torch.stack(products) if products else None,
        inverse_scale=float(memory["H_diag"]),
    )

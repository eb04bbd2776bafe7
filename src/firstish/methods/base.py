"""The interface of a method: one iteration, from a point and a state to the next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from firstish.objectives.base import Order, Point
from firstish.scaling import Curvature


class Failure(Enum):
    """Why no step was taken."""

    STATIONARY = "the gradient is zero"
    LINE_SEARCH = "no trial of the line search was accepted"
    GRADIENT = (
        "f did not fall as its gradient says, at any step size: check the gradient, and the loss "
        "for a kink, a jump or large terms that cancel"
    )
    NON_FINITE = (
        "f was not finite at any trial: check the loss for an overflow, and for a logarithm or "
        "root of variables that `bounds=(1e-12, None)` would keep positive"
    )
    FIRST_TRIAL = (
        "the first trial step (`lr` of `ScaledGD`, `initial_step` of the line search) is too small "
        "to change f or x: leave it at 1.0"
    )
    ROUNDING = (
        "no step lowers f by more than its rounding error: this is a minimum, or f is badly scaled"
    )


@dataclass(slots=True, kw_only=True)  # not frozen: made once per iteration
class Step:
    """The record of one iteration.

    Args:
        curvature: the curvature case.
        scaling: the name of the scale; None outside of SPC.
        scale: s.
        step_size: alpha; 0 if no trial was accepted.
        trials: the number of trials of the line search.
        cosine: the cosine between g and Hg; None if |Hg|, which was not needed, would cost extra.
        local_lipschitz: |Hg| / |g|; None likewise.
        descent_margin: <g,p> + <p,Hp>, at most 0.
        predicted_decrease: of the quadratic model over the step taken.
        actual_decrease: of f.
        slope_ratio: <g(x + alpha p), p> / <g, p>; the curvature condition with eta holds if it is
            at most eta. None if the new gradient was not needed.
        product: the reason for a Hessian-vector product, in a method that rarely needs one; None
            without a product, and in methods that need one at every step.
        pairs: the number of curvature pairs that made the direction, in a method that keeps them.
        active: the number of variables held at their bounds before the step; None without bounds.
        failure: the reason if no step was taken.
    """

    curvature: Curvature | None = None
    scaling: str | None = None
    scale: float | None = None
    step_size: float | None = None
    trials: int | None = None
    cosine: float | None = None
    local_lipschitz: float | None = None
    descent_margin: float | None = None
    predicted_decrease: float | None = None
    actual_decrease: float | None = None
    slope_ratio: float | None = None
    product: str | None = None
    pairs: int | None = None
    active: int | None = None
    failure: Failure | None = None


State = TypeVar("State")


class Method(Protocol[State]):
    """The settings of a method; its state is passed in and returned.

    `order` is the highest order of derivatives that the method needs at a point, so that no graph
    is kept for a product that is never computed.
    """

    @property
    def order(self) -> Order:
        """0 if it needs f alone, 1 with the gradient, 2 with Hessian-vector products."""

    def init(self, point: Point) -> State:
        """The state before the first step."""

    def step(self, point: Point, state: State) -> tuple[Point, Step, State]:
        """One iteration. The point comes back unchanged if the step failed."""


AnyMethod = Method[Any]

"""What a method is: one iteration, from a point and a state to the next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from firstish.objectives.base import Order, Point
from firstish.scaling import Curvature


class Failure(Enum):
    """Why a step did not move."""

    STATIONARY = "the gradient is zero"
    LINE_SEARCH = "no trial of the line search was accepted"
    ROUNDING = "f cannot resolve a further decrease in this precision"


@dataclass(slots=True, kw_only=True)  # not frozen: made once per iteration
class Step:
    """What one iteration did.

    Args:
        curvature: the case met along the gradient.
        scaling: the name of the scale used, None outside of SPC.
        scale: s.
        step_size: alpha; 0 if no trial was accepted.
        trials: how many the line search made.
        cosine: the cosine of the angle between g and Hg; None where <g,Hg> was enough and |Hg|
            would have cost more.
        local_lipschitz: |Hg| / |g|; None likewise.
        descent_margin: <g,p> + <p,Hp>, at most 0.
        predicted_decrease: of the quadratic model over the step taken.
        actual_decrease: of f.
        slope_ratio: <g(x + alpha p), p> / <g, p>; the curvature condition holds at eta if it is at
            most eta. None where the new gradient was not needed.
        product: why a Hessian-vector product was made, in a method that makes one only in doubt;
            None where none was made, and in methods that make one at every step.
        failure: why the step did not move, if it did not.
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
    failure: Failure | None = None


State = TypeVar("State")


class Method(Protocol[State]):
    """Frozen settings; the state is passed in and handed back.

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

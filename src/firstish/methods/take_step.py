"""The line search along a step that a method proposes."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from firstish.linalg import dot, norm
from firstish.line_search import NOISE_ULPS, TELLING, Armijo, Found, LineFunction, SearchState
from firstish.methods.base import Failure, Step
from firstish.objectives.base import Order, Point
from firstish.scaling import Angle, Curvature

State = TypeVar("State")

_STATELESS = SearchState()


@dataclass(slots=True, kw_only=True)
class Proposal:
    """A step p = weight * vector to try, with what is known of f along it.

    Args:
        vector: the direction.
        weight: its factor.
        slope: <g, p>, negative; 0 if it underflowed.
        length: |p|.
        curvature: <p, Hp>; None without a product.
        forward: True to try longer steps while they are accepted.
        interpolate: True to shorten a rejected step by parabolic interpolation, and to lengthen it
            only while f falls.
        lengthen: True to try longer steps while f follows its tangent.
        angle: between g and Hg, if the step was scaled by it.
        record: the fields of `Step` that are known before the search.
        state_after: the state of the method after this step, or what `learn` needs for it.
        cut: True after the search if a bound has cut the step taken, which then is not alpha p.
    """

    vector: Tensor
    weight: float = 1.0
    slope: float
    length: float
    curvature: float | None = None
    forward: bool = False
    interpolate: bool = False
    lengthen: bool = False
    angle: Angle | None = None
    record: Step = field(default_factory=Step)
    state_after: Any = None
    cut: bool = False


def along_gradient(
    point: Point, angle: Angle, case: Curvature, s: float, scaling: str | None
) -> Proposal:
    """The proposal p = -s g, with the curvature that the angle between g and Hg gives.

    Outside of SPC s is a setting, and the step may be too short to change f beyond rounding. It is
    then lengthened, and the search lengthens it further while f falls.
    """
    v, _, ratio = point.grad_in_range()  # g = ratio v, and nearly always g = v
    short = False
    if case is not Curvature.SPC:
        s, setting = resolved_scale(point, s), s
        short = s > setting
    length = s * point.grad_norm  # |p|
    L1 = angle.product_norm / angle.grad_norm  # |Hg| / |g|, or of its part along g
    return Proposal(
        vector=v,
        weight=-s * ratio,
        slope=-length * point.grad_norm,  # <g, p>
        length=length,
        curvature=length * (length * (angle.cosine * L1)),  # <p, Hp>
        forward=short or case is Curvature.NC,
        interpolate=short and case is not Curvature.NC,
        angle=angle,
        record=Step(
            curvature=case,
            scaling=scaling if case is Curvature.SPC else None,
            scale=s,
            cosine=None if angle.partial else angle.cosine,
            local_lipschitz=None if angle.partial else L1,
        ),
    )


def resolved_length(point: Point, length: float, down: float = 1.0) -> float:
    """`length`, or more if the change of f or x by so short a step would be lost in rounding.

    For steps whose length is a setting, s_lpc or s_nc, which does not depend on the scales of f
    and x. `down` is the cosine between the step and -g.
    """
    noise = NOISE_ULPS * point.eps * abs(point.value)
    ulp = torch.finfo(point.x.dtype).eps * norm(point.x)
    if length * point.grad_norm * down > noise and length > NOISE_ULPS * ulp:
        return length
    telling = TELLING * noise / point.grad_norm / down
    return max(length, TELLING * ulp, telling if telling < math.inf else 0.0)


def resolved_scale(point: Point, s: float) -> float:
    """The scale s, or more if the step -s g would be lost in rounding."""
    length = s * point.grad_norm
    longer = resolved_length(point, length)
    return s if longer == length else min(longer / point.grad_norm, sys.float_info.max)


class ProposingMethod(ABC, Generic[State]):
    """A method that proposes a step and learns from the one that the line search took."""

    order: ClassVar[Order]
    needs_same_loss: ClassVar[bool] = False
    """True if a step compares gradients of different points, which must be of one function."""

    line_search: Armijo

    @abstractmethod
    def propose(self, point: Point, state: State) -> Proposal:
        """The step to try from this point, whose gradient is not zero."""

    def learn(
        self, point: Point, state: State, proposal: Proposal, step: Step, search: SearchState
    ) -> State:
        """The state after the step from that point; by default `proposal.state_after`."""
        after: State = proposal.state_after
        return after

    def elsewhere(self, state: State) -> State:
        """The state, where x was changed since the step that it is of."""
        return state

    def propose_again(self, point: Point, proposal: Proposal) -> Proposal | None:
        """A second proposal after the line search accepted no trial of the first, or None."""
        return None

    def search_state(self, state: State) -> SearchState:
        """The state of the line search, for methods that keep it."""
        return _STATELESS

    def step(self, point: Point, state: State) -> tuple[Point, Step, State]:
        """One iteration: a proposal, taken by the line search."""
        if point.grad_norm == 0:
            stationary = Step(
                step_size=0.0, trials=0, active=point.active, failure=Failure.STATIONARY
            )
            return point, stationary, state
        proposal = self.propose(point, state)
        before = self.search_state(state)
        new, step, search = take_step(point, proposal, self.line_search, before, self.order)
        failure = step.failure
        if failure is not None and (failure is not Failure.ROUNDING or _may_fall(point)):
            other = self.propose_again(point, proposal)
            if other is not None:
                proposal, spent = other, step.trials or 0
                new, step, search = take_step(point, other, self.line_search, before, self.order)
                step.trials = spent + (step.trials or 0)
        if step.failure is not None:
            return point, step, state
        return new, step, self.learn(point, state, proposal, step, search)


def take_step(
    point: Point, proposal: Proposal, search: Armijo, state: SearchState, order: Order
) -> tuple[Point, Step, SearchState]:
    """The point that the line search accepts along p, the record, and the state of the search.

    If no trial is accepted, the point is the old one and the record tells the reason.
    """
    if proposal.slope == 0:  # it underflowed: f cannot show a decrease
        failed = replace(proposal.record, step_size=0.0, trials=0, failure=Failure.ROUNDING)
        return point, failed, state
    reference, after = search.reference(point.value, state)
    phi = LineFunction(
        value=reference,
        slope=proposal.slope,
        trial=partial(PointTrial, point, proposal.vector, proposal.weight, order),
        eps=point.eps,
        lifted=reference > point.value,
    )
    first = search.first_step(state)
    if proposal.forward:
        found = search.forward_track(phi, first, falling=proposal.interpolate)
    elif proposal.lengthen:
        found = search.lengthen(phi, first)
    else:
        found = search.backtrack(phi, first, interpolate=proposal.interpolate)
    step = _complete_record(point, proposal, phi, first, found)
    proposal.cut = found.trial is not None and found.trial.linear is not None
    return (point if found.trial is None else found.trial.point), step, after


class PointTrial:
    """The point x + alpha p, or P(x + alpha p) with bounds, as a trial of the line search."""

    __slots__ = ("_slope", "_vector", "_weight", "linear", "point", "start", "value")

    def __init__(
        self, start: Point, vector: Tensor, weight: float, order: Order, alpha: float
    ) -> None:
        self.start = start
        self.point = start.along(vector, alpha * weight, order)
        try:
            self.value = self.point.value
        except start.undefined:  # such as a covariance that is not positive definite there
            self.value = math.nan
            start.meter.oracle_calls += 1
        self._vector = vector
        self._weight = weight
        self._slope: float | None = None
        self.linear: float | None = None
        d = self.point.displacement
        if d is not None:
            self.linear = dot(start.full_grad, d)
            self._vector, self._weight = d, 1 / alpha

    def slope(self) -> float:
        """<g(x + alpha p), p>."""
        if self._slope is None:
            self._slope = self._weight * dot(self.point.full_grad, self._vector)
        return self._slope

    def moved(self) -> bool:
        """True if the trial differs from x in floating point."""
        return not torch.equal(self.point.x, self.start.x)

    def usable(self) -> bool:
        """True if the gradient, which is needed next anyway, is finite; always at order 0."""
        return self.point.order == 0 or math.isfinite(self.point.grad_norm)


def _complete_record(
    point: Point,
    proposal: Proposal,
    phi: LineFunction[PointTrial],
    first: float,
    found: Found[PointTrial],
) -> Step:
    """The record of the proposal, completed by the result of the search from `first` on."""
    slope, pHp, alpha, trial = phi.slope, proposal.curvature, found.step_size, found.trial
    step = proposal.record
    step.step_size, step.trials, step.active = alpha, found.trials, point.active
    if pHp is not None:
        step.descent_margin = slope + pHp
        step.predicted_decrease = -alpha * (slope + alpha / 2 * pHp)
    if trial is None:
        step.actual_decrease = 0.0
        step.failure = _failure(point, phi, proposal.length, first, found)
        return step
    step.actual_decrease = point.value - trial.value
    if trial.point.order != 0:
        step.slope_ratio = trial.slope() / slope
    return step


def _failure(
    point: Point,
    phi: LineFunction[PointTrial],
    length: float,
    first: float,
    found: Found[PointTrial],
) -> Failure:
    """The reason why no trial was accepted; `length` is |p|, `first` the first trial.

    It is rounding if the linear decrease of the full step is within the noise of f, or the step
    within that of x; if only that of the first trial is, a longer first trial is the remedy.
    """
    noise_in_x = NOISE_ULPS * torch.finfo(point.x.dtype).eps * norm(point.x)
    if -phi.slope <= phi.noise or length <= noise_in_x:
        return Failure.ROUNDING
    if -phi.slope * first <= phi.noise or length * first <= noise_in_x:
        return Failure.FIRST_TRIAL
    return search_failure(found)


def _may_fall(point: Point) -> bool:
    """True if f would change by far more than rounding if each variable did by 1e-8 of itself.

    To first order. A direction may then be lost in rounding because it is a wrong one, as where
    variables differ by many orders of magnitude.
    """
    change = math.sqrt(point.eps) * dot(point.grad.abs(), point.x.abs())
    return change > TELLING * NOISE_ULPS * point.eps * abs(point.value)


def search_failure(found: Found[PointTrial]) -> Failure:
    """What the trials of a failed search have in common, if |f| and |x| alone do not explain it."""
    if not found.finite:
        return Failure.NON_FINITE
    if found.unresolved:
        return Failure.ROUNDING
    return Failure.GRADIENT if found.denied else Failure.LINE_SEARCH


def check_stateless(call: str, line_search: Armijo) -> None:
    """Raise if the line search has a state, which the method does not keep."""
    if line_search.has_state:
        raise TypeError(
            f"`{call}(line_search=...)` does not support {type(line_search).__name__} or a "
            "schedule: its steps are made for alpha = 1. Use a plain `Armijo(...)`, or "
            "`ScaledGradient(line_search=NonMonotone(...))`."
        )

"""The lazy step: the direction is that of its curvature pairs, and products are rare."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from firstish._validate import check_count
from firstish.bounds.bounded import BoundedPoint
from firstish.linalg import SHORT as FEW
from firstish.linalg import Array, Vector, as_array, as_tensor, dot, is_short, library, norm
from firstish.line_search import Armijo, SearchState
from firstish.methods.base import Step
from firstish.methods.quasi_newton.between_bounds import FreeProducts, direction, most_pairs
from firstish.methods.quasi_newton.curvature_pairs import LEAST, POSITIVE, Pair, Pairs, pair
from firstish.methods.quasi_newton.inverse_hessian import InverseHessian
from firstish.methods.quasi_newton.row_buffer import aligned
from firstish.methods.take_step import Proposal, ProposingMethod, check_stateless, resolved_length
from firstish.objectives.base import Order, Point
from firstish.scaling import Curvature, curvature_case, require_finite

DESCENT = 1e-10  # least cosine of the angle between p and -g
SHORT = 0.3  # a step size below it is a deep cut
DEEP_CUTS = 5  # in a row: then B is too large everywhere, not only along the last step
RECENT = 0.05  # weight of the last step in the mean `excess`
EXCESS = 0.25, 10.0  # least and largest ratio that one step adds to it
MEDIUM = 400  # variables: up to here B is a matrix once one of them is held at a bound


class Used(NamedTuple):
    """What a step was made of, for the state after it.

    Attributes:
        expected: as in `LazyState`.
        pairs: the pairs, or B itself for few variables; None without.
        known: their products over the free variables, if some are held.
        excess: as in `LazyState`.
        arrays: x and the gradient where it began, if B is a matrix.
    """

    expected: float
    pairs: Pairs | InverseHessian | None
    known: FreeProducts | None = None
    excess: float = 0.0
    arrays: tuple[Array, Array] | None = None


@dataclass(frozen=True)
class LazyState:
    """The point before, the pairs until then, and what they said of the step from it.

    Args:
        x: the point before; None before the first step.
        grad: the gradient there.
        expected: <p,B^-1 p>/<p,p>, the curvature along the step that the pairs expected.
        excess: the mean over the last steps of the logarithm of the curvature found over it.
        S: see `Pairs`; None without pairs.
        Y: likewise.
        R: likewise, the bytes of its float64 numbers: `load_state_dict` of torch's optimizers
            converts every tensor to the dtype of the parameters, which bytes survive.
        stretches: likewise.
        taus: likewise.
        cuts: how many steps in a row, up to the one from x, were cut deeply.
        free: with bounds, see `FreeProducts`; None if no variable was held.
        free_R: its table, as bytes.
        B: see `InverseHessian`, as bytes; None unless the variables are few.
        count: likewise.
        scale: likewise.
        H: likewise, as bytes; None as long as it is not needed.
    """

    x: Tensor | None = None
    grad: Tensor | None = None
    expected: float = 0.0
    S: Tensor | None = None
    Y: Tensor | None = None
    R: Tensor | None = None
    stretches: tuple[float, ...] = ()
    taus: tuple[float, ...] = ()
    cuts: int = 0
    excess: float = 0.0
    free: Tensor | None = None
    free_R: Tensor | None = None
    B: Tensor | None = None
    count: int = 0
    scale: float = 0.0
    H: Tensor | None = None

    used: ClassVar[Used | None] = None
    """What these tensors were made from; not saved, and made from them where it is missing."""

    @classmethod
    def after(cls, point: Point, used: Used, cuts: int = 0) -> LazyState:
        """The state after a step from that point."""
        x, g, (expected, pairs, known, excess, _) = point.x, point.full_grad, used
        if pairs is None:
            return cls(x, g, expected, cuts=cuts)
        if isinstance(pairs, InverseHessian):
            H = None if pairs.H is None else _bytes(pairs.H)
            matrix = _bytes(pairs.B), pairs.count, pairs.scale, H
            state = cls(x, g, expected, None, None, None, (), (), cuts, excess, None, None, *matrix)
        else:
            free, table = (None, None) if known is None else (known.free, _bytes(known.table))
            R, numbers = _bytes(pairs.R), (pairs.stretches, pairs.taus)
            state = cls(x, g, expected, pairs.S, pairs.Y, R, *numbers, cuts, excess, free, table)
        object.__setattr__(state, "used", used)
        return state

    def free_products(self) -> FreeProducts | None:
        """What is known over the free variables, if some were held."""
        if self.used is not None:
            return self.used.known
        if self.free is None or self.free_R is None:
            return None
        return FreeProducts(self.free, _numbers(self.free_R))

    def pairs(self) -> Pairs | InverseHessian | None:
        """The pairs, or B; None if there are none."""
        if self.used is not None:
            return self.used.pairs
        if self.B is not None:
            H = None if self.H is None else _numbers(self.H)
            return InverseHessian(_numbers(self.B), self.count, self.scale, H)
        if self.S is None or self.Y is None or self.R is None:
            return None
        S, Y = aligned(self.S), aligned(self.Y)
        return Pairs(S, Y, _numbers(self.R), self.stretches, self.taus)


def _bytes(numbers: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers).view(np.uint8))


def _numbers(stored: Tensor) -> Array:
    # Copied by torch, which aligns its memory: BLAS may sum in another order where it is not.
    return stored.to("cpu", torch.uint8, copy=True).numpy().view(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyStep(ProposingMethod[LazyState]):
    """Self-scaled BFGS from many curvature pairs, with a product only where these do not decide.

        p = -c B g,    x <- x + alpha p,    alpha = 1 tried first

    B is the inverse Hessian that the pairs (change of x, change of g) show, each update rescaled by
    what the last one got wrong (formulas: `methods/quasi_newton/curvature_pairs.py`). Until the
    memory is full it is full-matrix BFGS; up to 256 variables (400 once a bound is active), in
    float64 on the CPU, B is kept as a matrix. An iteration with a unit step costs 2 oracle calls.
    The row's `pairs` is how many made p, and its `product` says why a Hessian-vector product was
    made:

        start      f is 0 where the run starts, which gives the first step no length
        curvature  the last pair shows no positive curvature
        descent    rounding left no descent direction: the pairs are forgotten
        search     no trial along p was accepted: the pairs are forgotten

    One product along p, 2 calls more, then gives p its length, s = -<g,p>/<p,Hp>. Where <p,Hp> is
    not positive p is tracked forward, as long as f falls. A refused step is cut to the lowest point
    of a parabola, within [0.1, theta] of itself.

    The first step is along -g, of length 2|f|/|g|: the minimiser of a parabola whose minimum is 0,
    as it nearly is for sums of squares and many losses. Where that is too short, f follows its
    tangent and the step is lengthened. It needs no product and does not depend on the units of f
    and x.

    The factor tau that rescales the older pairs is at most 1, except after five steps in a row that
    were cut below 0.3: B is then too large everywhere, and a tau above 1 shrinks it. So does its
    square root while variables are held at bounds (docs/bounds.md). Otherwise c makes up for a B
    that is too large: 1/c is the curvature found along the steps over the expected one, in the
    geometric mean over about the last twenty; c is at most 1. It is the row's scale.

    docs/beyond.md has the formulas and the measurements behind these choices.

    Points keep no graph for products that are rarely made. One made all the same evaluates again,
    for the same 2 oracle calls: a gradient difference, 2 passes, unless the objective was told
    `product="double-backward"`, 4 passes.

    Args:
        memory: how many pairs are kept at most, each of two vectors as long as x. "auto": as many
            as `max_bytes` allow, but at least 10 and at most 2n + 100 for n variables; all, where B
            is kept as a matrix.
        self_scaled: whether older pairs are rescaled. `LazyStep(memory=10, self_scaled=False)` has
            the direction of textbook L-BFGS.
        max_bytes: memory for the pairs' vectors, by default 128 MiB; of vectors spread over
            processes, of all parts together. When float64 vectors have filled it, they are rounded
            to float32, which makes room for as many pairs again. `memory="auto"` drops the oldest
            when these fill it too.
        line_search: Armijo's settings.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([-1.2, 1.0], dtype=torch.float64)
        >>> rosenbrock = lambda x: (1 - x[0])**2 + 100 * (x[1] - x[0]**2)**2
        >>> result = firstish.minimize(rosenbrock, x0, method=LazyStep())
        >>> result.success, [row.pairs for row in result.history[:4]]
        (True, [0, 1, 2, 3])
    """

    order: ClassVar[Order] = 1
    needs_same_loss: ClassVar[bool] = True

    memory: int | Literal["auto"] = "auto"
    self_scaled: bool = True
    max_bytes: int = 2**27
    line_search: Armijo = field(default_factory=Armijo)

    def __post_init__(self) -> None:
        if isinstance(self.memory, str) and self.memory != "auto":
            raise ValueError(
                f"`LazyStep(memory=...)` must be 'auto' or a number of pairs, got {self.memory!r}."
            )
        if self.memory != "auto":
            check_count("LazyStep", "memory", self.memory)
        check_count("LazyStep", "max_bytes", self.max_bytes)
        check_stateless("LazyStep", self.line_search)

    def init(self, point: Point) -> LazyState:
        """No step taken."""
        return LazyState()

    def propose(self, point: Point, state: LazyState) -> Proposal:
        """The direction that the pairs give, with a product where they are not enough."""
        if state.x is None or state.grad is None:
            return _first(point)
        if not self._by_matrix(point, state):
            s, y = point.x - state.x, point.full_grad - state.grad
            return self._after(s, y, point, state, None)
        before = None if state.used is None else state.used.arrays
        x, g = before or (state.x.numpy(), state.grad.numpy())
        here = _arrays(point)
        with np.errstate(all="ignore"):  # as torch does
            return self._after(here[0] - x, here[1] - g, point, state, here)

    def _after(
        self,
        s: Vector,
        y: Vector,
        point: Point,
        state: LazyState,
        arrays: tuple[Array, Array] | None,
    ) -> Proposal:
        """The proposal after a step that has changed x by s and g by y, tensors or arrays."""
        last = pair(s, y, POSITIVE)
        if last is None and isinstance(point, BoundedPoint):
            last = pair(*_finite(s, y), POSITIVE)
        pairs, known = self._with(last, point, state)
        if pairs is None:
            return _gradient(point, "curvature")
        excess = self._excess(last, state)
        shorter = 1.0 if last is None else math.exp(-max(0.0, excess))
        g: Vector = point.grad
        if isinstance(point, BoundedPoint):
            p, known = direction(point, pairs, self.self_scaled, shorter, known)
            g = as_array(point.room.g) if type(p) is np.ndarray else g
        elif isinstance(pairs, InverseHessian):
            g = as_array(g)
            p = pairs.times(g)
            p *= -shorter
        else:
            p = pairs.times(g, self.self_scaled)
            p *= -shorter
        slope, length = dot(g, p), norm(p)
        if not _descends(slope, length, point.grad_norm):
            return _gradient(point, "descent")
        p = as_tensor(p)
        if last is None:
            proposal = _measured(point, p, slope, length, "curvature", pairs)
        else:
            proposal = _proposal(point, p, slope, length, 1.0, pairs, shorter)
        proposal.state_after = Used(proposal.state_after.expected, pairs, known, excess, arrays)
        return proposal

    def propose_again(self, point: Point, proposal: Proposal) -> Proposal | None:
        """The gradient, without the pairs and scaled by a product, unless that was tried."""
        tried = proposal.record.product is not None and not proposal.record.pairs
        return None if tried else _gradient(point, "search")

    def elsewhere(self, state: LazyState) -> LazyState:
        """The state without the expected curvature, which is that along the step alone.

        The pairs hold: the next one is of the two points, whatever led from one to the other.
        """
        return replace(state, expected=0.0)

    def learn(
        self, point: Point, state: LazyState, proposal: Proposal, step: Step, search: SearchState
    ) -> LazyState:
        """The state after the step, which counts the deep cuts in a row.

        A step that a bound has cut is not the one whose curvature was expected.
        """
        deep = step.step_size is not None and step.step_size < SHORT
        used: Used = proposal.state_after
        if proposal.cut:
            used = used._replace(expected=0.0)
        return LazyState.after(point, used, state.cuts + 1 if deep else 0)

    def _by_matrix(self, point: Point, state: LazyState) -> bool:
        """Whether B is a matrix: from the first step on if there are few variables.

        With up to `MEDIUM` of them, from the step on at which one is held at a bound. The inverse
        of the free block then saves more iterations than the matrix costs time.
        """
        if state.B is not None:
            return True
        if state.S is None:
            return self._dense(point.x, FEW)
        return bool(point.active) and self._dense(point.x, MEDIUM)

    def _dense(self, x: Tensor, most: int) -> bool:
        """Whether B may be kept as a matrix, of at most so many variables."""
        fits = 8 * x.numel() ** 2 <= self.max_bytes
        return fits and self.memory == "auto" and self.self_scaled and is_short(x, most)

    def _with(
        self, last: Pair | None, point: Point, state: LazyState
    ) -> tuple[Pairs | InverseHessian | None, FreeProducts | None]:
        """The pairs with that of the last step, and what is known over the free variables."""
        pairs, known = state.pairs(), state.free_products()
        if last is not None and isinstance(pairs, Pairs) and type(last.step) is np.ndarray:
            pairs = InverseHessian.of(pairs)
        if isinstance(pairs, InverseHessian):
            if last is not None:
                pairs = pairs.plus(last, self._tau(last, state, point.active))
            return pairs, None
        most, full = self._room(point.x)
        if point.active:
            most = min(most, most_pairs(point.x.numel()))
        if pairs is not None and len(pairs) >= full:
            pairs = pairs.rounded()
        if last is None:
            return pairs, known
        if pairs is None:
            dense = type(last.step) is np.ndarray
            return InverseHessian.first(last) if dense else Pairs.first(last), None
        v = point.room.descent if isinstance(point, BoundedPoint) else point.grad
        pairs = pairs.plus(last, self._tau(last, state, point.active), most, v)
        return pairs, None if known is None else known.plus_newest(pairs)

    def _tau(self, last: Pair, state: LazyState, active: int | None) -> float:
        """By what the new pair rescales the others; `active` variables are held at bounds."""
        if not self.self_scaled or state.expected <= 0:
            return 1.0
        tau = last.curvature / state.expected
        if tau > 1:
            tau = math.sqrt(tau) if active else tau if state.cuts >= DEEP_CUTS else 1.0
        return tau if 0 < tau < math.inf else 1.0

    def _excess(self, last: Pair | None, state: LazyState) -> float:
        """`LazyState.excess` with the last step in it, whose curvature was expected."""
        paired = state.S is not None or state.B is not None
        if not (self.self_scaled and paired and state.expected > 0):
            return state.excess
        ratio = 0.0 if last is None else last.curvature / state.expected
        least, most = EXCESS
        new = math.log(min(max(ratio, least), most))
        return state.excess + RECENT * (new - state.excess)

    def _room(self, x: Tensor) -> tuple[int, float]:
        """How many pairs are kept at most, and how many before they are rounded to float32."""
        fit, double = self.max_bytes // (2 * x.numel() * x.dtype.itemsize), x.dtype is torch.float64
        if self.memory == "auto":
            most = max(LEAST, min(2 * x.numel() + 100, 2 * fit if double else fit))
        else:
            most = self.memory
        return most, fit if double and most > fit else math.inf


def _arrays(point: Point) -> tuple[Array, Array]:
    """x and the gradient of all variables."""
    if isinstance(point, BoundedPoint):
        return as_array(point.room.x), as_array(point.room.full)
    return point.x.numpy(), point.full_grad.numpy()


def _finite(s: Vector, y: Vector) -> tuple[Vector, Vector]:
    """A pair without the variables whose gradient is infinite, as that of a root at its bound.

    They are held there.
    """
    xp = library(y)
    finite = xp.isfinite(y)
    return xp.where(finite, s, 0.0), xp.where(finite, y, 0.0)


def _descends(slope: float, length: float, g_norm: float) -> bool:
    """Whether p is safely a descent direction."""
    return 0 < -slope < math.inf and -slope >= DESCENT * g_norm * length


def _first(point: Point) -> Proposal:
    """-g at length 2|f|/|g|, or longer where rounding would hide that."""
    if point.value == 0:
        return _gradient(point, "start")
    v, v_norm, _ = point.grad_in_range()
    s = resolved_length(point, 2 * (abs(point.value) / point.grad_norm)) / v_norm
    proposal = _proposal(point, v.neg(), -dot(point.grad, v), v_norm, s, None)
    proposal.lengthen = True
    return proposal


def _gradient(point: Point, reason: str) -> Proposal:
    """-g, scaled by a product."""
    v, v_norm, ratio = point.grad_in_range()  # g = ratio v, and nearly always g = v
    return _measured(point, v.neg(), -dot(point.grad, v), v_norm, reason, None, ratio)


def _measured(
    point: Point,
    p: Tensor,
    slope: float,
    length: float,
    reason: str,
    pairs: Pairs | InverseHessian | None,
    unit: float = 1.0,
) -> Proposal:
    """The step along p, scaled by a product; by `unit` where the curvature gives no scale."""
    angle = point.angle(p, length)
    case = curvature_case(angle, sigma=0.0)
    if case is Curvature.SPC:
        s = -slope / length / length / angle.rayleigh
    else:
        require_finite(angle)
        down = max(-slope / length / point.grad_norm, DESCENT)
        longer = resolved_length(point, unit * length, down)
        s = unit if longer == unit * length else longer / length
    proposal = _proposal(point, p, slope, length, s, pairs)
    proposal.curvature = (s * length) * ((s * length) * angle.rayleigh)
    proposal.forward = case is not Curvature.SPC
    proposal.record.curvature, proposal.record.product = case, reason
    return proposal


def _proposal(
    point: Point,
    p: Tensor,
    slope: float,
    length: float,
    s: float,
    pairs: Pairs | InverseHessian | None,
    shorter: float = 1.0,
) -> Proposal:
    """The step s p, whose slope and length at s = 1 are given; p = -shorter B g."""
    expected = shorter * (-slope / length / length)  # <p,B^-1 p> = -shorter <g,p>
    return Proposal(
        vector=p,
        weight=s,
        slope=s * slope,
        length=s * length,
        interpolate=True,
        record=Step(scaling="pairs", scale=s * shorter, pairs=0 if pairs is None else len(pairs)),
        state_after=Used(expected, pairs),
    )

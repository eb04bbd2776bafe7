"""Selection of the Hessian-vector product of an objective, and its fallback."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from typing import Literal, Protocol, get_args

from torch import Tensor

from firstish.errors import ProductError
from firstish.linalg import norm
from firstish.objectives.base import FLOAT64_EPS, Order, Product
from firstish.objectives.hvp import SHORTEST, gradient_difference

Mode = Literal["auto", "double-backward", "difference", "gauss-newton"]


class Evaluating(Protocol):
    """What the selector needs of an objective."""

    raised: Exception | None  # the last error of the loss itself


class Differentiable(Protocol):
    """The interface of a point that the selector uses."""

    @property
    def objective(self) -> Evaluating:
        """The objective."""

    @property
    def x(self) -> Tensor:
        """The vector."""

    @property
    def order(self) -> Order:
        """The highest order of derivatives the point is ready for."""

    @property
    def eps(self) -> float:
        """Unit roundoff of the arithmetic of f."""

    @property
    def grad_norm(self) -> float:
        """|g|."""

    def exact_product(self, v: Tensor) -> Product:
        """Hv by double backward."""

    def gauss_newton_product(self, v: Tensor) -> Product:
        """Gv by Gauss-Newton."""

    def gradient_at(self, x: Tensor) -> Tensor:
        """The gradient at another x, without a point."""

    def difference_base(self) -> Tensor:
        """The gradient at the point that `gradient_at` is compared with."""

    def release(self) -> None:
        """Free the graph."""


class ProductSelector:
    """Chooses between the Hessian-vector products and remembers the choice.

    "auto" tries double backward at the first product and checks it against a gradient difference.
    If it fails or is contradicted, gradient differences are used from then on.

    Args:
        mode: the user's choice.
        call: the call to name in errors.
    """

    def __init__(self, mode: Mode, call: str) -> None:
        if mode not in get_args(Mode):
            names = ", ".join(map(repr, get_args(Mode)))
            raise ValueError(f"`{call}(product={mode!r})` is unknown. Use one of {names}.")
        self.requested: Mode = mode
        self.grad_scale = 0.0  # the largest gradient norm seen: the scale of rounding errors
        self.settle(mode)

    def settle(self, mode: Mode) -> None:
        """Use this mode from now on."""
        self.mode: Mode = mode
        self.needs_gradient_graph = mode in ("auto", "double-backward")

    def product(self, point: Differentiable, v: Tensor) -> Product:
        """Hv by the mode in use."""
        if self.mode == "gauss-newton":
            return point.gauss_newton_product(v)
        if self.mode == "difference":
            return self.difference(point, v)
        if self.requested == "auto" and point.order != 2:
            return self.difference(point, v)  # no graph was kept: 2 passes instead of 4
        try:
            exact = point.exact_product(v)
        except (RuntimeError, NotImplementedError) as error:
            if error is point.objective.raised:
                raise  # the loss failed, not its second derivative
            self.fall_back(error)
            return self.difference(point, v)
        return exact if self.mode == "double-backward" else self._confirmed(point, exact, v)

    def difference(
        self, point: Differentiable, v: Tensor, distance: float | None = None
    ) -> Product:
        """Hv by a gradient difference."""
        point.release()
        self.grad_scale = max(self.grad_scale, point.grad_norm)
        return gradient_difference(
            point.gradient_at,
            point.x,
            point.difference_base(),
            v,
            eps=point.eps,
            grad_scale=self.grad_scale,
            distance=distance,
        )

    def fall_back(self, error: Exception) -> None:
        """Use differences from now on; raise if the user chose double backward."""
        operation = failing_operation(str(error))
        if self.mode != "auto":
            raise ProductError(
                f"`product='double-backward'` is not supported: {operation} cannot be "
                "differentiated twice. Use `product='auto'` or `product='difference'`."
            ) from error
        warnings.warn(
            f"{operation} cannot be differentiated twice; Hessian-vector products are gradient "
            "differences from now on. To choose that and silence this, pass `product='difference'` "
            "to `ScaledGD` or to the objective, as in `FunctionObjective(fun, x0, product=...)`.",
            stacklevel=2,
        )
        self.settle("difference")

    def _confirmed(self, point: Differentiable, exact: Product, v: Tensor) -> Product:
        """The exact product, or the difference that contradicts it; ends "auto"."""
        wrong = contradicting_difference(
            exact,
            lambda distance: self.difference(point, v, distance),
            point.x,
            point.grad_norm,
            v,
            point.eps,
        )
        if wrong is None:
            self.settle("double-backward")
            return exact
        self.settle("difference")
        warnings.warn(
            "The Hessian-vector product by double backward contradicts the change of the gradient, "
            "so a second derivative in the loss is wrong or missing; products are gradient "
            "differences from now on. Pass `product='double-backward'` to insist.",
            stacklevel=2,
        )
        return wrong


def failing_operation(message: str) -> str:
    """The operation that a RuntimeError of the double backward names.

    >>> failing_operation("the derivative for '_cdist_backward' is not implemented")
    '_cdist_backward'
    """
    named = re.search(r"derivative for '?([\w:.]+?)'? is not implemented", message)
    if named:
        return named.group(1)
    if "aot_autograd" in message or "torch.compile" in message:
        return "a module compiled by torch.compile"
    return f"an operation of the loss ({message.strip().splitlines()[0] if message else 'unknown'})"


def contradicting_difference(
    exact: Product,
    differ: Callable[[float], Product],
    x: Tensor,
    grad_norm: float,
    v: Tensor,
    eps: float,
) -> Product | None:
    """The difference product, if it shows that `exact` is wrong; else None.

    It does if it is far from `exact` and agrees with a difference over an eighth of the distance.
    If the two differences disagree, they are not reliable: the gradient is not linear over the
    distance, or overflows. The distance is short compared to |g| |v| / |Hv|, over which, according
    to `exact`, the gradient changes completely.
    """
    length, v_norm = norm(exact.vector), norm(v)
    if not math.isfinite(length):
        return None
    share = 1e-3 if eps <= FLOAT64_EPS else 0.3
    x_norm = norm(x)
    distance = math.sqrt(eps) * (1 + x_norm)
    if length > 0:
        distance = min(distance, eps**0.25 * grad_norm / (length / v_norm))
    if distance < SHORTEST or eps * x_norm > share * distance / 8:
        return None  # x + e v would be too far from where it should be

    def agree(a: Product, b: Product) -> bool:
        allowed = share * max(norm(a.vector), norm(b.vector))
        floor = 10 * max(a.absolute_error, b.absolute_error) * v_norm
        return norm(a.vector - b.vector) <= allowed + floor

    one = differ(distance)
    if agree(exact, one):
        return None
    two = differ(distance / 8)
    return one if agree(one, two) and not agree(exact, two) else None

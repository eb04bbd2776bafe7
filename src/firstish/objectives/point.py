"""Point: x and what is known of f there, evaluated as far as it is asked, once, and counted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from firstish.errors import NonFiniteError
from firstish.scaling import Angle
from firstish.vectors import add, dot, in_range, norm, norm_and_cosine

Depth = Literal["value", "gradient", "product"]
"""How far a point will be asked. A point told "gradient" keeps no graph for a product."""


@dataclass(slots=True)
class Meter:
    """What has been spent on an objective.

    Args:
        oracle_calls: the paper's unit. Value 1, gradient after the value 1, Hessian-vector product
            after the gradient 2, whatever the implementation does inside.
        passes: the work really done, in forward passes: a forward 1, a backward 1, a double
            backward 2, a re-evaluation what it is.
    """

    oracle_calls: float = 0
    passes: float = 0

    def copy(self) -> Meter:
        """The counts as they are now."""
        return Meter(self.oracle_calls, self.passes)

    def since(self, start: Meter) -> Meter:
        """What was spent after `start` was copied."""
        return Meter(self.oracle_calls - start.oracle_calls, self.passes - start.passes)


class Product(NamedTuple):
    """A Hessian-vector product H~v and how far its curvature may be off.

        |<v, (H~ - H) v>| / <v, v>  <=  relative_error |H~v| / |v| + absolute_error

    H is the Hessian of the rows the product was made on: what a sample of them leaves out is not
    in it. Both are 0 for an exact product in float64.
    """

    vector: Tensor
    relative_error: float = 0.0
    absolute_error: float = 0.0


class Point(ABC):
    """x, f(x), its gradient and its Hessian-vector products, each computed at most once.

    Subclasses say how to compute them (`_value`, `_gradient`, `_product`) and count the passes;
    this class keeps the results and counts the oracle calls.

    Args:
        x: a one-dimensional tensor that nobody writes to any more.
        meter: where the cost goes.
        depth: how far the point will be asked.
    """

    product_fraction: float = 1  # the share of the data a product uses
    aux: Any = None  # what the loss returned beside its value, at this point

    _f: float | None = None
    _g: Tensor | None = None
    _g_norm: float | None = None
    _last_product: tuple[Tensor, Product] | None = None
    _in_range: tuple[Tensor, float, float] | None = None
    _charged: Tensor | None = None  # the v whose curvature was counted without its product

    def __init__(self, x: Tensor, meter: Meter, depth: Depth) -> None:
        self.x = x
        self.meter = meter
        self.depth = depth

    @property
    @abstractmethod
    def eps(self) -> float:
        """Unit roundoff of the arithmetic f is computed in."""

    @property
    def value(self) -> float:
        """f(x); 1 oracle call."""
        if self._f is None:
            self._f = self._value()
            self.meter.oracle_calls += 1
        return self._f

    @property
    def grad(self) -> Tensor:
        """The gradient; 1 oracle call after the value."""
        if self._g is None:
            if self._f is None:
                _ = self.value
            self._g = self._gradient()
            self.meter.oracle_calls += 1
        return self._g

    @property
    def grad_norm(self) -> float:
        """|g|."""
        if self._g_norm is None:
            self._g_norm = norm(self.grad)
        return self._g_norm

    def grad_in_range(self) -> tuple[Tensor, float, float]:
        """A vector v along g that products are made with, |v|, and |g|/|v|, a power of two.

        v is g itself unless |g| is extreme; see `vectors.in_range`.
        """
        if self._in_range is None:
            self._in_range = in_range(self.grad, self.grad_norm)
        return self._in_range

    def hvp(self, v: Tensor) -> Product:
        """The Hessian-vector product Hv; 2 oracle calls after the gradient.

        The graph is freed by it. A second product at the same point with another v, or one at a
        point told "gradient" only, evaluates again: still 2 oracle calls, but the passes of a
        forward and a backward more. (At a point told "gradient", `product="auto"` makes a gradient
        difference, which needs no more than those two passes.)
        """
        if self._last_product is not None and self._last_product[0] is v:
            return self._last_product[1]
        if self._g is None:
            _ = self.grad
        product = self._product(v)
        if self._charged is not v:
            self.meter.oracle_calls += 2 * self.product_fraction
        self._last_product = (v, product)
        return product

    def curvature(self, v: Tensor) -> float:
        """<v, Hv>; overridden where it can be had for less than Hv."""
        return dot(v, self.hvp(v).vector)

    def angle(self) -> Angle:
        """The angle between g and Hg; 2 oracle calls, for the product.

        Its norms are those of v and Hv, v being g or, where |g| is extreme, g over a power of two.
        """
        v, v_norm, _ = self.grad_in_range()
        product = self.hvp(v)
        length, cosine = norm_and_cosine(product.vector, v, v_norm)
        error = product.relative_error * length / v_norm + product.absolute_error
        return Angle(v_norm, length, cosine, error)

    def angle_along(self) -> Angle:
        """As much of the angle as the cases and the CG scale need: gHg; 2 oracle calls.

        The whole angle, unless |Hg| would cost more: then an angle that is `partial`.
        """
        return self.angle()

    @abstractmethod
    def at(self, x: Tensor, depth: Depth = "product") -> Point:
        """Another point of the same objective."""

    def along(self, p: Tensor, alpha: float, depth: Depth = "product") -> Point:
        """The point x + alpha p."""
        return self.at(add(self.x, p, alpha), depth)

    def accept(self) -> None:
        """Tell the point that it became the current one (buffers are committed here)."""

    def release(self) -> None:
        """Drop whatever graph is still held."""

    def inherited(self) -> tuple[Any, ...]:
        """What the point has from those before it and x alone would not give to the bit.

        Tensors and numbers, kept with a saved run; nothing by default.
        """
        return ()

    def inherit(self, what: tuple[Any, ...]) -> None:
        """Put back what `inherited` gave, before the point is evaluated."""

    def is_finite(self) -> bool:
        """Whether f and its gradient are finite here."""
        return math.isfinite(self.value) and math.isfinite(self.grad_norm)

    def require_finite(self, where: str = "at the starting point") -> None:
        """Raise if f or its gradient is not finite here."""
        if not math.isfinite(self.value):
            raise NonFiniteError(
                f"f is {self.value} {where}. Start where the loss is finite, and "
                "check the data for infinite or missing values."
            )
        if not math.isfinite(self.grad_norm):
            raise NonFiniteError(
                f"The gradient is not finite {where} although f is. Look for a kink "
                "or a root at 0 (such as sqrt or norm), or start elsewhere."
            )

    @abstractmethod
    def _value(self) -> float: ...

    @abstractmethod
    def _gradient(self) -> Tensor: ...

    @abstractmethod
    def _product(self, v: Tensor) -> Product: ...


@runtime_checkable
class Objective(Protocol):
    """Where f, its gradient and its products come from."""

    def at(self, x: Tensor, depth: Depth = "product") -> Point:
        """The point x, not yet evaluated."""

"""`Point`: x with f, gradient and Hessian-vector products, lazily evaluated, cached and counted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from firstish.bounds.box import Box
from firstish.errors import NonFiniteError
from firstish.linalg import add, dot, in_range, norm, norm_and_cosine
from firstish.scaling import Angle

FLOAT64_EPS = torch.finfo(torch.float64).eps

Order = Literal[0, 1, 2]
"""The highest order of derivatives needed at a point: 0 for f, 1 for the gradient, 2 for
Hessian-vector products. Only with 2 does a point keep the graph for a product."""


@dataclass(slots=True)
class Meter:
    """The cost of the evaluations of an objective so far.

    Args:
        oracle_calls: the paper's unit: 1 for a value, 1 for a gradient after the value, 2 for a
            Hessian-vector product after the gradient, however they are computed.
        passes: the actual cost in forward passes: 1 for a forward, 1 for a backward and 2 for a
            double backward pass, re-evaluations included.
    """

    oracle_calls: float = 0
    passes: float = 0

    def copy(self) -> Meter:
        """A copy of the current counts."""
        return Meter(self.oracle_calls, self.passes)

    def since(self, start: Meter) -> Meter:
        """The cost since the copy `start` was made."""
        return Meter(self.oracle_calls - start.oracle_calls, self.passes - start.passes)


class Product(NamedTuple):
    """A Hessian-vector product H~v and a bound on the error of its curvature.

        |<v, (H~ - H) v>| / <v, v>  <=  relative_error |H~v| / |v| + absolute_error

    H is the Hessian over the rows used for the product: the error of sampling them is not included.
    Both errors are 0 for an exact product in float64.
    """

    vector: Tensor
    relative_error: float = 0.0
    absolute_error: float = 0.0

    @classmethod
    def by_exact_formula(cls, vector: Tensor, eps: float) -> Product:
        """A product whose only error is the rounding of arithmetic with unit roundoff eps."""
        return cls(vector, rounding_error(eps))

    def curvature_error(self, length: float, v_norm: float) -> float:
        """The bound above, with `length` = |H~v| and `v_norm` = |v|."""
        return self.relative_error * length / v_norm + self.absolute_error


def rounding_error(eps: float) -> float:
    """The relative error of a product's curvature in arithmetic with unit roundoff eps.

    In float64 it is too small to change a curvature case, and taken as 0.
    """
    return 0.0 if eps <= FLOAT64_EPS else 8 * eps


class Selector(Protocol):
    """Chooses how a point computes its Hessian-vector products: `ProductSelector`."""

    def product(self, point: Any, v: Tensor) -> Product:
        """Hv."""


class Point(ABC):
    """x, f(x), its gradient and its Hessian-vector products: lazily evaluated, cached and counted.

    Subclasses compute them (`_value`, `_gradient`, `_product`) and count the passes; this class
    caches the results and counts the oracle calls.

    Args:
        x: a one-dimensional tensor, which must not be modified afterwards.
        meter: counts the oracle calls and passes.
        order: the highest order of derivatives that will be needed.
    """

    selector: Selector | None = None  # chooses how products are computed, if there is a choice
    product_fraction: float = 1  # the fraction of the data that a product uses
    by_differences: bool = False  # True if the gradient is a finite difference of f
    by_hand: bool = False  # True if the user wrote the gradient
    undefined: tuple[type[Exception], ...] = ()  # errors that mean that f is not defined at x
    aux: Any = None  # what the loss returned besides its value
    box: Box | None = None  # the bounds of x; evaluations stay inside
    active: int | None = None  # the number of variables held at their bounds, once `grad` is known
    free: Tensor | None = None  # then the mask of the others, if some are held; see `bounds/`
    displacement: Tensor | None = None  # the step to this point, if a bound has cut it

    _f: float | None = None
    _g: Tensor | None = None
    _g_norm: float | None = None
    _last_product: tuple[Tensor, Product] | None = None
    _in_range: tuple[Tensor, float, float] | None = None
    _charged: Tensor | None = None  # the v whose curvature was counted before its product

    def __init__(self, x: Tensor, meter: Meter, order: Order) -> None:
        self.x = x
        self.meter = meter
        self.order = order

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
    def known_value(self) -> float | None:
        """f(x) if it was evaluated, else None."""
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

    @property
    def full_grad(self) -> Tensor:
        """The gradient, also of variables held at their bounds."""
        return self.grad

    @property
    def optimality(self) -> float:
        """|g|, of the projected gradient with bounds: 0 where the first-order conditions hold."""
        return self.grad_norm

    def grad_in_range(self) -> tuple[Tensor, float, float]:
        """v, |v| and |g|/|v|, where v is the gradient divided by a power of two, for products.

        v is g itself unless |g| is extreme; see `linalg.in_range`.
        """
        if self._in_range is None:
            self._in_range = in_range(self.grad, self.grad_norm)
        return self._in_range

    def hvp(self, v: Tensor) -> Product:
        """The Hessian-vector product Hv; 2 oracle calls after the gradient.

        It frees the graph. A second product with another v, or a product at a point of order 1,
        evaluates f again: 2 oracle calls as well, but one more forward and backward pass. (At order
        1, `product="auto"` computes a gradient difference, which needs only those two passes.)
        """
        if self._last_product is not None and self._last_product[0] is v:
            return self._last_product[1]
        if self._g is None:
            _ = self.grad
        product = self._product(v) if self.selector is None else self.selector.product(self, v)
        if self._charged is not v:
            self.meter.oracle_calls += 2 * self.product_fraction
        self._last_product = (v, product)
        return product

    def curvature(self, v: Tensor) -> float:
        """<v, Hv>; overridden where it costs less than Hv."""
        return dot(v, self.hvp(v).vector)

    def angle(
        self, v: Tensor | None = None, v_norm: float | None = None, *, rayleigh_only: bool = False
    ) -> Angle:
        """|v|, |Hv| and the cosine between v and Hv; 2 oracle calls, for the product.

        By default v is the gradient, divided by a power of two if |g| is extreme. The curvature
        cases and the CG scale need only <g,Hg>: with `rayleigh_only` the angle is `partial` where
        |Hg| would cost extra.
        """
        if v is None or v_norm is None:
            v, v_norm, _ = self.grad_in_range()
        product = self.hvp(v)
        length, cosine = norm_and_cosine(product.vector, v, v_norm)
        return Angle(v_norm, length, cosine, product.curvature_error(length, v_norm))

    @abstractmethod
    def at(self, x: Tensor, order: Order = 2) -> Point:
        """Another point of the same objective."""

    def along(self, p: Tensor, alpha: float, order: Order = 2) -> Point:
        """The point x + alpha p."""
        return self.at(add(self.x, p, alpha), order)

    def gradient_inside(self, gradient: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """The gradient at an x near this point, to first order if that is outside of the bounds.

        There it is 2 g(here) - g(mirrored x), for differences that must not leave the box.
        """
        if self.box is None or self.box.contains(x):
            return gradient(x)
        mirrored = 2 * self.x - x
        if not self.box.contains(mirrored):
            return gradient(self.box.project(x))
        return 2 * self.difference_base() - gradient(mirrored)

    def difference_base(self) -> Tensor:
        """The gradient here that gradient differences are taken from."""
        return self.grad

    def accept(self) -> None:
        """Make this the current point, and commit side effects such as new buffers."""

    def release(self) -> None:
        """Free the graph, if one is held."""

    def inherited(self) -> tuple[Any, ...]:
        """Tensors and numbers from earlier points that x alone does not give bit for bit.

        They are saved with a run. Empty by default.
        """
        return ()

    def inherit(self, what: tuple[Any, ...]) -> None:
        """Restore what `inherited` returned, before the point is evaluated."""

    def is_finite(self) -> bool:
        """True if f and its gradient are finite."""
        return math.isfinite(self.value) and math.isfinite(self.grad_norm)

    def require_finite(
        self,
        where: str = "at the starting point",
        remedy: str = "Start where the loss is finite, and check the data for infinite or "
        "missing values.",
    ) -> None:
        """Raise unless f and its gradient are finite."""
        if not math.isfinite(self.value):
            if bool(self.x.isnan().any()):
                entry = int(self.x.isnan().nonzero()[0, 0])
                raise NonFiniteError(f"x has a NaN {where}, in entry {entry}. Pass numbers.")
            raise NonFiniteError(f"f is {self.value} {where}. {remedy}")
        if not math.isfinite(self.grad_norm):
            raise NonFiniteError(
                f"The gradient is not finite {where} although f is. Check the loss for a kink "
                "or a root at 0 (such as sqrt or norm), or start elsewhere."
            )

    @abstractmethod
    def _value(self) -> float: ...

    @abstractmethod
    def _gradient(self) -> Tensor: ...

    def _product(self, v: Tensor) -> Product:
        raise NotImplementedError("a point computes its products itself or has a selector")


class PointView(Point):
    """A point in other variables or with bounds; its `inner` point evaluates and counts.

    Subclasses give the gradient, products and other points.

    Args:
        x: the vector, as a method sees it.
        inner: the point of f.
        order: the highest order of derivatives that will be needed.
    """

    def __init__(self, x: Tensor, inner: Point, order: Order) -> None:
        self.x, self.meter, self.order = x, inner.meter, order  # as Point.__init__
        self.inner = inner

    @property
    def by_differences(self) -> bool:  # type: ignore[override]
        """True if the gradient is a finite difference of f."""
        return self.inner.by_differences

    @property
    def by_hand(self) -> bool:  # type: ignore[override]
        """True if the user wrote the gradient."""
        return self.inner.by_hand

    @property
    def undefined(self) -> tuple[type[Exception], ...]:  # type: ignore[override]
        """Errors that mean that f is not defined at x."""
        return self.inner.undefined

    @property
    def eps(self) -> float:
        """Unit roundoff of the arithmetic f is computed in."""
        return self.inner.eps

    @property
    def aux(self) -> Any:
        """What the loss returned besides its value."""
        return self.inner.aux

    @property
    def value(self) -> float:
        """f there; 1 oracle call."""
        if self._f is None:
            self._f = self.inner.value
        return self._f

    @property
    def known_value(self) -> float | None:
        """f there if it was evaluated, else None."""
        return self.inner.known_value

    def accept(self) -> None:
        """Make this the current point."""
        self.inner.accept()

    def release(self) -> None:
        """Free what the point of f holds."""
        self.inner.release()

    def _value(self) -> float:
        raise AssertionError("the inner point evaluates")

    _gradient = _product = _value  # type: ignore[assignment]


@runtime_checkable
class Objective(Protocol):
    """A function f that can be evaluated at points."""

    def at(self, x: Tensor, order: Order = 2) -> Point:
        """The point x, not yet evaluated."""

"""A linear change of variables, f(x + T u), for a better conditioned Hessian."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from firstish.distributed import Group
from firstish.linalg import add, norm
from firstish.objectives.base import Order, Point, PointView, Product


class Substitution(Protocol):
    """An invertible linear map T from the variables u of the method to changes of x."""

    def forward(self, u: Tensor) -> Tensor:
        """T u in a new tensor."""

    def transposed(self, g: Tensor) -> Tensor:
        """T'g in a new tensor: the derivative by u from that by x."""


class Substituted:
    """f(x + T u) as a function of u, to be minimised from u = 0.

    The values are those of f; only the path to the minimiser changes. A point u holds the point
    x + T u of f, with what that has cached. A step costs one more product with T and with T'.

    Args:
        origin: the point x of f, which is not evaluated again.
        substitution: T.

    Examples:
        >>> import firstish
        >>> class Stretch:
        ...     def forward(self, u):
        ...         return u * torch.tensor([1.0, 0.1], dtype=u.dtype)
        ...     transposed = forward
        >>> x = torch.zeros(2, dtype=torch.float64)
        >>> f = firstish.FunctionObjective(lambda x: x[0] ** 2 + 100 * (x[1] - 1) ** 2, x)
        >>> result = firstish.minimize(Substituted(f.at(x), Stretch()), x, gtol=1e-10)
        >>> result.iterations, round(result.x[1].item(), 6)  # x[1] / 0.1
        (1, 10.0)
    """

    def __init__(self, origin: Point, substitution: Substitution) -> None:
        self.origin = origin
        self.substitution = substitution
        self.group: Group = getattr(getattr(origin, "objective", None), "group", Group())

    def initial(self) -> Tensor:
        """u = 0."""
        return torch.zeros_like(self.origin.x)

    def at(self, x: Tensor, order: Order = 2) -> SubstitutedPoint:
        """The point u, not yet evaluated; at u = 0 the origin itself."""
        inner = self.origin
        if inner.order != order or bool(x.any()):
            inner = inner.at(inner.x + self.substitution.forward(x), order)
        return SubstitutedPoint(self, x, inner, order)


class SubstitutedPoint(PointView):
    """A point u; its `inner` point x + T u of f evaluates and counts."""

    _image: tuple[Tensor, Tensor] | None = None  # the last p, and T p

    def __init__(self, objective: Substituted, u: Tensor, inner: Point, order: Order) -> None:
        super().__init__(u, inner, order)
        self.objective = objective
        self.substitution = objective.substitution

    @property
    def grad(self) -> Tensor:
        """T'g; 1 oracle call after the value."""
        if self._g is None:
            self._g = self.substitution.transposed(self.inner.grad)
        return self._g

    def hvp(self, v: Tensor) -> Product:
        """T'HT v; 2 oracle calls after the gradient."""
        if self._last_product is None or self._last_product[0] is not v:
            u = self._along(v)
            self._last_product = (v, self._pulled_back(v, u, self.inner.hvp(u)))
        return self._last_product[1]

    def curvature(self, v: Tensor) -> float:
        """<v, T'HT v>, at the cost of a curvature of f."""
        return self.inner.curvature(self._along(v))

    def at(self, x: Tensor, order: Order = 2) -> Point:
        """Another point of the same objective."""
        return self.objective.at(x, order)

    def along(self, p: Tensor, alpha: float, order: Order = 2) -> Point:
        """The point u + alpha p; T p is cached for the next trial."""
        inner = self.inner.along(self._along(p), alpha, order)
        return SubstitutedPoint(self.objective, add(self.x, p, alpha), inner, order)

    def release(self) -> None:
        """Free what the point of f holds."""
        super().release()
        self._image = None

    def inherited(self) -> tuple[Any, ...]:
        """x + T u, which u alone does not give bit for bit, and what the point of f inherited."""
        return (self.inner.x, *self.inner.inherited())

    def inherit(self, what: tuple[Any, ...]) -> None:
        """Restore what `inherited` returned."""
        x, *rest = what
        self.inner = self.inner.at(x, self.order)
        self.inner.inherit(tuple(rest))

    def _along(self, p: Tensor) -> Tensor:
        if self._image is None or self._image[0] is not p:
            self._image = (p, self.substitution.forward(p))
        return self._image[1]

    def _pulled_back(self, v: Tensor, u: Tensor, product: Product) -> Product:
        """T'Hu for u = T v; the error of <u,Hu> is that of <v,T'HTv>."""
        vector = self.substitution.transposed(product.vector)
        if product.relative_error == 0 and product.absolute_error == 0:
            return Product(vector)
        stretch = norm(u) / norm(v)
        error = product.relative_error * norm(product.vector) * stretch / norm(v)
        return Product(vector, 0.0, error + product.absolute_error * stretch * stretch)

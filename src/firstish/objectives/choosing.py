"""Points that choose how to make a Hessian-vector product, and settle on a way at the first one."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Protocol

from torch import Tensor

from firstish.errors import ProductError
from firstish.objectives import products
from firstish.objectives.point import Point, Product


class ChoosingObjective(Protocol):
    """What a `ChoosingPoint` needs of its objective."""

    product: products.ProductChoice
    grad_scale: float  # the largest gradient norm seen
    eps: float
    raised: Exception | None  # the last error of the loss itself


class ChoosingPoint(Point):
    """A point whose products follow the objective's `ProductChoice`."""

    objective: ChoosingObjective

    def _product(self, v: Tensor) -> Product:
        choice = self.objective.product
        if choice.mode == "gauss-newton":
            return self._gauss_newton(v)
        if choice.mode == "difference":
            return self._difference(v)
        if choice.asked == "auto" and self.depth != "product":
            return self._difference(v)  # no graph was kept: 2 passes instead of 4
        try:
            exact = self._exact(v)
        except (RuntimeError, NotImplementedError) as error:
            if error is self.objective.raised:
                raise  # it was not the second derivative that failed
            choice.fall_back(error)
            return self._difference(v)
        if choice.mode == "double-backward":
            return exact
        return self._settled(exact, v)

    def _settled(self, exact: Product, v: Tensor) -> Product:
        """End "auto": double backward worked, now see whether a difference confirms it."""
        choice = self.objective.product
        wrong = products.contradicts(
            exact,
            lambda distance: self._difference(v, distance),
            self.x,
            self.grad_norm,
            v,
            self.eps,
        )
        if wrong is None:
            choice.settle("double-backward")
            return exact
        choice.settle("difference")
        warnings.warn(
            "The Hessian-vector product by double backward contradicts the change of the gradient, "
            "so a second derivative in the loss is wrong or missing; products are gradient "
            "differences from now on. Pass `product='double-backward'` to insist.",
            stacklevel=2,
        )
        return wrong

    def _difference(self, v: Tensor, distance: float | None = None) -> Product:
        self.release()
        self.objective.grad_scale = max(self.objective.grad_scale, self.grad_norm)
        return products.difference(
            self._gradient_at,
            self.x,
            self._difference_base(),
            v,
            eps=self.eps,
            grad_scale=self.objective.grad_scale,
            distance=distance,
        )

    def _difference_base(self) -> Tensor:
        """The gradient at x that `_gradient_at` is compared with."""
        return self.grad

    @abstractmethod
    def _exact(self, v: Tensor) -> Product:
        """By double backward."""

    @abstractmethod
    def _gradient_at(self, x: Tensor) -> Tensor:
        """The gradient elsewhere, without a point."""

    def _gauss_newton(self, v: Tensor) -> Product:
        raise ProductError(f"`product='gauss-newton'` is not for {type(self.objective).__name__}.")

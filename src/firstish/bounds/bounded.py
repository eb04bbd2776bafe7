"""An objective whose points stay inside a box, with the derivatives of the free variables.

A variable is *held* at x if it is at a bound and -g leads out of the box; the others are free. On
the free variables the problem is one without bounds near x. A `BoundedPoint` therefore has the
derivatives of f there, the gradient with 0 for held variables and products with the free block of
the Hessian, and every method's formulas hold in that subspace (two-metric projection, Bertsekas
1982). Steps bend at the bounds: the trials of a line search are P(x + alpha p).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from firstish.bounds.box import Box
from firstish.bounds.room import Room
from firstish.linalg import as_tensor, norm
from firstish.objectives.base import Objective, Order, Point, PointView, Product
from firstish.scaling import Angle


class BoundedObjective:
    """f restricted to a box.

    Args:
        objective: f.
        box: the bounds, shaped like the vector x.
    """

    def __init__(self, objective: Objective, box: Box) -> None:
        self.objective = objective
        self.box = box
        self.group = getattr(objective, "group", None)

    def at(self, x: Tensor, order: Order = 2) -> Point:
        """The point of the box nearest to x."""
        return BoundedPoint(self.objective.at(self.box.project(x), order), self.box)


class BoundedPoint(PointView):
    """A point inside a box, as seen by a method: only its free variables have derivatives.

    Args:
        inner: the point of the objective without bounds, which evaluates and counts.
        box: the bounds.
        displacement: its x minus that of the point it was reached from, if the step was cut by a
            bound.
    """

    box: Box
    room: Room  # for steps, once `grad` is known
    _full: Tensor | None = None

    def __init__(self, inner: Point, box: Box, displacement: Tensor | None = None) -> None:
        super().__init__(inner.x, inner, inner.order)
        inner.box = box
        self.box, self.displacement = box, displacement

    @property
    def full_grad(self) -> Tensor:
        """The gradient of all variables."""
        if self._full is None:
            self._full = self.inner.grad
        return self._full

    @property
    def grad(self) -> Tensor:
        """The gradient, 0 for held variables; 1 oracle call after the value."""
        if self._g is None:
            g = self.full_grad
            self.room = room = Room.at(self.x, g, self.box)
            self.active = room.active
            self._g = g if room.free is None else as_tensor(room.g)
        return self._g

    @property
    def grad_norm(self) -> float:
        """|g| over the free variables."""
        if self._g_norm is None:
            self._g_norm = norm(self.grad)
        return self._g_norm

    @property
    def free(self) -> Tensor | None:  # type: ignore[override]
        """The mask of the free variables, once `grad` is known; None if all are."""
        free = None if self._g is None else self.room.free
        return None if free is None else as_tensor(free)

    @property
    def optimality(self) -> float:
        """The norm of the projected gradient."""
        g_norm, optimality = self.grad_norm, self.room.optimality
        return g_norm if optimality is None else optimality

    def hvp(self, v: Tensor) -> Product:
        """The product of the free block of H with a v that is 0 for held variables."""
        if self._last_product is None or self._last_product[0] is not v:
            self._last_product = v, self._free_product(v)
        return self._last_product[1]

    def _free_product(self, v: Tensor) -> Product:
        _ = self.grad
        product, free = self.inner.hvp(v), self.free
        if free is None:
            return product
        # Not a product with the mask: second derivatives may be infinite at a bound.
        return product._replace(vector=product.vector.masked_fill(~free, 0.0))

    def curvature(self, v: Tensor) -> float:
        """<v, Hv>."""
        _ = self.grad
        return self.inner.curvature(v) if self.free is None else super().curvature(v)

    def angle(
        self, v: Tensor | None = None, v_norm: float | None = None, *, rayleigh_only: bool = False
    ) -> Angle:
        """|v|, |Hv| and the cosine between v and Hv, over the free variables."""
        _ = self.grad
        if self.free is None:
            return self.inner.angle(v, v_norm, rayleigh_only=rayleigh_only)
        return super().angle(v, v_norm, rayleigh_only=rayleigh_only)

    def at(self, x: Tensor, order: Order = 2) -> Point:
        """The point of the box nearest to x."""
        return BoundedPoint(self.inner.at(self.box.project(x), order), self.box)

    def along(self, p: Tensor, alpha: float, order: Order = 2) -> Point:
        """The point P(x + alpha p)."""
        point = self.inner.along(p, alpha, order)
        straight = point.x
        x = self.box.rounded(straight)
        if x is straight:
            return BoundedPoint(point, self.box)
        displacement = x - self.x if self.box.cuts(straight) else None
        return BoundedPoint(self.inner.at(x, order), self.box, displacement)

    def inherited(self) -> tuple[Any, ...]:
        """What the inner point inherits."""
        return self.inner.inherited()

    def inherit(self, what: tuple[Any, ...]) -> None:
        """Restore what `inherited` returned."""
        self.inner.inherit(what)

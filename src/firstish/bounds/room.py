"""Which variables are free at a point of a box, and how far each may move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from firstish.bounds.box import Box
from firstish.linalg import Vector, as_array, as_tensor, clip, count, norm, same, without


class Room(NamedTuple):
    """The gradient of the free variables and the room for a step; arrays if vectors are short.

    Attributes:
        x: the point.
        full: the gradient of all variables.
        g: the gradient, 0 for held variables.
        descent: minus g.
        low: the least step that stays inside, in every entry; None if there is no lower bound.
        high: the greatest, likewise.
        free: the mask of the variables that are not held; None if none is held.
        active: how many are held.
        optimality: the norm of the projected gradient; None if it is that of g.
    """

    x: Vector
    full: Vector
    g: Vector
    descent: Vector
    low: Vector | None
    high: Vector | None
    free: Vector | None
    active: int
    optimality: float | None

    @classmethod
    def at(cls, x: Tensor, grad: Tensor, box: Box) -> Room:
        """The room at x, with the gradient there."""
        if box.is_short:
            return cls._at(x.numpy(), grad.numpy(), box)
        return cls._at(x, grad, box)

    @classmethod
    def _at(cls, x: Vector, full: Vector, box: Box) -> Room:
        low, high = box.room(x)
        descent = -full
        step = clip(descent, low, high)
        if box.fixed is None and same(step, descent):  # far from all bounds
            return cls(x, full, full, descent, low, high, None, 0, None)
        g, held, free, optimality = full, box.held(step, full), None, None
        active = count(held)
        if active:
            free = ~held
            g = without(g, held)
            descent = -g
        if not same(step, descent):
            # A tensor, also of few entries: NumPy warns where a dot overflows.
            optimality = norm(as_tensor(box.projected_gradient(step, g)))
        return cls(x, full, g, descent, low, high, free, active, optimality)

    def as_arrays(self) -> Room:
        """The same as arrays."""
        return self if type(self.x) is np.ndarray else self._mapped(as_array)

    def as_tensors(self) -> Room:
        """The same as tensors."""
        return self._mapped(as_tensor)

    def _mapped(self, function: Callable[[Vector], Vector]) -> Room:
        vectors = zip(self._fields[:7], self[:7], strict=True)
        mapped: dict[str, Any] = {name: function(v) for name, v in vectors if v is not None}
        return self._replace(**mapped)

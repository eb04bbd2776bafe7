"""Which variables are free at a point of a box, and how far each may move."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from firstish.bounds.box import Box
from firstish.linalg import Vector, as_tensor, clip, count, library, norm, same


class Room(NamedTuple):
    """The gradient of the free variables and the room for a step; arrays if vectors are short.

    Attributes:
        g: the gradient, 0 for held variables.
        descent: minus g.
        low: the least step that stays inside, in every entry.
        high: the greatest.
        free: the mask of the variables that are not held; None if none is held.
        active: how many are held.
        optimality: the norm of the projected gradient; None if it is that of g.
    """

    g: Vector
    descent: Vector
    low: Vector
    high: Vector
    free: Vector | None
    active: int
    optimality: float | None

    @classmethod
    def at(cls, x: Tensor, grad: Tensor, box: Box) -> Room:
        """The room at x, with the gradient there."""
        if not box.is_short:
            return cls._at(x, grad, box)
        with np.errstate(all="ignore"):  # as torch does
            return cls._at(x.numpy(), grad.numpy(), box)

    @classmethod
    def _at(cls, x: Vector, full: Vector, box: Box) -> Room:
        low, high = box.room(x)
        g, descent, free, active = full, -full, None, 0
        step = clip(descent, low, high)
        uncut = same(step, descent)
        if not uncut or box.fixed is not None:
            held = box.held(step, full)
            active = count(held)
            if active:
                free = ~held
                g = library(full).where(held, 0.0, full)
                descent = -g
                uncut = same(step, descent)
        optimality = None if uncut else norm(box.projected_gradient(step, full))
        return cls(g, descent, low, high, free, active, optimality)

    def as_tensors(self) -> Room:
        """The same as tensors."""
        free = None if self.free is None else as_tensor(self.free)
        g, descent, low, high = map(as_tensor, (self.g, self.descent, self.low, self.high))
        return Room(g, descent, low, high, free, self.active, self.optimality)

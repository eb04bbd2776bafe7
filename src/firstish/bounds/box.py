"""The box l <= x <= u."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from firstish.linalg import Vector, as_tensor, clip, is_short, library, same, some

Ends = tuple[Vector | None, Vector | None]
"""The lower and the upper bounds; None if none of them is finite."""

CLOSE = 4  # units in the last place: a step to a bound may miss it by one


@dataclass(frozen=True, slots=True)
class Box:
    """The vectors x with lower <= x <= upper in every entry.

    Args:
        lower: the lower bounds; -inf where there is none.
        upper: the upper bounds; inf where there is none.

    Examples:
        >>> box = Box(torch.zeros(3), torch.tensor([1.0, 2.0, torch.inf]))
        >>> box.project(torch.tensor([-1.0, 1.5, 9.0])).tolist()
        [0.0, 1.5, 9.0]
    """

    lower: Tensor
    upper: Tensor
    is_short: bool = field(init=False, repr=False)  # then arrays are quicker than tensors
    fixed: Vector | None = field(init=False, repr=False)  # where both are equal, if they are at all
    _ends: Ends = field(init=False, repr=False)  # as arrays if short
    _inner: Ends = field(init=False, repr=False)  # a few ulps inside of them
    _outer: Ends = field(init=False, repr=False)  # and outside

    def __post_init__(self) -> None:
        short = is_short(self.lower)
        lower, upper = (v.numpy() if short else v for v in (self.lower, self.upper))
        equal = lower == upper
        low, high = (v if some(library(v).isfinite(v)) else None for v in (lower, upper))
        with np.errstate(all="ignore"):  # as torch does
            (low_up, low_down), (high_up, high_down) = _around(low), _around(high)
        for name, value in (
            ("is_short", short),
            ("fixed", equal if some(equal) else None),
            ("_ends", (low, high)),
            ("_inner", (low_up, high_down)),
            ("_outer", (low_down, high_up)),
        ):
            object.__setattr__(self, name, value)

    def project(self, x: Tensor) -> Tensor:
        """The point of the box nearest to x; its entries at a bound equal the bound exactly."""
        return torch.clamp(x, self.lower, self.upper)

    def rounded(self, x: Tensor) -> Tensor:
        """The projection of x, with entries on the bound that are a few ulps inside of it.

        x + (bound - x) need not be the bound in floating point. A variable left an ulp inside would
        neither be held nor have a gradient of 0. The tensor x itself if no entry has to move.
        """
        (low, high), (lower, upper) = self._inner, self._ends
        v: Vector = x.numpy() if self.is_short else x
        if low is None and high is None:
            return x
        if not self.is_short and same(clip(v, low, high), v):
            return x
        where, found = library(v).where, v
        if low is not None and some(near := v <= low):
            found = where(near, lower, found)
        if high is not None and some(near := v >= high):
            found = where(near, upper, found)
        return x if found is v or same(found, v) else as_tensor(found)

    def cuts(self, x: Tensor) -> bool:
        """True if x is outside by more than rounding."""
        v: Vector = x.numpy() if self.is_short else x
        low, high = self._outer
        return (low is not None and some(v < low)) or (high is not None and some(v > high))

    def contains(self, x: Tensor) -> bool:
        """True if x is inside or on the boundary."""
        return torch.equal(self.project(x), x)

    def room(self, x: Vector) -> Ends:
        """The least and the greatest step from x that stays inside; None if there is no bound."""
        lower, upper = self._ends
        return None if lower is None else lower - x, None if upper is None else upper - x

    def held(self, step: Vector, g: Vector) -> Vector:
        """The entries at a bound out of which -g leads, and those whose bounds are equal.

        `step` is -g, cut to the room at the point: 0 where g is not. At a point that satisfies the
        first-order conditions all other entries of g are 0.
        """
        held = (step == 0) & (g != 0)
        return held if self.fixed is None else held | self.fixed

    @staticmethod
    def projected_gradient(step: Vector, g: Vector) -> Vector:
        """min(|g_i|, d_i max(1, |g_i|)), with d_i the length of the projected step P(x - g) - x.

        It is 0 where the first-order conditions hold, and |g_i| where no bound cuts the step. Where
        one does, d_i is the distance to it, and d_i alone would be small for every x in small
        units. |g_i| d_i is the decrease of f on the way to the bound, to first order. g is 0 for
        held variables, also for a root whose slope is infinite at its bound.
        """
        size = abs(g)
        distance = clip(abs(step), None, 1.0)  # more makes no difference, and might overflow
        return library(g).minimum(size, distance * clip(size, 1.0, None))

    def checksum(self) -> int:
        """A number that differs between boxes."""
        return zlib.crc32(torch.cat([self.lower, self.upper]).cpu().numpy().tobytes())


def _around(bound: Vector | None) -> Ends:
    """The bounds a few units in the last place higher, and lower; infinite ones stay."""
    if bound is None:
        return None, None
    xp = library(bound)
    few = xp.where(xp.isinf(bound), 0.0, abs(bound)) * (CLOSE * xp.finfo(bound.dtype).eps)
    return bound + few, bound - few

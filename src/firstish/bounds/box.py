"""The box l <= x <= u."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from firstish.linalg import Vector, as_tensor, clip, is_short, library, same

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
    _ends: tuple[Vector, Vector] = field(init=False, repr=False)  # both, as arrays if short
    _inner: tuple[Vector, Vector] = field(init=False, repr=False)  # a few ulps inside of them

    def __post_init__(self) -> None:
        short = is_short(self.lower)
        inner = self.lower + self._ulps(self.lower), self.upper - self._ulps(self.upper)
        equal = self.lower == self.upper
        vectors = [v.numpy() if short else v for v in (self.lower, self.upper, *inner, equal)]
        for name, value in (
            ("is_short", short),
            ("fixed", vectors[4] if bool(equal.any()) else None),
            ("_ends", (vectors[0], vectors[1])),
            ("_inner", (vectors[2], vectors[3])),
        ):
            object.__setattr__(self, name, value)

    def project(self, x: Tensor) -> Tensor:
        """The point of the box nearest to x; its entries at a bound equal the bound to the bit."""
        return torch.clamp(x, self.lower, self.upper)

    def rounded(self, x: Tensor) -> Tensor:
        """The projection of x, with entries on the bound that are a few ulps inside of it.

        x + (bound - x) need not be the bound in floating point. A variable left an ulp inside would
        neither be held nor have a gradient of 0. The tensor x itself if no entry has to move.
        """
        (low, high), (lower, upper) = self._inner, self._ends
        v: Vector = x.numpy() if self.is_short else x
        if same(clip(v, low, high), v):
            return x
        where = library(v).where
        found = where(v <= low, lower, where(v >= high, upper, v))
        return x if same(found, v) else as_tensor(found)

    def cuts(self, straight: Tensor, x: Tensor) -> bool:
        """True if x, which `rounded` made of `straight`, differs by more than rounding."""
        return bool(((x - straight).abs() > self._ulps(x)).any())

    @staticmethod
    def _ulps(bound: Tensor) -> Tensor:
        """A few units in the last place of each entry; 0 for an infinite one."""
        return CLOSE * torch.finfo(bound.dtype).eps * torch.where(bound.isinf(), 0.0, bound.abs())

    def contains(self, x: Tensor) -> bool:
        """True if x is inside or on the boundary."""
        return torch.equal(self.project(x), x)

    def room(self, x: Vector) -> tuple[Vector, Vector]:
        """The least and the greatest step from x that stays inside, in every entry."""
        lower, upper = self._ends if type(x) is np.ndarray else (self.lower, self.upper)
        return lower - x, upper - x

    def held(self, step: Vector, g: Vector) -> Vector:
        """The entries at a bound out of which -g leads, and those whose bounds are equal.

        At a point that satisfies the first-order conditions all other entries of g are 0.

        Args:
            step: the projected one, P(x - g) - x.
            g: the gradient.
        """
        held = (step == 0) & (g != 0)
        return held if self.fixed is None else held | library(held).asarray(self.fixed)

    @staticmethod
    def projected_gradient(step: Vector, g: Vector) -> Vector:
        """min(|g_i|, d_i max(1, |g_i|)), with d_i the length of the projected step P(x - g) - x.

        It is 0 where the first-order conditions hold, and |g_i| where no bound cuts the step. Where
        one does, d_i is the distance to it, and d_i alone would be small for every x in small
        units. |g_i| d_i is the decrease of f on the way to the bound, to first order.
        """
        size = abs(g)
        # Finite, because 0 times the infinite slope of a root at its bound is 0 here.
        weight = size.clip(1.0, library(g).finfo(g.dtype).max)
        return library(g).minimum(size, abs(step) * weight)

    def checksum(self) -> int:
        """A number that differs between boxes."""
        return zlib.crc32(torch.cat([self.lower, self.upper]).cpu().numpy().tobytes())

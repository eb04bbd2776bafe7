"""The direction of the lazy step between bounds.

It is -B g over the variables that are free to move, with B from their part of the curvature pairs:
the inverse of the free block of the Hessian, not a block of the inverse. Besides the variables held
at their bounds (`bounds/bounded.py`) two kinds are not free, for the others must not count on them:

- Those so close to a bound that a gradient step, scaled by the newest pair, reaches it (Bertsekas'
  epsilon, here in the units of x): they go to the bound.
- Those at a bound out of which -B g leads, although -g does not: they stay.

Where the bounds cut away what is downhill of a step, so that less than a tenth of the decrease to
first order is left, all variables that they cut are treated alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from firstish.bounds.bounded import BoundedPoint
from firstish.bounds.room import Room
from firstish.linalg import Array, Vector, clip, count, dot, dots, library, on_cpu, same
from firstish.methods.quasi_newton.curvature_pairs import LEAST, FreePart, Pairs
from firstish.methods.quasi_newton.inverse_hessian import InverseHessian

ENOUGH = 0.1  # of the decrease to first order, which a step that bounds have cut must keep
ROUNDS = 10  # in which further variables are excluded; the line search copes with what is left
WORK = 10**7  # multiplications that a new `FreeProducts` may cost
CHEAP = 10**5  # multiplications that take no longer than to keep account of them


@dataclass(frozen=True, slots=True)
class FreeProducts:
    """R of `Pairs` over the free variables, from one iteration to the next.

    A new pair is a new row; a variable that is held or released is a product of its columns of S
    and Y. Both cost less than all products again, except for few pairs of short vectors.

    Args:
        free: 1 for the free variables, 0 for the others, in the dtype of S.
        table: the shares and, below them, R.
    """

    free: Tensor
    table: Array

    @property
    def shares(self) -> Array:
        """|s|^2 of each pair over these variables; over all it is 1."""
        shares: Array = self.table[0]
        return shares

    @property
    def R(self) -> Array:
        """Of the newest pairs: R[j, i] = <s_i, y_j> over these variables for i <= j."""
        R: Array = self.table[1:]
        return R

    @classmethod
    def over(cls, free: Tensor, pairs: Pairs, known: FreeProducts | None) -> FreeProducts:
        """The products over these variables, from those known over others, over all or over none.

        The fewest columns decide.
        """
        if _cheap(pairs):
            return cls._anew(free, pairs)
        size = int(free.sum())
        if known is not None:
            columns = (free - known.free.to(free.dtype)).nonzero()[:, 0]
            if len(columns) <= min(size, len(free) - size):
                return known._changed(free, columns, pairs)
        m, most = _affordable(pairs), float(2 * size > len(free))
        table = np.full((m + 1, m), most)
        table[1:] *= pairs.R[-m:, -m:]
        return cls(free, table)._changed(free, (free - most).nonzero()[:, 0], pairs)

    @classmethod
    def _anew(cls, free: Tensor, pairs: Pairs) -> FreeProducts:
        table = np.empty((len(pairs) + 1, len(pairs)))
        table[0] = dots(pairs.S.square(), free).numpy()
        table[1:] = on_cpu(torch.mm(pairs.Y * free, pairs.S.t())).numpy()
        return cls(free, table)

    def _changed(self, free: Tensor, columns: Tensor, pairs: Pairs) -> FreeProducts:
        """With these variables released or held."""
        if not len(columns):
            return self
        newest = slice(-len(self.R), None)
        S, Y = (rows[newest].index_select(1, columns) for rows in (pairs.S, pairs.Y))
        signs = free[columns].mul_(2).sub_(1)  # 1 if it is free now, -1 if it is held
        table = self.table.copy()
        table[1:] += on_cpu(torch.mm(Y.mul_(signs), S.t())).numpy()
        table[0] += dots(S.square_(), signs).numpy()
        return FreeProducts(free, table)

    def plus_newest(self, pairs: Pairs) -> FreeProducts | None:
        """With a row for the newest pair, which is not among these yet; None if that is no gain."""
        if _cheap(pairs):
            return None
        old = min(len(self.R), _affordable(pairs) - 1)
        first = len(self.R) - old
        free = self.free.to(pairs.S.dtype)
        S, s, y = pairs.S[-old - 1 :], pairs.S[-1], pairs.Y[-1]
        table = np.zeros((old + 2, old + 1))
        table[0, :old] = self.shares[first:]
        table[1:-1, :old] = self.R[first:, first:]
        table[0, old] = dot(s * free, s)
        table[-1] = dots(S, y * free).numpy()
        return FreeProducts(free, table)


def _cheap(pairs: Pairs) -> bool:
    return len(pairs) * pairs.S.numel() <= CHEAP


def _affordable(pairs: Pairs) -> int:
    return min(len(pairs), most_pairs(pairs.S.shape[1]))


def most_pairs(n: int) -> int:
    """How many of the newest pairs are used: as many as `WORK` allows for half of n variables."""
    return max(LEAST, math.isqrt(2 * WORK // max(1, n)))


def direction(
    point: BoundedPoint,
    pairs: Pairs | InverseHessian,
    self_scaled: bool,
    shorter: float,
    known: FreeProducts | None = None,
) -> tuple[Vector, FreeProducts | None]:
    """-shorter B g over the free variables, to the bound for those close to one; their products.

    An array if B is one.
    """
    dense = isinstance(pairs, InverseHessian)
    room = point.room.as_arrays() if dense else point.room.as_tensors()
    p, free = _to_close_bounds(room, pairs.newest_scale())
    v = room.descent if free is room.free else room.descent * free
    q, known = _over(free, v, pairs, self_scaled, known)
    if shorter != 1.0:
        q *= shorter
    for _ in range(ROUNDS):
        end = clip(q, room.low, room.high)
        if same(end, q):
            break
        cut = end != q
        excluded = cut & (end == 0)
        if not count(excluded):
            if dot(room.g, end) <= ENOUGH * dot(room.g, q):
                break
            excluded = cut
            there = library(end).where(cut & (room.g * end < 0), end, 0.0)
            p = there if p is None else p + there
        free = ~excluded if free is None else free & ~excluded
        q, known = _over(free, room.descent * free, pairs, self_scaled, known)
        q *= shorter
    return q if p is None else p + q, known


def _to_close_bounds(room: Room, scale: float) -> tuple[Vector | None, Vector | None]:
    """The step to the bound of each variable that is close to one, and the mask of the others."""
    step, free = room.descent * scale, room.free
    end = clip(step, room.low, room.high)
    if same(end, step):
        return None, free
    far = end == step
    return library(end).where(far, 0.0, end), far if free is None else free & far


def _over(
    free: Vector | None,
    v: Vector,
    pairs: Pairs | InverseHessian,
    self_scaled: bool,
    known: FreeProducts | None,
) -> tuple[Vector, FreeProducts | None]:
    """B v over these variables, for a v that is 0 for the others, and their products."""
    if isinstance(pairs, InverseHessian):
        return pairs.times(v, free), None
    if free is None:
        return pairs.times(v, self_scaled), None
    known = FreeProducts.over(free.to(pairs.S.dtype), pairs, known)
    part = FreePart.of(known.free, known.R, known.shares, torch.finfo(pairs.S.dtype).eps)
    if part is None:
        return v * pairs.newest_scale(), known
    newest = pairs.newest(len(known.R))
    assert newest is not None
    return newest.times(v, self_scaled, part), known

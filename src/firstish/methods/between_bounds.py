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

import torch
from torch import Tensor

from firstish.linalg import add, dot, dots
from firstish.methods.curvature_pairs import LEAST, Pairs
from firstish.objectives.base import Point

ENOUGH = 0.1  # of the decrease to first order, which a step that bounds have cut must keep
ROUNDS = 10  # in which further variables are excluded; the line search copes with what is left
WORK = 10**8  # multiplications that a new `FreeProducts` may cost


@dataclass(frozen=True, slots=True)
class FreeProducts:
    """R of `Pairs` over the free variables, from one iteration to the next.

    A new pair is a new row; a variable that is held or released is a product of its columns of S
    and Y. Both cost less than all products again.

    Args:
        free: 1 for the free variables, 0 for the others, in the dtype of S.
        R: of the newest pairs: R[j, i] = <s_i, y_j> over these variables for i <= j.
        shares: |s|^2 of each pair over these variables; over all it is 1.
    """

    free: Tensor
    R: Tensor
    shares: Tensor

    @classmethod
    def over(cls, free: Tensor, pairs: Pairs, known: FreeProducts | None) -> FreeProducts:
        """The products over these variables, from those known over others, over all or over none.

        The fewest columns decide.
        """
        size = int(free.sum())
        if known is not None:
            change = free - known.free.to(free.dtype)
            columns = change.nonzero()[:, 0]
            if len(columns) <= min(size, len(free) - size):
                return known._changed(free, change, columns, pairs)
        m, most = _affordable(pairs), 2 * size > len(free)
        R = pairs.R[-m:, -m:] if most else pairs.R.new_zeros(m, m)
        base = cls(free, R, R.new_full((m,), float(most)))
        change = free - 1 if most else free
        return base._changed(free, change, change.nonzero()[:, 0], pairs)

    def _changed(self, free: Tensor, change: Tensor, columns: Tensor, pairs: Pairs) -> FreeProducts:
        """With some variables released (the change of `free` is 1) and some held (it is -1)."""
        if not len(columns):
            return self
        newest = slice(-len(self.R), None)
        S, Y = (rows[newest].index_select(1, columns) for rows in (pairs.S, pairs.Y))
        signs = change[columns]
        more = torch.mm(Y.mul_(signs), S.t()).to("cpu", torch.float64)
        return FreeProducts(free, self.R + more, self.shares + dots(S.square_(), signs))

    def plus_newest(self, pairs: Pairs) -> FreeProducts:
        """With a row for the newest pair, which is not among these yet."""
        old = min(len(self.R), _affordable(pairs) - 1)
        first = len(self.R) - old
        R = self.R.new_zeros(old + 1, old + 1)
        R[:old, :old] = self.R[first:, first:]
        free = self.free.to(pairs.S.dtype)
        R[old] = dots(pairs.S[-old - 1 :], pairs.Y[-1] * free)
        share = dots(pairs.S[-1:].square(), free)
        return FreeProducts(free, R, torch.cat([self.shares[first:], share]))


def _affordable(pairs: Pairs) -> int:
    """How many of the newest pairs are used: as many as `WORK` allows for half of the variables."""
    return min(len(pairs), max(LEAST, math.isqrt(2 * WORK // max(1, pairs.S.shape[1]))))


def direction(
    point: Point,
    pairs: Pairs,
    self_scaled: bool,
    shorter: float,
    known: FreeProducts | None = None,
) -> tuple[Tensor, FreeProducts | None]:
    """-shorter B g over the free variables, to the bound for those close to one; their products."""
    g, x, box = point.grad, point.x, point.box
    assert box is not None
    p, free = _to_close_bounds(point, pairs)
    q, known = _over(free, g, pairs, self_scaled, known)
    q.mul_(shorter)
    for _ in range(ROUNDS):
        straight = x + q
        end = box.project(straight)
        if torch.equal(end, straight):
            break
        cut = end != straight
        excluded = cut & (end == x)
        if not excluded.any():
            room = end.sub_(x)
            if dot(g, room) <= ENOUGH * dot(g, q):
                break
            excluded = cut
            there = torch.where(cut & (g * room < 0), room, 0.0)
            p = there if p is None else p + there
        free = ~excluded if free is None else free & ~excluded
        q, known = _over(free, g, pairs, self_scaled, known)
        q.mul_(shorter)
    return q if p is None else p + q, known


def _to_close_bounds(point: Point, pairs: Pairs) -> tuple[Tensor | None, Tensor | None]:
    """The step to the bound of each variable that is close to one, and the mask of the others."""
    assert point.box is not None
    g, x, free = point.grad, point.x, point.free
    straight = add(x, g, -pairs.newest_scale())
    end = point.box.project(straight)
    if torch.equal(end, straight):
        return None, free
    far = end == straight
    return end.sub_(x).masked_fill_(far, 0.0), far if free is None else free & far


def _over(
    free: Tensor | None, g: Tensor, pairs: Pairs, self_scaled: bool, known: FreeProducts | None
) -> tuple[Tensor, FreeProducts | None]:
    """-B g over these variables, 0 for the others, and their products."""
    if free is None:
        return pairs.times(g, self_scaled).neg_(), None
    products = FreeProducts.over(free.to(pairs.S.dtype), pairs, known)
    here = pairs.over(products.free, products.R, products.shares, self_scaled)
    v = g * products.free
    if here is None:
        return v.mul_(-pairs.newest_scale()), products
    return here.times(v, self_scaled).neg_(), products

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

import torch
from torch import Tensor

from firstish.bounds.box import Box
from firstish.linalg import dot
from firstish.methods.curvature_pairs import Pairs
from firstish.objectives.base import Point

ENOUGH = 0.1  # of the decrease to first order, which a step that bounds have cut must keep
ROUNDS = 10  # in which further variables are excluded; the line search copes with what is left


def direction(point: Point, pairs: Pairs, self_scaled: bool) -> Tensor:
    """-B g over the free variables, and to the bound for those close to one."""
    if point.box is None:
        return pairs.times(point.grad, self_scaled).neg_()
    g, x, box = point.grad, point.x, point.box
    p, free = _to_close_bounds(x, g, box, pairs), point.free
    if p is not None:
        free = _without(free, p != 0)
    q = _over(free, g, pairs, self_scaled)
    for _ in range(ROUNDS):
        room = box.room(x, q)
        cut = (q != 0) & (room.abs() < q.abs())
        if not cut.any():
            break
        excluded = cut & (room == 0)
        if not excluded.any():
            if dot(g, torch.where(cut, room, q)) <= ENOUGH * dot(g, q):
                break
            excluded = cut
            there = torch.where(cut & (g * room < 0), room, 0.0)
            p = there if p is None else p + there
        free = _without(free, excluded)
        q = _over(free, g, pairs, self_scaled)
    return q if p is None else p + q


def _to_close_bounds(x: Tensor, g: Tensor, box: Box, pairs: Pairs) -> Tensor | None:
    """The step to the bound of each variable that is close to one; None if there is none."""
    step = g * -pairs.newest_scale()
    room = box.room(x, step)
    close = (step != 0) & (room.abs() <= step.abs())
    return torch.where(close, room, 0.0) if close.any() else None


def _without(free: Tensor | None, excluded: Tensor) -> Tensor:
    return ~excluded if free is None else free & ~excluded


def _over(free: Tensor | None, g: Tensor, pairs: Pairs, self_scaled: bool) -> Tensor:
    """-B g over these variables, 0 for the others."""
    if free is None:
        return pairs.times(g, self_scaled).neg_()
    here = pairs.over(free)
    v = g * free
    return v.mul_(-pairs.newest_scale()) if here is None else here.times(v, self_scaled).neg_()

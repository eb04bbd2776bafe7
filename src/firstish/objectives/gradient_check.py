"""The gradient at a point against differences of f there, at the cost of a few values."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from firstish.linalg import dot
from firstish.objectives.base import Point

_SHARE = 1e-3  # of the whole change of f: an error below it is not reported
_LENGTHS = 3  # of differences that are tried
_AGREEMENT = 0.1  # of errors at several differences, per unit of length; rounding does not agree


class WrongEntry(NamedTuple):
    """An entry of the gradient that contradicts f."""

    entry: int
    gradient: float
    difference: float


def wrong_entry(point: Point) -> WrongEntry | None:
    """The entry of the gradient with the largest error; None if differences of f show no error.

    One central difference along the signs of g, in which no two entries cancel: 2 values, and at
    most 4 more where curvature hides the error. If it is not a matter of rounding or a kink, and is
    proportional to the difference (4 values more), halving finds the entry: 2 values for each. f is
    not evaluated outside of the bounds.
    """
    x, g = point.x, point.full_grad
    if type(x) is not Tensor or point.by_differences:  # a sharded vector has no single entries
        return None
    h = (point.eps ** (1 / 3) * x.abs().clamp(min=1)).copysign(g)
    if point.box is not None:
        inside = point.box.lower <= x - h.abs(), x + h.abs() <= point.box.upper
        h = h * (inside[0] & inside[1])
    for _ in range(_LENGTHS):
        error, second = _error(point, g, h)
        linear = 2 * dot(g, h)
        flat = second == 0 and error == -linear  # then f may be lost in the rounding of its terms
        size = max(abs(point.value), 1.0) if flat else abs(point.value)
        if not abs(error) > max(_SHARE * linear, 1000 * point.eps * size):
            return None
        if abs(error) > 2 * second:
            break
        h = h / 16  # curvature has less of a share in a shorter difference
    else:
        return None  # a kink: its share stays the same
    for part in (0.5, 0.25):
        shorter, _ = _error(point, g, part * h)
        if not abs(shorter / part - error) <= _AGREEMENT * abs(error):
            return None
    return _located(point, g, h, error)


def _error(point: Point, g: Tensor, h: Tensor) -> tuple[float, float]:
    """f(x + h) - f(x - h) less 2 <g, h>, and the second difference."""
    ahead, behind = (point.at(point.x + s * h, 0).value for s in (1, -1))
    return ahead - behind - 2 * dot(g, h), abs(ahead + behind - 2 * point.value)


def _located(point: Point, g: Tensor, h: Tensor, error: float) -> WrongEntry:
    entries = h.nonzero().flatten()
    while len(entries) > 1:
        half, rest = entries.tensor_split(2)
        part = torch.zeros_like(h).index_copy(0, half, h[half])
        first, _ = _error(point, g, part)
        in_half = abs(first) >= abs(error - first)
        entries, error = (half, first) if in_half else (rest, error - first)
    i = int(entries)
    ours, step = g[i].item(), h[i].item()
    return WrongEntry(i, ours, ours + error / (2 * step))

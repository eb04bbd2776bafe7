"""Entries of x on which f depends, although its gradient is exactly 0 there.

A part of f that was computed outside of autograd, by `.item()`, `float()`, `math` or NumPy, has no
gradient: a run would end with success where f can still fall.
"""

from __future__ import annotations

import torch
from torch import Tensor

from firstish.objectives.base import Point

_NOISE = 1e4  # in units of the rounding of f: a smaller change of f shows nothing


def detached_entry(point: Point) -> int | None:
    """Such an entry; None if there is none, or if all of them are close to a bound.

    Where some entries of the gradient are 0, 4 values; to find the entry, 2 more for each halving.
    """
    x, g = point.x, point.full_grad
    if type(x) is not Tensor or point.by_differences:
        return None
    h = point.eps ** (1 / 3) * x.abs().clamp(min=1) * (g == 0)
    if point.box is not None:
        h = h * ((point.box.lower <= x - h) & (x + h <= point.box.upper))
    if not h.any() or not _is_slope(point, h):
        return None
    entries = h.nonzero().flatten()
    while len(entries) > 1:
        half, rest = entries.tensor_split(2)
        part = torch.zeros_like(h).index_copy(0, half, h[half])
        entries = half if _is_slope(point, part) else rest
    return int(entries)


def _is_slope(point: Point, h: Tensor) -> bool:
    """True if f(x + h) - f(x - h) is linear in h, and so neither a kink nor noise."""
    whole, second = _differences(point, h)
    if not abs(whole) > max(_NOISE * point.eps * max(1.0, abs(point.value)), 2 * abs(second)):
        return False
    half, _ = _differences(point, h / 2)
    return abs(half / whole - 0.5) < 0.1  # 1/8 where only the third derivative is not 0


def _differences(point: Point, h: Tensor) -> tuple[float, float]:
    ahead, behind = (point.at(point.x + s * h, 0).value for s in (1, -1))
    return ahead - behind, ahead + behind - 2 * point.value

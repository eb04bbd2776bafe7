"""Gradients that are exactly 0 where f is not stationary, so that a run would end with success.

A part of f that was computed outside of autograd, by `.item()`, `float()`, `math` or NumPy, has no
gradient. A piecewise constant f has one of 0 almost everywhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

from firstish.interface.warn import warn
from firstish.objectives.base import Point

_DETACHED = (
    "its gradient there is exactly 0, so that `minimize` could not optimize it. A part of f is "
    "computed outside of autograd: use torch's functions instead of `.item()`, `float()`, "
    "`.detach()`, `math` or NumPy."
)
_NOISE = 1e4  # in units of the rounding of f: a smaller change of f shows nothing


def warn_of_zeros(point: Point, moved: bool) -> None:
    """Warn if entries of the gradient are exactly 0 although f depends on them.

    Or all of them because f is constant, unless x was moved there: a loss may fall to 0.
    """
    if type(point.x) is not Tensor:
        return
    entry = detached_entry(point)
    if entry is not None:
        why = "`jac` returns exactly 0 there. Correct it." if point.by_hand else _DETACHED
        warn(f"f changes with entry {entry} of x, but {why}")
    elif not moved and not point.full_grad.any() and _is_constant(point):
        difference = "larger differences (`eps=` of `scipy_method`), " * point.by_differences
        warn(
            "The gradient is exactly 0 and f does not change with x at all near the result: this "
            "is no minimum that was found. If f is rounded, integer-valued or piecewise constant, "
            f"use a smooth f, {difference}or a method without derivatives (SciPy's "
            "'Nelder-Mead', `differential_evolution`)."
        )


def _is_constant(point: Point) -> bool:
    """True if f is the same bit for bit at x and at two points near it: 2 values."""
    h = point.eps ** (1 / 4) * point.x.abs().clamp(min=1)
    if point.box is not None:
        h = h * ((point.box.lower <= point.x - h) & (point.x + h <= point.box.upper))
    return bool(h.any()) and _differences(point, h) == (0.0, 0.0)


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

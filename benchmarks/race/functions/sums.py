"""Sums of squares."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

Residuals = Callable[[Tensor], Tensor]


def squares(residuals: Residuals) -> Callable[[Tensor], Tensor]:
    """f = |r|² of a vector of residuals r."""

    def f(x: Tensor) -> Tensor:
        r = residuals(x)
        return r.dot(r)

    return f


@cache
def count(n: int, start: int = 1) -> Tensor:
    """start, start + 1, ... in float64, n of them; not to be written to."""
    return torch.arange(start, start + n, dtype=torch.float64)

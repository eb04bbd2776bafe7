"""What the methods share: settings of the curvature cases, and the curvature along a direction."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor

from firstish.errors import NonFiniteError
from firstish.line_search import Armijo, NonMonotone
from firstish.objectives.base import Point
from firstish.scaling import Angle
from firstish.vectors import norm_and_cosine

LimitedScale = float | Literal["1/sigma"] | None


def check_cases(call: str, sigma: float, s_lpc: LimitedScale, s_nc: float) -> None:
    """Raise unless 0 <= sigma, 0 < s_nc and 0 < s_lpc <= 1/sigma, all finite."""
    if not 0 <= sigma < math.inf:
        raise ValueError(f"`{call}(sigma=...)` must be at least 0 and finite, got {sigma}.")
    if not 0 < s_nc < math.inf:
        raise ValueError(f"`{call}(s_nc=...)` must be positive and finite, got {s_nc}.")
    if s_lpc is None:
        return
    if isinstance(s_lpc, str):
        if s_lpc != "1/sigma":
            raise ValueError(f"`{call}(s_lpc=...)` must be a number or '1/sigma', got {s_lpc!r}.")
        if sigma == 0:
            raise ValueError(
                f"`{call}(s_lpc='1/sigma')` needs sigma > 0, got sigma=0. "
                "Pass a number, or leave it out."
            )
    elif not (0 < s_lpc < math.inf and s_lpc * sigma <= 1):
        raise ValueError(
            f"`{call}(s_lpc=...)` must lie in (0, 1/sigma], sigma={sigma}, got {s_lpc}."
        )


def check_memory(call: str, memory: int) -> None:
    """Raise unless it counts at least one step."""
    if isinstance(memory, bool) or not isinstance(memory, int):
        raise TypeError(f"`{call}(memory=...)` must be an int, got {memory!r}.")
    if memory < 1:
        raise ValueError(f"`{call}(memory=...)` must be at least 1, got {memory}.")


def limited_scale(sigma: float, s_lpc: LimitedScale) -> float:
    """The scale of the LPC case."""
    if isinstance(s_lpc, str):
        return 1 / sigma
    if s_lpc is not None:
        return s_lpc
    return 1.0 if sigma <= 1 else 1 / sigma


def angle_along(point: Point, v: Tensor, v_norm: float) -> Angle:
    """The angle between v and Hv, with |v| in the place of |g|; 2 oracle calls."""
    product = point.hvp(v)
    length, cosine = norm_and_cosine(product.vector, v, v_norm)
    error = product.relative_error * length / v_norm + product.absolute_error
    return Angle(v_norm, length, cosine, error)


def require_finite(angle: Angle, product: str = "Hg") -> None:
    """Raise if the product is not finite; in the middle of a run that is how the run ends."""
    if not math.isfinite(angle.product_norm):
        raise NonFiniteError(
            f"The Hessian-vector product {product} is not finite at the starting point although f "
            "and its gradient are. Look for a root at 0 (such as sqrt or norm), or start elsewhere."
        )


def check_monotone(call: str, line_search: Armijo) -> None:
    """Raise for a search that needs a mean of f which the method does not keep."""
    if isinstance(line_search, NonMonotone):
        raise TypeError(
            f"`{call}(line_search=NonMonotone(...))` is impossible: its steps are made for alpha "
            "= 1. Use `Armijo(...)`, or `ScaledGradient(line_search=NonMonotone(...))`."
        )

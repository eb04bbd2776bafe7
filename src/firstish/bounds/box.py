"""The box l <= x <= u, and the forms in which users give it."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


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

    def project(self, x: Tensor) -> Tensor:
        """The point of the box nearest to x; its entries at a bound equal the bound to the bit."""
        return torch.clamp(x, self.lower, self.upper)

    def contains(self, x: Tensor) -> bool:
        """True if x is inside or on the boundary."""
        return bool(((x >= self.lower) & (x <= self.upper)).all())

    def held(self, x: Tensor, g: Tensor) -> Tensor:
        """The entries at a bound out of which the step -g leads, and those whose bounds are equal.

        At a point that satisfies the first-order conditions all other entries of g are 0.
        """
        low, high = x == self.lower, x == self.upper
        return (low & (g > 0)) | (high & (g < 0)) | (low & high)

    def optimality(self, x: Tensor, g: Tensor) -> Tensor:
        """P(x - g) - x, which is 0 where the first-order conditions hold."""
        return self.project(x - g).sub_(x)

    def checksum(self) -> int:
        """A number that differs between boxes."""
        return zlib.crc32(torch.cat([self.lower, self.upper]).cpu().numpy().tobytes())

    def room(self, x: Tensor, p: Tensor) -> Tensor:
        """The distance, with the sign of p, to the bound that each entry of p leads to."""
        return torch.where(p < 0, self.lower - x, self.upper - x)


def box_of(bounds: Any, vector_of: Callable[[Any, str, float], Tensor], call: str) -> Box | None:
    """The box of a user's bounds; None if none of them is finite.

    Args:
        bounds: a tuple `(lower, upper)`, SciPy's `Bounds`, or a list of pairs, one for each entry
            of x. None, and -inf or inf, where there is no bound.
        vector_of: the vector of a tree shaped like x, of that name, with that number for None.
        call: the call to name in errors.
    """
    lower, upper = ends_of(bounds, call)
    box = Box(
        vector_of(lower, f"{call}(bounds=...) lower", -math.inf),
        vector_of(upper, f"{call}(bounds=...) upper", math.inf),
    )
    if isinstance(bounds, list) and len(bounds) != len(box.lower):
        raise ValueError(
            f"`{call}(bounds=...)` has {len(bounds)} pairs, but x has {len(box.lower)} entries."
        )
    _check(box, call)
    finite = torch.isfinite(box.lower).any() or torch.isfinite(box.upper).any()
    return box if finite else None


def ends_of(bounds: Any, call: str) -> tuple[Any, Any]:
    """The lower and the upper bounds of a user."""
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        return bounds.lb, bounds.ub
    if isinstance(bounds, tuple) and len(bounds) == 2:
        return bounds
    if isinstance(bounds, list) and all(
        isinstance(pair, tuple | list) and len(pair) == 2 for pair in bounds
    ):
        lower = [-math.inf if a is None else a for a, _ in bounds]
        return lower, [math.inf if b is None else b for _, b in bounds]
    raise ValueError(
        f"`{call}(bounds=...)` must be a tuple `(lower, upper)`, SciPy's `Bounds`, or a list of "
        f"pairs, one for each entry of x; got {bounds!r}."
    )


def _check(box: Box, call: str) -> None:
    wrong = ~(box.lower <= box.upper)  # also for nan
    if wrong.any():
        i = int(wrong.nonzero()[0, 0])
        raise ValueError(
            f"`{call}(bounds=...)` has the bounds {float(box.lower[i])} and "
            f"{float(box.upper[i])} for entry {i} of x: the lower one must not be above the upper "
            "one."
        )
    if (box.lower == math.inf).any() or (box.upper == -math.inf).any():
        raise ValueError(f"`{call}(bounds=...)` excludes every number: inf below or -inf above.")

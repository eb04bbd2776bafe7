"""The box l <= x <= u."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

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
    fixed: Tensor | None = field(init=False, repr=False)  # where both are equal, if they are at all

    def __post_init__(self) -> None:
        fixed = self.lower == self.upper
        object.__setattr__(self, "fixed", fixed if bool(fixed.any()) else None)

    def project(self, x: Tensor) -> Tensor:
        """The point of the box nearest to x; its entries at a bound equal the bound to the bit."""
        return torch.clamp(x, self.lower, self.upper)

    def contains(self, x: Tensor) -> bool:
        """True if x is inside or on the boundary."""
        return torch.equal(self.project(x), x)

    def held(self, x: Tensor, g: Tensor) -> Tensor | None:
        """The entries at a bound out of which the step -g leads, and those whose bounds are equal.

        None if the step -g stays inside, so that there are none. At a point that satisfies the
        first-order conditions all other entries of g are 0.
        """
        straight = x - g
        end = self.project(straight)
        if self.fixed is None and torch.equal(end, straight):
            return None
        held = (end == x) & (straight != x)
        return held if self.fixed is None else held | self.fixed

    def optimality(self, x: Tensor, g: Tensor) -> Tensor:
        """P(x - g) - x, which is 0 where the first-order conditions hold."""
        return self.project(x - g).sub_(x)

    def checksum(self) -> int:
        """A number that differs between boxes."""
        return zlib.crc32(torch.cat([self.lower, self.upper]).cpu().numpy().tobytes())

"""The box l <= x <= u."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

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

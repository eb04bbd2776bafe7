"""The penalty weight_decay/2 |x|² and its derivatives."""

from __future__ import annotations

from torch import Tensor

from firstish._validate import check_nonnegative
from firstish.linalg import dot


class L2Penalty:
    """The penalty weight_decay/2 |x|², over all entries of x or some of them.

    Args:
        weight_decay: at least 0 and finite.
        call: the call to name in errors.
        mask: 1 for the entries that are penalised and 0 for the others; None for all.
    """

    def __init__(self, weight_decay: float, call: str, mask: Tensor | None = None) -> None:
        check_nonnegative(call, "weight_decay", weight_decay)
        self.weight_decay = weight_decay
        self.mask = mask

    def value(self, x: Tensor) -> float:
        """weight_decay/2 |x|²."""
        return self.weight_decay / 2 * dot(x, self._penalised(x)) if self.weight_decay else 0.0

    def plus_derivative(self, vector: Tensor, of: Tensor) -> Tensor:
        """The vector plus weight_decay times `of`: x for a gradient, v for a product with v."""
        if not self.weight_decay:
            return vector
        return vector.add(self._penalised(of), alpha=self.weight_decay)

    def _penalised(self, x: Tensor) -> Tensor:
        return x if self.mask is None else x * self.mask

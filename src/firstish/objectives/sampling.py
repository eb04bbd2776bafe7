"""Which rows a sub-sampled Hessian uses: with replacement, drawn anew at each point."""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from firstish.theory import hessian_sample_size


@dataclass(frozen=True, slots=True, kw_only=True)
class HessianSample:
    """A sample large enough that |(H~ - H)g| <= error |g| with probability 1 - failure_probability.

        m = ceil( L1max^2 (1 + sqrt(8 log(1/delta)))^2 / D^2 )

    Args:
        error: D.
        failure_probability: delta, for one iteration.
        max_lipschitz: L1max, with |H_i g| <= L1max |g| for every row; `estimate_max_lipschitz`
            looks at the data for it.

    Examples:
        >>> HessianSample(error=0.5, failure_probability=0.1, max_lipschitz=1.0).size(10_000)
        113
    """

    error: float
    failure_probability: float
    max_lipschitz: float

    def __post_init__(self) -> None:
        self.size(1)  # refuses what makes no sense

    def size(self, rows: int) -> int:
        """The sample size for so many rows; `rows` itself where sampling saves nothing."""
        return hessian_sample_size(
            error=self.error,
            failure_probability=self.failure_probability,
            max_lipschitz=self.max_lipschitz,
            n=rows,
        )


SampleSize = int | float | HessianSample


def check_sample(sample: SampleSize | None, call: str) -> None:
    """Refuse what is neither a count, nor a share, nor a `HessianSample`."""
    if sample is None or isinstance(sample, HessianSample):
        return
    if isinstance(sample, bool) or not isinstance(sample, (int, float)):
        raise TypeError(
            f"`{call}(hessian_sample=...)` must be a count, a share of the rows or a "
            f"`HessianSample`, got {sample!r}."
        )
    good = sample >= 1 if isinstance(sample, int) else 0 < sample <= 1
    if not good:
        raise ValueError(
            f"`{call}(hessian_sample=...)` must be a count of at least 1 or a share in (0, 1], "
            f"got {sample}."
        )


def sample_size(sample: SampleSize, rows: int) -> int:
    """How many rows to draw of so many."""
    if isinstance(sample, HessianSample):
        return sample.size(rows)
    if isinstance(sample, int):
        return min(sample, rows)
    return min(rows, math.ceil(sample * rows))


def draw(seed: int, value: float, grad_norm: float, size: int, rows: int) -> Tensor:
    """`size` of the numbers below `rows`, with replacement.

    The generator is seeded by the seed and by f and |g| at the point, which differ from one
    iterate to the next. So the draw needs no state: a resumed run and every process of a group draw
    the same.
    """
    key = hashlib.blake2b(struct.pack("<qdd", seed, value, grad_norm), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key, "little") % 2**63)
    return torch.randint(rows, (size,), generator=generator)

"""The sample of a sub-sampled Hessian: its size, and rows drawn with replacement at each point."""

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
        max_lipschitz: L1max, with |H_i g| <= L1max |g| for every row; see
            `estimate_max_lipschitz`.

    Examples:
        >>> HessianSample(error=0.5, failure_probability=0.1, max_lipschitz=1.0).size(10_000)
        113
    """

    error: float
    failure_probability: float
    max_lipschitz: float

    def __post_init__(self) -> None:
        self.size(1)  # raises if an argument is out of range

    def size(self, rows: int) -> int:
        """The sample size for a data set of `rows` rows; `rows` if sampling saves nothing."""
        return hessian_sample_size(
            error=self.error,
            failure_probability=self.failure_probability,
            max_lipschitz=self.max_lipschitz,
            n=rows,
        )


SampleSize = int | float | HessianSample


def check_sample(sample: SampleSize | None, call: str) -> None:
    """Raise unless `sample` is None, a count, a fraction or a `HessianSample`."""
    if sample is None or isinstance(sample, HessianSample):
        return
    if isinstance(sample, bool) or not isinstance(sample, (int, float)):
        raise TypeError(
            f"`{call}(hessian_sample=...)` must be a count, a fraction of the rows or a "
            f"`HessianSample`, got {sample!r}."
        )
    good = sample >= 1 if isinstance(sample, int) else 0 < sample <= 1
    if not good:
        raise ValueError(
            f"`{call}(hessian_sample=...)` must be a count of at least 1 or a fraction in (0, 1], "
            f"got {sample}."
        )


def sample_size(sample: SampleSize, rows: int) -> int:
    """The number of rows to draw from a data set of `rows` rows."""
    if isinstance(sample, HessianSample):
        return sample.size(rows)
    if isinstance(sample, int):
        return min(sample, rows)
    return min(rows, math.ceil(sample * rows))


def draw(seed: int, value: float, grad_norm: float, size: int, rows: int) -> Tensor:
    """The indices of `size` rows, drawn with replacement.

    The generator is seeded by the seed and by f and |g| at the point, which differ between
    iterates. So the draw needs no state: a resumed run and all processes draw the same rows.
    """
    key = hashlib.blake2b(struct.pack("<qdd", seed, value, grad_norm), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key, "little") % 2**63)
    return torch.randint(rows, (size,), generator=generator)

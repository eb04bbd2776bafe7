"""The rows a problem uses, and its precision."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from firstish.problems.base import Options


def first_rows(total: int, options: Options, name: str) -> int:
    """The number of rows to use: `options.subset`, or all.

    Args:
        total: the number of rows there are.
        options: sets `subset`.
        name: of the problem, for the error.
    """
    if options.subset is None:
        return total
    if options.subset > total:
        raise ValueError(
            f"`subset` (`--subset` of the command) is {options.subset:,} rows, but {name} has "
            f"{total:,}. Omit it to use all of them."
        )
    return options.subset


def mixed_rows(total: int, options: Options, name: str) -> NDArray[np.intp]:
    """The rows to use, the first of a fixed permutation: for files sorted by class.

    The permutation does not depend on the seed: every run of a problem uses the same rows, and a
    small subset is contained in a larger one.
    """
    count = first_rows(total, options, name)
    # RandomState, because NumPy guarantees that its stream never changes.
    return np.random.RandomState(0).permutation(total)[:count]


def precision(options: Options, own: torch.dtype) -> torch.dtype:
    """The dtype to compute in: that of the options, or the problem's own."""
    dtype = own if options.dtype is None else options.dtype
    if not dtype.is_floating_point:
        raise TypeError(f"`Options(dtype=...)` must be floating-point, got {dtype}.")
    return dtype

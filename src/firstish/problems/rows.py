"""Which rows a problem uses."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from firstish.problems.base import Options


def first_rows(total: int, options: Options, name: str) -> int:
    """How many rows to take from the front.

    Args:
        total: how many there are.
        options: whose `subset` says how many are wanted.
        name: of the problem, for the error.
    """
    if options.subset is None:
        return total
    if options.subset > total:
        raise ValueError(
            f"`Options(subset=...)` asks for {options.subset:,} rows, but {name} has {total:,}. "
            "Leave it out for all of them."
        )
    return options.subset


def mixed_rows(total: int, options: Options, name: str) -> NDArray[np.intp]:
    """Like `first_rows`, from a fixed permutation: for files that are ordered by class.

    It does not depend on the seed, so that every run of a problem sees the same rows, and the
    rows of a small subset are among those of a larger one.
    """
    count = first_rows(total, options, name)
    # RandomState, because NumPy promises that its stream never changes.
    return np.random.RandomState(0).permutation(total)[:count]


def precision(options: Options, own: torch.dtype) -> torch.dtype:
    """The dtype to compute in: the one asked for, or the problem's own."""
    dtype = own if options.dtype is None else options.dtype
    if not dtype.is_floating_point:
        raise TypeError(f"`Options(dtype=...)` must be floating-point, got {dtype}.")
    return dtype

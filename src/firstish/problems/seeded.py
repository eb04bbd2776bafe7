"""Random initial parameters that depend on a seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from the CPU's generator with this seed, and leave all generators as they were.

    Parameters are drawn on the CPU and in float32, and then moved: the same seed is the same start
    on every device and, up to rounding, in every precision.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reach the GPUs' too
        yield

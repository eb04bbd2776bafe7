"""Random initial parameters that depend only on a seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the CPU generator inside the `with` block, and restore it afterwards.

    Parameters are drawn on the CPU in float32 and then converted: a seed gives the same start on
    every device and, up to rounding, in every precision.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed GPUs too
        yield

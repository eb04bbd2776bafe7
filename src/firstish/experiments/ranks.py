"""`firstish run` under `torchrun`: every rank computes, rank 0 speaks and writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist


@contextmanager
def joined(device: str, seconds: float) -> Iterator[Any]:
    """The process group that `torchrun` asks for by its environment; None without it.

    Args:
        device: gloo joins CPUs, NCCL joins GPUs.
        seconds: how long a rank waits for the others before it gives up.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield None
        return
    backend = "nccl" if device.startswith("cuda") else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=seconds))
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()

"""`firstish run` under `torchrun`: every rank computes, rank 0 speaks and writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

from firstish.objectives.group import Group

T = TypeVar("T")


@contextmanager
def joined(device: str, seconds: float) -> Iterator[Group]:
    """The processes that `torchrun` has started; this one alone without it.

    Args:
        device: gloo joins CPUs, NCCL joins GPUs.
        seconds: how long a rank waits for the others before it gives up.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Group()
        return
    backend = "nccl" if device.startswith("cuda") else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=seconds))
    try:
        yield Group(dist.group.WORLD, device)
    finally:
        dist.destroy_process_group()


def first_decides(group: Group, decide: Callable[[], T]) -> T:
    """What rank 0 finds, on every rank; if it refuses, all stop."""
    found: list[T] = []
    try:
        if group.rank == 0:
            found.append(decide())
    finally:
        found = group.object_from(0, found)
    if not found:
        raise ValueError("rank 0 has refused to start; its error says why.")
    return found[0]

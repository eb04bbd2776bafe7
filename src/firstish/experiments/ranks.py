"""`firstish run` under `torchrun`: every rank computes, rank 0 prints and writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

from firstish.distributed import Group

T = TypeVar("T")

_REMEDY = "Start the run with torchrun, which sets it, or alone with WORLD_SIZE unset."


@contextmanager
def joined(device: str, seconds: float) -> Iterator[Group]:
    """The group of the processes that `torchrun` has started; of this one without it.

    Args:
        device: gloo joins CPUs, NCCL joins GPUs.
        seconds: how long a rank waits for the others before it gives up.
    """
    size = world_size()
    if size == 1:
        yield Group()
        return
    _meet(size, "nccl" if device.startswith("cuda") else "gloo", seconds)
    try:
        yield Group(dist.group.WORLD, device)
    finally:
        dist.destroy_process_group()


def world_size() -> int:
    """The number of processes that `torchrun` has started; 1 without it."""
    return _number("WORLD_SIZE", range(1, 1_000_000), default="1")


def _meet(size: int, backend: str, seconds: float) -> None:
    """Join the process group that the environment variables describe."""
    _number("RANK", range(size))
    port = _number("MASTER_PORT", range(65536))
    place = os.environ.get("MASTER_ADDR")
    if not place:
        raise ValueError(f"WORLD_SIZE is set, but not MASTER_ADDR. {_REMEDY}")
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=seconds))
    except dist.DistError as error:
        reason = str(error).strip().splitlines()[0]
        raise ConnectionError(
            f"The {size} processes did not meet at {place}:{port} within --timeout {seconds:g} "
            f"seconds: {reason}"
        ) from None


def _number(name: str, allowed: range, default: str | None = None) -> int:
    """The whole number in an environment variable."""
    text = os.environ.get(name, default)
    if text is None:
        raise ValueError(f"WORLD_SIZE is set, but not {name}. {_REMEDY}")
    if not text.isdecimal() or int(text) not in allowed:
        among = f"a whole number from {allowed[0]} to {allowed[-1]}"
        raise ValueError(f"The environment variable {name}={text} is not {among}. {_REMEDY}")
    return int(text)


def first_decides(group: Group, decide: Callable[[], T]) -> T:
    """The result of `decide` on rank 0, on every rank; if it raises, all raise."""
    found: list[T] = []
    try:
        if group.rank == 0:
            found.append(decide())
    finally:
        found = group.broadcast_object(found)
    if not found:
        raise ValueError("rank 0 has refused to start; its error says why.")
    return found[0]

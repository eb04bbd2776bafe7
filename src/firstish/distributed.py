"""Collective operations over a process group, which do nothing for a single process.

Every rank must call the same operations in the same order. They return the same on every rank, to
the bit, so that all ranks take the same branch.
"""

from __future__ import annotations

import os
import weakref
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from firstish.errors import RankError
from firstish.interface.warn import warn

T = TypeVar("T")

# In torch 2.4, if a thread of the process group holds the last reference to a message, it waits for
# the interpreter's lock to free it, and `destroy_process_group` holds that lock while it waits for
# the thread. So the last small messages are kept here, also after their objective is gone.
_RECENT: deque[Tensor] = deque(maxlen=16)
_SMALL = 4096


class Group:
    """A process group, or this process alone.

    It does not keep the process group alive, so that `destroy_process_group` can end its threads:
    a thread that frees a message while the interpreter exits aborts the process.

    Args:
        process_group: of `torch.distributed`; None for this process alone.
        device: for the small messages made here.
    """

    def __init__(self, process_group: Any = None, device: torch.device | str = "cpu") -> None:
        self._group: weakref.ref[Any] | None = None
        self._device = torch.device(device)
        self.rank, self.size = 0, 1
        if process_group is not None:
            if not dist.is_available() or not dist.is_initialized():
                raise ValueError(
                    "`process_group=...` needs `torch.distributed.init_process_group(...)` first; "
                    "start the script with `torchrun`."
                )
            self._group = weakref.ref(process_group)
            self.rank, self.size = dist.get_rank(process_group), dist.get_world_size(process_group)

    @property
    def process_group(self) -> Any:
        """The process group; None for this process alone."""
        if self._group is None:
            return None
        found = self._group()
        if found is None:
            raise RankError(
                "The process group of this objective was destroyed. Call "
                "`torch.distributed.destroy_process_group()` after the last evaluation."
            )
        return found

    @property
    def alone(self) -> bool:
        """True if the world size is 1."""
        return self.size == 1

    def all_sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if not self.alone:
            with self._lost_ranks_explained():
                dist.all_reduce(tensor, group=self.process_group)
            _keep(tensor)
        return tensor

    def all_max(self, tensor: Tensor) -> Tensor:
        """The elementwise maximum over all ranks, in place."""
        if not self.alone:
            with self._lost_ranks_explained():
                dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.process_group)
            _keep(tensor)
        return tensor

    def any(self, condition: bool) -> bool:
        """True if the condition holds on some rank."""
        return any(self.gather(float(condition)))

    def gather(self, number: float) -> list[float]:
        """The numbers of all ranks, in order."""
        if self.alone:
            return [number]
        message = torch.zeros(self.size, dtype=torch.float64, device=self._device)
        message[self.rank] = number
        return self.all_sum(message).tolist()

    def broadcast(self, number: float) -> float:
        """Rank 0's number."""
        if self.alone:
            return number
        message = torch.tensor([number], dtype=torch.float64, device=self._device)
        with self._lost_ranks_explained():
            dist.broadcast(message, self._global(0), group=self.process_group)
        _keep(message)
        return message.item()

    def broadcast_object(self, thing: T, source: int = 0) -> T:
        """The object of rank `source`."""
        if self.alone:
            return thing
        box = [thing]
        with self._lost_ranks_explained():
            dist.broadcast_object_list(
                box, self._global(source), group=self.process_group, device=self._device
            )
        return box[0]

    def require_same(self, settings: object, what: str, remedy: str) -> None:
        """Raise on every rank if the ranks have different settings, compared by their `repr`."""
        numbers = self.gather(zlib.crc32(repr(settings).encode()))
        others = [rank for rank, theirs in enumerate(numbers) if theirs != numbers[0]]
        if others:
            raise ValueError(
                f"The ranks of the process group have different {what}: rank 0 differs from "
                f"rank {', '.join(map(str, others))}. {remedy}"
            )

    def _global(self, rank: int) -> int:
        return dist.get_global_rank(self.process_group, rank)

    @contextmanager
    def _lost_ranks_explained(self) -> Iterator[None]:
        """Turn the backend's error into one that tells the cause and the remedy."""
        try:
            yield
        except RuntimeError as error:
            raise RankError(
                "Another process of the group was lost or did not answer in time (this is "
                f"rank {self.rank} of {self.size}). Find its error above, then start the run "
                f"again. The backend reports: {str(error).strip().splitlines()[0][:200]}"
            ) from error


def comparable(thing: object) -> object:
    """The settings of a method, as far as they are comparable between processes.

    A function, for example, has another address in each.
    """
    if is_dataclass(thing):
        settings = [comparable(getattr(thing, f.name)) for f in fields(thing)]
        return type(thing).__qualname__, settings
    if isinstance(thing, tuple):
        return [comparable(part) for part in thing]
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    return type(thing).__qualname__


def warn_if_not_joined(call: str) -> None:
    """Warn if this is one of several processes, for an objective without a process group."""
    if dist.is_available() and dist.is_initialized():
        size = dist.get_world_size()
    else:
        variable = os.environ.get("WORLD_SIZE", "1")
        size = int(variable) if variable.isdecimal() else 1  # otherwise not set by torchrun
    if size > 1:
        warn(
            f"`{call}(...)` has no `process_group=...`, and this is one of {size} processes: each "
            "minimises over its own rows alone. To join them, call "
            "`torch.distributed.init_process_group(...)` first, then pass "
            "`process_group=torch.distributed.group.WORLD`."
        )


def warn_of_own_loss() -> None:
    """Warn if this is one of several processes, for `ScaledGD`, which knows of no others."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        warn(
            f"`ScaledGD(...)` minimises the loss of this process alone, and this is one of "
            f"{dist.get_world_size()} processes: each will have a model of its own. To join them, "
            "use `minimize(FiniteSum(model, loss_fn, data, "
            "process_group=torch.distributed.group.WORLD), model)`."
        )


def _keep(message: Tensor) -> None:
    if message.numel() <= _SMALL:
        _RECENT.append(message)

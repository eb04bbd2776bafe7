"""Several processes as one: sums over all of them, and rank 0's word for all.

Every rank calls the same operations in the same order. What they return is the same on every
rank, to the bit, so that all take the same branch.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from firstish.errors import RankError

T = TypeVar("T")

# In torch 2.4 a thread of the group that is the last to hold a message waits for the interpreter's
# lock to free it, and `destroy_process_group` holds that lock while it waits for the thread. So the
# last small messages are held here, beyond the life of their objective.
_RECENT: deque[Tensor] = deque(maxlen=16)
_SMALL = 4096


class Group:
    """A process group, or this process alone.

    It does not keep the process group alive: `destroy_process_group` must end its threads, for
    one that is still letting go of a message while the interpreter ends aborts the process.

    Args:
        process_group: of `torch.distributed`; None for this process alone.
        device: where small messages are made.
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
        """The process group; None if there was none."""
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
        """Whether there is nobody to talk to."""
        return self.size == 1

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if not self.alone:
            with _explained(self.rank, self.size):
                dist.all_reduce(tensor, group=self.process_group)
            _keep(tensor)
        return tensor

    def largest(self, tensor: Tensor) -> Tensor:
        """The largest of all ranks, entry by entry, in place."""
        if not self.alone:
            with _explained(self.rank, self.size):
                dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.process_group)
            _keep(tensor)
        return tensor

    def any(self, here: bool) -> bool:
        """Whether it is so on some rank."""
        return any(self.from_all(float(here)))

    def object_from(self, rank: int, thing: T) -> T:
        """That rank's object, on every rank."""
        if self.alone:
            return thing
        box = [thing]
        with _explained(self.rank, self.size):
            dist.broadcast_object_list(
                box, self._global(rank), group=self.process_group, device=self._device
            )
        return box[0]

    def from_first(self, numbers: Sequence[float]) -> list[float]:
        """Rank 0's numbers, on every rank."""
        if self.alone:
            return list(numbers)
        message = torch.tensor(list(numbers), dtype=torch.float64, device=self._device)
        with _explained(self.rank, self.size):
            dist.broadcast(message, self._global(0), group=self.process_group)
        _keep(message)
        return message.tolist()

    def text_from_first(self, text: str) -> str:
        """Rank 0's text, on every rank."""
        letters = list(text.encode())
        (length,) = self.from_first([len(letters)])
        letters = (letters + [0] * int(length))[: int(length)]
        return bytes(int(n) for n in self.from_first(letters)).decode()

    def from_all(self, number: float) -> list[float]:
        """Every rank's number."""
        if self.alone:
            return [number]
        message = torch.zeros(self.size, dtype=torch.float64, device=self._device)
        message[self.rank] = number
        return self.add(message).tolist()

    def _global(self, rank: int) -> int:
        """That rank of this group, as a rank of the world."""
        return dist.get_global_rank(self.process_group, rank)

    def require_same(self, number: float, what: str, remedy: str) -> None:
        """Raise on every rank if the ranks disagree."""
        numbers = self.from_all(number)
        others = [rank for rank, theirs in enumerate(numbers) if theirs != numbers[0]]
        if others:
            raise ValueError(
                f"The ranks of the process group have different {what}: rank 0 differs from "
                f"rank {', '.join(map(str, others))}. {remedy}"
            )


def warn_if_apart(call: str) -> None:
    """Say that this is one of several processes, and that nothing joins them."""
    if dist.is_available() and dist.is_initialized():
        size = dist.get_world_size()
    else:
        told = os.environ.get("WORLD_SIZE", "1")
        size = int(told) if told.isdecimal() else 1  # anything else is not torchrun's
    if size > 1:
        warnings.warn(
            f"`{call}(...)` has no `process_group=...`, and this is one of {size} processes: each "
            "minimises over its own rows alone. To join them, call "
            "`torch.distributed.init_process_group(...)` first, then pass "
            "`process_group=torch.distributed.group.WORLD`.",
            stacklevel=3,
        )


def _keep(message: Tensor) -> None:
    if message.numel() <= _SMALL:
        _RECENT.append(message)


class _explained:
    """Turn the backend's error into one that says what happened and what to do."""

    def __init__(self, rank: int, size: int) -> None:
        self._who = f"rank {rank} of {size}"

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, RankError):
            raise RankError(
                f"Another process of the group was lost or did not answer in time (this is "
                f"{self._who}). Look for its error above, then start the run again. "
                f"The backend says: {str(error).strip().splitlines()[0][:200]}"
            ) from error

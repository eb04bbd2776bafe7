"""State of the whole process: random generators, replayed for dropout, and the lock on them.

torch's random generators, its global module hooks and Python's warning filters belong to all
threads of the process. Whoever sets one of them for a while holds the lock `alone()` meanwhile.

- `Replay`: evaluations that all draw the same random numbers, such as one dropout mask;
- `RandomState`: the state of the generators of all devices;
- `in_use`: objects that one thread may use at a time;
- `limit_threads_after_fork`: torch's own threads in a forked process.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from firstish.interface.warn import warn

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which a thread that waits for the lock gives up: the thread that has it may be
waiting for this one. They begin anew as long as other threads take or enter the lock."""

_RLock: Any = type(threading.RLock())


class ProcessLock(_RLock):  # type: ignore[misc]
    """A reentrant lock with a time-out.

    A subclass, so that `__exit__` is the one in C, which Ctrl-C does not interrupt.
    """

    entries = 0

    def __enter__(self) -> None:
        self.entries += 1
        seen = self.entries
        while not self.acquire(timeout=PATIENCE):
            if self.entries == seen:
                raise RuntimeError(
                    f"Another thread has been evaluating a loss for {PATIENCE:g} s. torch's random "
                    "generators and hooks are shared by all threads, so that one `ScaledGD.step` "
                    "or one loss that draws random numbers is evaluated at a time. Give each run "
                    "a process of its own."
                )
            seen = self.entries


class _Process:
    """What belongs to this process; a forked child begins with its own."""

    lock = ProcessLock()
    users: dict[int, int] = {}  # noqa: RUF012  # the thread that uses an object, by the object's id
    forked = False  # True until the child computes

    @classmethod
    def renew(cls) -> None:
        """Forget the other threads, which a forked child does not have."""
        cls.lock, cls.users, cls.forked = ProcessLock(), {}, True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Process.renew)


def alone() -> ProcessLock:
    """The lock on the state of the process, for a `with` statement."""
    return _Process.lock


@dataclass(frozen=True, slots=True)
class RandomState:
    """The state of torch's generators at one moment."""

    cpu: Tensor
    cuda: tuple[Tensor, ...] = ()
    mps: Tensor | None = None

    @classmethod
    def capture(cls) -> RandomState:
        """The state now."""
        with alone():
            return cls._read()

    @classmethod
    def _read(cls) -> RandomState:
        on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        cuda = tuple(torch.cuda.get_rng_state_all()) if on_gpu else ()
        mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
        return cls(torch.get_rng_state(), cuda, mps)

    def same_as(self, other: RandomState) -> bool:
        """True if no random number was drawn between the two."""
        mine, theirs = self._all(), other._all()
        return len(mine) == len(theirs) and all(map(torch.equal, mine, theirs))

    def _all(self) -> tuple[Tensor, ...]:
        return (self.cpu, *self.cuda) if self.mps is None else (self.cpu, *self.cuda, self.mps)

    def restore(self) -> None:
        """Set the generators to this state. If it is theirs already, they are not written to."""
        with alone():
            if self._differs():
                self._write()

    def _write(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(list(self.cuda))
        if self.mps is not None:
            torch.mps.set_rng_state(self.mps)

    def _differs(self) -> bool:
        """True if the generators are in another state now."""
        return not self.same_as(RandomState._read())

    @contextmanager
    def replayed(self) -> Iterator[Callable[[], bool]]:
        """Run the block from this state, and leave the generators as they were before it.

        Yields a function that returns, inside the block, whether a random number was drawn in it.
        """
        with alone():
            outside = RandomState.capture()
            try:
                if not self.same_as(outside):
                    self._write()
                yield self._differs
            finally:
                outside.restore()

    def replaying(self, evaluate: Callable[[], T]) -> Callable[[], T]:
        """A function that runs `evaluate` from this state each time."""

        def again() -> T:
            with self.replayed():
                return evaluate()

        return again

    def to_tensors(self) -> dict[str, list[Tensor]]:
        """Tensors for a state dict."""
        return {
            "cpu": [self.cpu],
            "cuda": list(self.cuda),
            "mps": [] if self.mps is None else [self.mps],
        }

    @classmethod
    def from_tensors(cls, pack: dict[str, list[Tensor]]) -> RandomState:
        """The inverse of `to_tensors`, also of bytes that a state dict cast to another dtype."""
        states = {k: [t.to("cpu", torch.uint8) for t in v] for k, v in pack.items()}
        return cls(states["cpu"][0], tuple(states["cuda"]), next(iter(states["mps"]), None))


class Replay:
    """Evaluations that all start from the random state at construction.

    The first one shows whether the loss draws random numbers. If it draws none, later evaluations
    neither set the random state nor hold the lock, so that threads evaluate at the same time.
    """

    def __init__(self) -> None:
        self._state = RandomState.capture()
        self.draws: bool | None = None  # None before the first evaluation

    def __call__(self, evaluate: Callable[..., T], *args: object) -> T:
        """The result of evaluate(*args), with gradients on: the loss may need its own graph."""
        if self.draws is False and torch.is_grad_enabled():
            return evaluate(*args)  # the usual case costs nothing
        with torch.enable_grad():
            return evaluate(*args) if self.draws is False else self._replayed(evaluate, *args)

    def _replayed(self, evaluate: Callable[..., T], *args: object) -> T:
        with alone():
            outside = RandomState.capture()
            try:
                with self._state.replayed() as drew:
                    result = evaluate(*args)
                    if self.draws is None:
                        self.draws = drew()
            except BaseException:  # Ctrl-C may have interrupted `replayed` itself
                outside.restore()
                raise
        return result


@contextmanager
def in_use(things: Iterable[object], what: str) -> Iterator[None]:
    """Reserve these objects for this thread; raise if another thread has them.

    The same thread may enter again.

    Args:
        things: what only one thread may use at a time.
        what: their name in the error, and the remedy.
    """
    here, users = threading.get_ident(), _Process.users
    mine: list[int] = []
    try:
        for key in map(id, things):
            if users.get(key) == here:
                continue  # reserved by an outer block
            mine.append(key)
            if users.setdefault(key, here) != here:
                raise RuntimeError(f"Another thread is using {what}")
        yield
    finally:
        for key in mine:
            if users.get(key) == here:
                del users[key]


@contextmanager
def ignored(*messages: str) -> Iterator[None]:
    """Ignore warnings with these messages inside the block, in every thread."""
    with alone(), warnings.catch_warnings():
        for message in messages:
            warnings.filterwarnings("ignore", message=message)
        yield


def limit_threads_after_fork() -> None:
    """Make torch compute with one thread in a process that was forked.

    The threads it computes with do not survive a fork, and it would wait for them forever.
    """
    if not _Process.forked:
        return
    _Process.forked = False
    threads = torch.get_num_threads()
    if threads > 1:
        torch.set_num_threads(1)
        warn(
            f"This process was forked from one in which torch computes with {threads} threads, "
            "which do not survive that: it computes with 1 from now on. For more, start processes "
            "by `multiprocessing.get_context('spawn')`; to silence this, call "
            "`torch.set_num_threads(1)` first."
        )

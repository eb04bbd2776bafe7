"""Threads and forked processes: the lock on the state of the process, and who uses what.

torch's random generators, its global module hooks and Python's warning filters belong to the whole
process. Whoever sets one of them for a while holds the lock `alone()` meanwhile.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

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
        warnings.warn(
            f"This process was forked from one in which torch computes with {threads} threads, "
            "which do not survive that: it computes with 1 from now on. For more, start processes "
            "by `multiprocessing.get_context('spawn')`; to silence this, call "
            "`torch.set_num_threads(1)` first.",
            stacklevel=3,
        )

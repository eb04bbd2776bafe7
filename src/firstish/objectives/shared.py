"""What all threads of a process share, and how to change it from several of them."""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch


class Guard:
    """A lock for data of the whole process, to be held for moments only, never while a loss runs.

    A forked child finds it free, also where another thread of the parent held it.
    """

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.condition = threading.Condition()

    def __enter__(self) -> threading.Condition:
        self.condition.acquire()
        return self.condition

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.condition.release()


class _Thread(threading.local):
    """What belongs to one thread."""

    def __init__(self) -> None:
        self.token = object()


_thread = _Thread()


def this_thread() -> object:
    """A thread's token. Its number would not do: after its end it may become another thread's."""
    return _thread.token


class _Process:
    forked = False  # and has not computed since

    @classmethod
    def note(cls) -> None:
        cls.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Process.note)


def revive() -> None:
    """Before a forked process computes: do so with one thread.

    The threads that torch computes with do not survive a fork, and it would wait for them for ever.
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


_filters = Guard()
_ignored: Counter[str] = Counter()  # messages, by how many blocks are inside


@contextmanager
def ignored(*messages: str) -> Iterator[None]:
    """Ignore warnings with these messages as long as the block runs, in every thread.

    `warnings.catch_warnings` puts back all filters as it found them: of two threads the first to
    leave takes the other's away, and the last leaves the first one's behind for good.
    """
    with _filters:
        for message in messages:
            _ignored[message] += 1
            warnings.filterwarnings("ignore", message=_ours(message))
    try:
        yield
    finally:
        with _filters:
            for message in messages:
                _ignored[message] -= 1
                if not _ignored[message]:
                    _forget(message)


def _ours(message: str) -> str:
    """The pattern, with a comment that tells it from the same one of the user's."""
    return message + "(?#firstish)"


def _forget(message: str) -> None:
    filters: Any = warnings.filters
    for entry in [f for f in filters if getattr(f[1], "pattern", None) == _ours(message)]:
        filters.remove(entry)

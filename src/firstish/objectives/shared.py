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

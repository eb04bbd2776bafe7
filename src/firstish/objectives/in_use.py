"""What a thread is working on, so that a second thread does not write into it meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from types import TracebackType

from firstish.objectives.shared import Guard

_guard = Guard()
_users: dict[int, list[int]] = {}  # by the id of a thing: the thread that uses it, and how often

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_users.clear)


class in_use:
    """Have these objects to oneself inside the block; the same thread may enter again.

    Args:
        things: what only one thread may use at a time.
        what: how the error speaks of them, and what to do instead.
    """

    def __init__(self, things: Iterable[object], what: str) -> None:
        self._things = list(things)
        self._what = what

    def __enter__(self) -> None:
        here = threading.get_ident()
        with _guard:
            for thing in self._things:
                if _users.get(id(thing), (here,))[0] != here:
                    raise RuntimeError(f"Another thread is using {self._what}")
            for thing in self._things:
                _users.setdefault(id(thing), [here, 0])[1] += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _guard:
            for thing in self._things:
                user = _users.get(id(thing))  # None in a child forked inside the block
                if user is not None:
                    user[1] -= 1
                    if not user[1]:
                        del _users[id(thing)]

"""What a thread is working on, so that a second thread does not write into it meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType

from firstish.objectives.shared import Guard, this_thread

_guard = Guard()
_users: dict[int, tuple[object, int]] = {}  # by the id of a thing: its thread, and how often

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
        here = this_thread()
        with _guard:
            for thing in self._things:
                if _users.get(id(thing), (here, 0))[0] is not here:
                    raise RuntimeError(f"Another thread is using {self._what}")
            for thing in self._things:
                _users[id(thing)] = (here, _users.get(id(thing), (here, 0))[1] + 1)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _guard:
            for thing in self._things:
                here, often = _users.pop(id(thing), (None, 0))  # 0 in a child forked inside
                if often > 1:
                    _users[id(thing)] = (here, often - 1)

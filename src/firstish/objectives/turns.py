"""Turns at torch's random generators, which all threads of a process share.

An evaluation that replays a random state sets the generators and puts them back. Were two threads
to do so at once, each would draw the other's numbers. So one thread at a time has the turn. One
that finds it taken evaluates without touching the generators, and waits for its turn where its loss
first draws a number: losses that draw none never wait. No lock is held while a loss runs.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode  # torch has no public way to see draws

from firstish.objectives.shared import Guard, this_thread

PATIENCE = 60.0
"""Seconds that a loss waits for its turn: the thread that has it may be waiting for this one."""


class _Thread(threading.local):
    """What belongs to one thread."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []


_here = _Thread()


class Turn:
    """A thread's turn: the generators are its own until it ends.

    Args:
        outside: their state before it, which comes back after it.
    """

    def __init__(self, outside: Any) -> None:
        self.outside = outside
        self.thread = this_thread()


class Turns:
    """Who has the turn, and how many wait for it."""

    def __init__(self) -> None:
        self.guard = Guard()
        self._begin_anew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        self._now: Turn | None = None  # a forked child has no other thread
        self._waiting = 0

    def mine(self) -> bool:
        """Whether this thread has the turn."""
        now = self._now
        return now is not None and now.thread is this_thread()

    def of_another(self) -> Turn | None:
        """The turn that another thread has; ask with the guard held."""
        return None if self.mine() else self._now

    def take(self, begin: Callable[[], Any], patience: float = 0.0) -> Turn | None:
        """The turn, begun by a function that returns the state outside of it; None if taken."""
        with self.guard as change:
            if patience:
                self._waiting += 1
                change.wait_for(lambda: self._now is None, patience)
                self._waiting -= 1
            elif self._waiting:
                return None  # those who wait come first
            if self._now is not None:
                return None
            self._now = Turn(begin())
            return self._now

    def end(self, turn: Turn, put_back: Callable[[Any], None]) -> None:
        """Put the outside state back, and let another thread begin."""
        with self.guard as change:
            put_back(turn.outside)
            if self._now is turn:
                self._now = None
            change.notify()

    def abandon(self) -> None:
        """End this thread's turn, if it has one, whose end was interrupted."""
        with self.guard as change:
            if self.mine():
                self._now = None
                change.notify()


TURNS = Turns()


class Visit(TorchDispatchMode):
    """An evaluation while another thread has the turn: it takes its own where it first draws.

    Args:
        state: what it begins from.
        begin: sets the generators to a state, and returns their state before.
    """

    def __init__(self, state: Any, begin: Callable[[Any], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.state = state
        self._begin = begin
        self.turn: Turn | None = None

    def take(self, patience: float = 0.0) -> bool:
        """Whether it has the turn now."""
        self.turn = TURNS.take(lambda: self._begin(self.state), patience)
        return self.turn is not None

    def __enter__(self) -> Visit:
        _here.visits.append(self)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        _here.visits.remove(self)

    @staticmethod
    def current() -> Visit | None:
        """This thread's evaluation without a turn, if it is in one."""
        return _here.visits[-1] if _here.visits and not TURNS.mine() else None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Every operation of this thread comes through here."""
        kwargs = kwargs or {}
        draws = torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None
        if draws and not TURNS.mine() and not self.take(PATIENCE):
            raise RuntimeError(
                f"This loss draws random numbers, and for {PATIENCE:g} s another thread has been "
                "evaluating a loss. torch's generators are shared by all threads, so one loss at a "
                "time can draw from them. Give each run a process of its own."
            )
        return func(*args, **kwargs)


class Stream:
    """The random numbers that one run draws anew in each of its steps; entered for a step.

    If another run draws from another thread after this one was made, which numbers a step gets
    depends on how the threads were scheduled. No such run can be repeated: it is refused.
    """

    _alive: ClassVar[weakref.WeakSet[Stream]] = weakref.WeakSet()
    _clock: ClassVar[Any] = itertools.count(1)
    _last: ClassVar[tuple[object, int]] = (None, 0)  # the thread that drew last, and when
    _before: ClassVar[int] = 0  # when a thread other than that one last drew

    def __init__(self) -> None:
        self._made = next(self._clock)
        self._drew = 0  # when a step last drew; 0 for never
        self._thread: object = None
        self._inside = False
        self._mixed = False
        self._alive.add(self)

    def __enter__(self) -> None:
        self._inside, self._thread = True, this_thread()

    def __exit__(self, *error: object) -> None:
        self._inside = False

    def draw(self, call: str, *, moves: bool) -> None:
        """Say that this step has drawn; raise if the numbers are not this run's alone.

        Args:
            call: the call to name in errors.
            moves: whether the step leaves the generators elsewhere, for the next one to go on.
        """
        with TURNS.guard:
            self._mixed |= self._is_mixed()
            if moves and not self._mixed:
                self._drew = next(self._clock)
                if Stream._last[0] is not self._thread:
                    Stream._before = Stream._last[1]
                Stream._last = (self._thread, self._drew)
        if self._mixed:
            raise RuntimeError(
                f"`{call}` draws random numbers, as dropout does, and so has a run in another "
                "thread since this one was set up. torch's generators are shared by all threads, "
                "so the masks depend on how the threads are scheduled. Give each run a process of "
                "its own, or make the steps of all runs in one thread."
            )

    def _is_mixed(self) -> bool:
        thread, when = Stream._last
        by_others = Stream._before if thread is self._thread else when
        others = [s for s in self._alive if s._drew and s._thread is not self._thread]
        if not self._drew:
            return by_others > self._made or any(s._inside for s in others)
        for stream in others:
            stream._mixed |= stream._drew > self._drew  # each drew amid the other's steps
        return by_others > self._drew


def _begin_anew() -> None:
    """Forget the runs of other threads, which a forked child has not."""
    Stream._alive.clear()
    Stream._last, Stream._before = (None, 0), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)

"""Random state of every device in use, so that each evaluation sees the same dropout mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from firstish.objectives.turns import TURNS, Visit

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomState:
    """The state of torch's generators at one moment."""

    cpu: Tensor
    cuda: tuple[Tensor, ...] = ()
    mps: Tensor | None = None

    @classmethod
    def capture(cls) -> RandomState:
        """The state now; while another thread replays one, the state that it will put back."""
        with TURNS.guard:
            visit, other = Visit.current(), TURNS.of_another()
            state: RandomState | None = None
            if visit is not None:
                state = visit.state
            elif other is not None:
                state = other.outside
            return cls._read() if state is None else state

    @classmethod
    def _read(cls) -> RandomState:
        on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        cuda = tuple(torch.cuda.get_rng_state_all()) if on_gpu else ()
        mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
        return cls(torch.get_rng_state(), cuda, mps)

    def same_as(self, other: RandomState) -> bool:
        """Whether no random number was drawn between the two."""
        mine, theirs = self.to_tensors(), other.to_tensors()
        return all(
            len(mine[k]) == len(theirs[k])
            and all(torch.equal(a, b) for a, b in zip(mine[k], theirs[k], strict=True))
            for k in mine
        )

    def restore(self) -> None:
        """Go back to this state; while another thread replays one, have it put this one back."""
        with TURNS.guard:
            other = Visit.current() or TURNS.of_another()
            if other is None:
                self._write()
            elif isinstance(other, Visit):
                other.state = self
            else:
                other.outside = self

    def _write(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(list(self.cuda))
        if self.mps is not None:
            torch.mps.set_rng_state(self.mps)

    @contextmanager
    def replayed(self) -> Iterator[Callable[[], bool]]:
        """Run the block from this state, and leave the generators as they were before it.

        What it yields tells, inside the block, whether a random number was drawn in it.
        """
        if TURNS.mine():  # inside of another evaluation of this thread
            outside = self._begin()
            try:
                yield self._left
            finally:
                outside._end()
            return
        visit = Visit(self, RandomState._begin)
        try:
            if visit.take():
                yield self._left
            else:
                with visit:
                    yield lambda: visit.turn is not None and self._left()
        finally:
            if visit.turn is not None:
                TURNS.end(visit.turn, RandomState._end)

    def replaying(self, evaluate: Callable[[], T]) -> Callable[[], T]:
        """The function that runs from this state each time."""

        def again() -> T:
            with self.replayed():
                return evaluate()

        return again

    def _begin(self) -> RandomState:
        """Go to this state from the one returned. A state that is there already is not set."""
        outside = RandomState._read()
        if not self.same_as(outside):
            self._write()
        return outside

    def _left(self) -> bool:
        """Whether the generators are elsewhere now."""
        return not self.same_as(RandomState._read())

    def _end(self) -> None:
        """Go to this state."""
        if self._left():
            self._write()

    def to_tensors(self) -> dict[str, list[Tensor]]:
        """Tensors for a state dict."""
        return {
            "cpu": [self.cpu],
            "cuda": list(self.cuda),
            "mps": [] if self.mps is None else [self.mps],
        }

    @classmethod
    def from_tensors(cls, pack: dict[str, list[Tensor]]) -> RandomState:
        """The inverse, also after a state dict has cast the bytes to the parameters' dtype."""
        states = {k: [t.to("cpu", torch.uint8) for t in v] for k, v in pack.items()}
        return cls(states["cpu"][0], tuple(states["cuda"]), next(iter(states["mps"]), None))


@dataclass(frozen=True, slots=True)
class Outside:
    """The generators before an evaluation, for when Ctrl-C interrupts the replay that sets them."""

    state: RandomState
    nested: bool  # whether it is inside of another evaluation of this thread

    @classmethod
    def capture(cls) -> Outside:
        """The generators now."""
        return cls(RandomState.capture(), TURNS.mine())

    def put_back(self) -> None:
        """Leave the generators as they were, and the turn to others."""
        if not self.nested:
            TURNS.abandon()
        self.state.restore()


class Replay:
    """Every evaluation from the same random state, at no cost for a loss that draws no numbers.

    Whether it does is seen at the first evaluation.
    """

    def __init__(self) -> None:
        self._state = RandomState.capture()
        self.draws: bool | None = None  # None before the first evaluation

    def __call__(self, evaluate: Callable[..., T], *args: object) -> T:
        """Evaluate with gradients on: the loss may need a graph of its own."""
        if self.draws is False and torch.is_grad_enabled():
            return evaluate(*args)  # the usual case costs nothing
        outside = Outside.capture()
        try:
            with torch.enable_grad(), self._state.replayed() as drew:
                result = evaluate(*args)
                if self.draws is None:
                    self.draws = drew()
                return result
        except BaseException:
            outside.put_back()
            raise

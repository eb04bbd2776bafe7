"""The random state of all devices, replayed so that each evaluation has the same dropout mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from firstish.objectives.threads import alone

T = TypeVar("T")


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
        mine, theirs = self.to_tensors(), other.to_tensors()
        return all(
            len(mine[k]) == len(theirs[k])
            and all(torch.equal(a, b) for a, b in zip(mine[k], theirs[k], strict=True))
            for k in mine
        )

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

"""Random state of every device in use, so that each evaluation sees the same dropout mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

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
        """Go back to this state."""
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(list(self.cuda))
        if self.mps is not None:
            torch.mps.set_rng_state(self.mps)

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Run the block from this state, and leave the generators as they were before it."""
        outside = RandomState.capture()
        self.restore()
        try:
            yield
        finally:
            outside.restore()

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
        with torch.enable_grad(), self._state.replayed():
            result = evaluate(*args)
            if self.draws is None:
                self.draws = not self._state.same_as(RandomState.capture())
            return result

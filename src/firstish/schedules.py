"""The first trial step of each iteration, in units of the step the scale was made for.

On a quadratic, f(x - alpha CG g) is lowest at alpha = 1 and back at f(x) at alpha = 2, the edge of
stability. Longer steps than 1 are greedy for the future rather than for f: they break the zigzag
of CG. `Anneal` begins near the edge and ends at 1, where a unit step is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firstish._validate import check_count, check_positive

Schedule = Callable[[int], float]
"""From the number of an iteration to its first trial step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anneal:
    """From `start` at iteration 0 to `end` at iteration `iterations` and ever after, in a line.

        alpha_k = start + (end - start) min(1, k / iterations)

    Args:
        iterations: how long it takes.
        start: the first step, by default 2, the edge of stability.
        end: the last step.

    Examples:
        >>> anneal = Anneal(iterations=4)
        >>> [anneal(k) for k in range(6)]
        [2.0, 1.75, 1.5, 1.25, 1.0, 1.0]
    """

    iterations: int
    start: float = 2.0
    end: float = 1.0

    def __post_init__(self) -> None:
        check_count("Anneal", "iterations", self.iterations)
        check_positive("Anneal", "start", self.start)
        check_positive("Anneal", "end", self.end)

    def __call__(self, iteration: int) -> float:
        """The first trial step of that iteration."""
        return self.start + (self.end - self.start) * min(1.0, iteration / self.iterations)

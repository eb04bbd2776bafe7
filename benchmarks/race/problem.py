"""What a problem of the race is, and which third of them is held out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from firstish import FunctionObjective
from firstish.problems.base import Instance

Family = Literal["classical", "quadratic", "learning"]

DRAW = "2:"
"""The number of the draw. It is drawn anew when problems are added and the methods have changed:
what was held out then has been reported, and is no longer unseen."""

BUDGET = 5_000  # oracle calls of one run, except where a value costs milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceProblem:
    """A function and its start, always the same.

    Args:
        name: the split hangs on it, so it never changes.
        family: which tables it is counted in.
        build: makes f and the start, with the constants theory gives.
        reference: the minimum the start leads to, published or in closed form and then computed
            to full precision; None where only the race itself can find it.
        lowest: the lowest minimum known, where it is another one than `reference`.
        published: `reference` as it stands in print, with its digits.
        budget: oracle calls.
        error: relative, of the solution that x stands for, where the exact one is known.
        sigma: curvature tolerance of the scaled methods; 1e-6, their default.
        rho: Armijo's constant; 1e-4, the default.
    """

    name: str
    family: Family
    build: Callable[[], Instance]
    reference: float | None = None
    lowest: float | None = None
    published: float | None = None
    budget: int = BUDGET
    error: Callable[[Tensor], float] | None = None
    sigma: float = 1e-6
    rho: float = 1e-4

    @property
    def floor(self) -> float | None:
        """The lowest value known; nothing is gained by going on once it is reached."""
        return self.reference if self.lowest is None else self.lowest


def held_out(name: str) -> bool:
    """Whether a problem is in the held-out third: the SHA-256 of DRAW and name is a multiple of 3.

    No method is developed on these.

    >>> held_out("rosenbrock")
    False
    """
    return int(hashlib.sha256(f"{DRAW}{name}".encode()).hexdigest(), 16) % 3 == 0


def function(
    fun: Callable[[Tensor], Tensor],
    x0: Tensor,
    mu: float | None = None,
    lipschitz: float | None = None,
) -> Instance:
    """f as a callable on a vector."""
    objective = FunctionObjective(fun, x0)
    return Instance(objective=objective, x0=x0, rows=1, mu=mu, lipschitz=lipschitz)


def classical(
    name: str,
    fun: Callable[[Tensor], Tensor],
    start: Sequence[float],
    reference: float,
    *,
    published: float | None = None,
    lowest: float | None = None,
) -> RaceProblem:
    """A test function with its published start."""
    x0 = torch.tensor(start, dtype=torch.float64)
    return RaceProblem(
        name=name,
        family="classical",
        build=lambda: function(fun, x0),
        reference=reference,
        published=published,
        lowest=lowest,
    )

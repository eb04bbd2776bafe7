"""What one run leaves: when the best value so far fell, and how the steps were."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torch import Tensor

ETA = 0.9  # of the curvature condition <g(x+p), p> >= eta <g, p>


@dataclass(slots=True)
class Trace:
    """The iterates that lowered the best value so far: f there, and what had been spent."""

    calls: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, calls: float, seconds: float, value: float) -> bool:
        """An iterate; kept, as is returned, if it is the best so far."""
        if self.values and not value < self.values[-1]:
            return False
        self.calls.append(calls)
        self.seconds.append(round(seconds, 7))
        self.values.append(value)
        return True


@dataclass(slots=True)
class Steps:
    """How many steps there were, and of which kind.

    Args:
        taken: in all.
        unit: with step size 1.
        spc: where the curvature along the gradient was strongly positive.
        spc_unit: of these, with step size 1.
        spc_unit_curved: of those, with the curvature condition too, at eta = 0.9.
        nc: where it was negative.
    """

    taken: int = 0
    unit: int = 0
    spc: int = 0
    spc_unit: int = 0
    spc_unit_curved: int = 0
    nc: int = 0


@dataclass(slots=True)
class Outcome:
    """One method on one problem, or one step size of it.

    Args:
        status: how the run ended.
        trace: when the best value fell.
        calls: spent in all.
        seconds: likewise.
        steps: what kinds there were; None for SciPy's.
        rate: the step size, where there is one.
        other_calls: what the other step sizes of the grid spent, to find this one.
        other_seconds: likewise.
        error: of the solution, relative, where the problem knows the exact one.
        x: the best point, until the error is known.
    """

    status: str
    trace: Trace
    calls: float
    seconds: float
    steps: Steps | None = None
    rate: float | None = None
    other_calls: float = 0.0
    other_seconds: float = 0.0
    error: float | None = None
    x: Tensor | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; without x."""
        return asdict(replace(self, x=None))

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Outcome:
        """Back from `to_dict`."""
        steps = plain["steps"]
        return cls(
            **{
                **plain,
                "trace": Trace(**plain["trace"]),
                "steps": None if steps is None else Steps(**steps),
            }
        )


def median_seconds(repeats: Sequence[Outcome]) -> Outcome:
    """The first of several runs of the same, each time replaced by its median over them.

    The steps are the same each time; a repeat that the clock cut short is left out.
    """
    first = repeats[0]
    same = [r for r in repeats if r.trace.calls == first.trace.calls]
    columns = zip(*(r.trace.seconds for r in same), strict=True)
    seconds = [statistics.median(column) for column in columns]
    first.trace.seconds = seconds
    first.seconds = statistics.median(r.seconds for r in same)
    return first

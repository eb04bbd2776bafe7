"""Row: one iteration on record."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import Enum
from operator import attrgetter

from firstish.methods.base import Step
from firstish.objectives.point import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Step):
    """The point x_k and the step taken from it; the last row of a run has no step.

    Args:
        iteration: k.
        oracle_calls: spent until f and g at x_k were known, in the paper's unit.
        passes: the same in forward passes really made.
        seconds: the same in time.
        value: f(x_k).
        grad_norm: |g(x_k)|.
    """

    iteration: int
    oracle_calls: float
    passes: float
    seconds: float
    value: float
    grad_norm: float

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        return {k: v.name if isinstance(v, Enum) else v for k, v in asdict(self).items()}


_STEP = tuple(f.name for f in fields(Step))
_read_step = attrgetter(*_STEP)


def make_row(
    iteration: int, spent: Meter, seconds: float, value: float, grad_norm: float, step: Step | None
) -> Row:
    """A row from its two halves."""
    taken = {} if step is None else dict(zip(_STEP, _read_step(step), strict=True))
    return Row(
        iteration=iteration,
        oracle_calls=spent.oracle_calls,
        passes=spent.passes,
        seconds=seconds,
        value=value,
        grad_norm=grad_norm,
        **taken,
    )

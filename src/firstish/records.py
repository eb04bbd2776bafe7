"""Row: one iteration on record."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any, NamedTuple

from firstish.methods.base import Step


@dataclass(slots=True, kw_only=True)
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


class Entry(NamedTuple):
    """What a row is made of, as the loop has it at hand; the row itself is made when asked for."""

    iteration: int
    oracle_calls: float
    passes: float
    seconds: float
    value: float
    grad_norm: float
    step: Step | None

    def row(self) -> Row:
        """The row."""
        fields: dict[str, Any] = self._asdict()
        step = fields.pop("step")
        if step is not None:
            fields.update((name, getattr(step, name)) for name in _STEP)
        return Row(**fields)

"""What to run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from firstish.experiments.methods import Choice
from firstish.loop import Limits
from firstish.problems import get
from firstish.problems.base import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to run. None stands for the problem's own setting.

    Args:
        problem: its name.
        methods: in the order to run them.
        budget: oracle calls a method.
        gtol: tolerance on the gradient norm.
        options: rows, precision, device, seed and data folder.
        checkpoint_seconds: how often a run is saved, less often where saving takes more than a
            twentieth of that; 0 for after every iteration.
        processor_time: True to measure processor time, of all threads of this process, instead of
            wall time: for comparisons on a busy machine.
    """

    problem: str
    methods: tuple[Choice, ...]
    budget: int | None = None
    gtol: float | None = None
    options: Options = field(default_factory=Options)
    checkpoint_seconds: float = 10.0
    processor_time: bool = False

    def limits(self) -> Limits:
        """The budget and the tolerance."""
        problem = get(self.problem)
        return Limits(
            gtol=problem.gtol if self.gtol is None else self.gtol,
            max_oracle_calls=problem.budget if self.budget is None else self.budget,
        )

    def now(self) -> Callable[[], float]:
        """The clock that seconds are read from."""
        return time.process_time if self.processor_time else time.perf_counter

    def describe(self) -> dict[str, Any]:
        """The settings that a resumed run must share with its start."""
        problem, limits, options = get(self.problem), self.limits(), self.options
        dtype = problem.dtype if options.dtype is None else options.dtype
        return {
            "problem": self.problem,
            "methods": [m.key for m in self.methods],
            "budget": limits.max_oracle_calls,
            "gtol": limits.gtol,
            "seed": options.seed,
            "subset": options.subset,
            "dtype": str(dtype).removeprefix("torch."),
            "device": options.device,
            "chunk_size": options.chunk_size,
            "processes": options.group.size,
            "processor_time": self.processor_time,
        }

"""What follows a run as it goes: the screen, TensorBoard, or both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firstish.experiments.methods import Choice
from firstish.experiments.tuning import Tuning
from firstish.loop import Limits
from firstish.result import Row


class Observer:
    """What is called as a run goes, doing nothing by default; its time is not counted."""

    def tuning(self, choice: Choice, rates: Sequence[float], jobs: int) -> None:
        """A grid is about to run."""

    def tuned(self, choice: Choice, tuning: Tuning) -> None:
        """A grid has run."""

    def started(self, choice: Choice, limits: Limits) -> None:
        """A method begins."""

    def advanced(self, choice: Choice, row: Row) -> None:
        """A method has taken a step."""

    def ended(self, choice: Choice, outcome: dict[str, Any]) -> None:
        """A method has ended, or failed; its records are complete."""

    def note(self, sentence: str) -> None:
        """A sentence about the run as a whole."""


class Silent(Observer):
    """An observer that does nothing."""


class Several(Observer):
    """Observers called one after the other."""

    def __init__(self, *observers: Observer) -> None:
        self._all = observers

    def tuning(self, choice: Choice, rates: Sequence[float], jobs: int) -> None:
        """A grid is about to run."""
        for one in self._all:
            one.tuning(choice, rates, jobs)

    def tuned(self, choice: Choice, tuning: Tuning) -> None:
        """A grid has run."""
        for one in self._all:
            one.tuned(choice, tuning)

    def started(self, choice: Choice, limits: Limits) -> None:
        """A method begins."""
        for one in self._all:
            one.started(choice, limits)

    def advanced(self, choice: Choice, row: Row) -> None:
        """A method has taken a step."""
        for one in self._all:
            one.advanced(choice, row)

    def ended(self, choice: Choice, outcome: dict[str, Any]) -> None:
        """A method has ended, or failed; its records are complete."""
        for one in self._all:
            one.ended(choice, outcome)

    def note(self, sentence: str) -> None:
        """A sentence about the run as a whole."""
        for one in self._all:
            one.note(sentence)

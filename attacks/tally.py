"""How the trials of one attack ended."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counts of one attack.

    Args:
        name: what was tried, as the table shows it.
        refused: trials that ended in a clear error of ours, with nothing changed or lost.
        survived: trials after which everything was right.
        lost: one sentence for each of the others.
    """

    name: str
    refused: int = 0
    survived: int = 0
    lost: list[str] = field(default_factory=list)

    @property
    def tried(self) -> int:
        """The number of trials."""
        return self.refused + self.survived + len(self.lost)

    def expect(self, right: bool, otherwise: str) -> None:
        """Count a trial that survived if it is right, and was lost otherwise."""
        if right:
            self.survived += 1
        else:
            self.lost.append(otherwise)

"""The display of a run while it goes on: `minimize(progress=True)`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

TERMINAL_SECONDS, PLAIN_SECONDS = 0.2, 5.0


class Display:
    """A line that is rewritten on a terminal; elsewhere a new line every few seconds.

    Args:
        stream: where to write, by default the error output.
        now: the time in seconds.
        norm: what the norm of the gradient is called.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
        norm: str = "|g|",
    ) -> None:
        self._norm = norm
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._every = TERMINAL_SECONDS if self._terminal else PLAIN_SECONDS
        self._now, self._last, self._width = now, now(), 0

    def show(
        self, iteration: int, value: float, grad_norm: float, oracle_calls: float, seconds: float
    ) -> None:
        """Write the numbers of an iteration, unless the last line is too recent."""
        if self._now() - self._last < self._every:
            return
        self._last = self._now()
        self._write(
            f"iteration {iteration}  f = {value:.6g}  {self._norm} = {grad_norm:.3g}  "
            f"{oracle_calls:g} oracle calls  {seconds:.1f} s"
        )

    def close(self, message: str) -> None:
        """Write how the run ended."""
        self._write(message)
        if self._terminal:
            self._stream.write("\n")
        self._stream.flush()

    def _write(self, line: str) -> None:
        if self._terminal:  # over the line before, of which nothing may be left
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

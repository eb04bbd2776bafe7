"""The `firstish` command, outside of the package: Ctrl-C ends it quietly from its first moment.

To import anything of the package is to import torch, which takes seconds; an interruption there
would show a traceback through torch's files.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def main() -> None:
    """Import the command line, then run it."""
    with quiet_ctrl_c():
        from firstish.cli import main as run
    run()


@contextmanager
def quiet_ctrl_c() -> Iterator[None]:
    """In this block Ctrl-C ends the process with exit code 130, as a shell would report it.

    Not by an exception: the code being imported may catch it, or print it.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # the caller has its own handler, or ignores it
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(130)


if __name__ == "__main__":
    main()

"""The `firstish` command, outside of the package, whose import is that of torch and takes seconds.

So `firstish --help` answers at once, and Ctrl-C ends the command quietly from its first moment: an
interruption of torch's import would show a traceback through torch's files.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from types import FrameType
from typing import NoReturn

_NEEDS = "The command line needs more packages: pip install '.[all]' in the clone of firstish"
_EXTRAS = ("rich", "typer", "matplotlib", "plotly")


def main() -> None:
    """Run the `firstish` command, or say what is missing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a "≤" must not fail in an encoding without it
            stream.reconfigure(errors="replace")
    with importing():
        from firstish_command.app import app
    if os.environ.get("WORLD_SIZE", "1") == "1":
        app()
    else:
        _one_of_many(app)


@contextmanager
def importing() -> Iterator[None]:
    """In this block Ctrl-C ends the command quietly, and a missing extra with what to install."""
    with quiet_ctrl_c():
        try:
            yield
        except ModuleNotFoundError as error:
            if error.name and error.name.split(".")[0] in _EXTRAS:
                sys.exit(f"{_NEEDS} ({error.name} is not installed).")
            raise


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


def _one_of_many(app: Callable[[], object]) -> NoReturn:
    """Run a rank, and exit without the interpreter's shutdown.

    There the threads of the process group sometimes abort a process whose work is done, and
    torchrun would take that for a failure.
    """
    code: object = 0
    try:
        app()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))

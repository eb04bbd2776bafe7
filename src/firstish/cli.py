"""The command line."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from typing import NoReturn

from firstish_command import quiet_ctrl_c

_NEEDS = "The command line needs more packages: pip install 'firstish[all]'"


def main() -> None:
    """Run the `firstish` command, or say what is missing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, TextIOWrapper
        ):  # so that a "≤" does not fail in an encoding without it
            stream.reconfigure(errors="replace")
    app = _commands()
    if os.environ.get("WORLD_SIZE", "1") == "1":
        app()
    else:
        _one_of_many(app)


def _commands() -> Callable[[], object]:
    """The commands, with all that they import."""
    try:
        with quiet_ctrl_c():
            from firstish.experiments.commands.app import app
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in ("rich", "typer", "matplotlib", "plotly"):
            sys.exit(f"{_NEEDS} ({error.name} is not installed).")
        raise
    return app


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


if __name__ == "__main__":
    main()

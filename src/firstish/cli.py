"""The command line."""

from __future__ import annotations

import sys
from io import TextIOWrapper

_NEEDS = "The command line needs more packages: pip install 'firstish[all]'"


def main() -> None:
    """Run the `firstish` command, or say what is missing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a "≤" is no reason to fail where it has no code
            stream.reconfigure(errors="replace")
    try:
        from firstish.experiments.commands import app
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in ("rich", "typer", "matplotlib", "plotly"):
            sys.exit(f"{_NEEDS} ({error.name} is not installed).")
        raise
    app()


if __name__ == "__main__":
    main()

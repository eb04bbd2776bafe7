"""What a command prints, and where."""

from __future__ import annotations

from typing import NoReturn

import typer
from rich.console import Console
from rich.table import Column, Table

from firstish.experiments.storage import plain_json

MISTAKES = (ValueError, OSError, ImportError)
"""Errors of the user, printed in one line. Any other is a bug of ours, with its traceback."""


def _console(stderr: bool = False, quiet: bool = False) -> Console:
    """A console that shows paths and messages as they are: [v2] is no colour, :x: no picture."""
    made = Console(stderr=stderr, quiet=quiet, markup=False, emoji=False)
    made.width = max(made.width, 20)  # COLUMNS=0 would show nothing
    return made


def table(*names: str, title: str | None = None) -> Table:
    """A table that folds what a narrow terminal has no room for, and cuts nothing."""
    return Table(*(Column(name, overflow="fold") for name in names), title=title)


console = _console()
errors = _console(stderr=True)  # so that standard output holds results alone


def talk(quiet: bool, as_json: bool) -> Console:
    """The console for all that comes before the last line."""
    return _console(quiet=True) if quiet or as_json else console


def print_json(content: object) -> None:
    """Print it as standard JSON."""
    print(plain_json.dumps(content, indent=1))


def fail(error: Exception, more: str = "") -> NoReturn:
    """Print the error, and exit with code 2."""
    told = f"firstish: {error}{more}"
    errors.print(told, style="red", highlight=False, soft_wrap=True)
    raise typer.Exit(2)

"""The commands put together: `firstish run`, `tune`, `data`, `report` and `list`."""

from __future__ import annotations

from typing import Annotated

import typer

from firstish import __version__
from firstish.experiments.commands import data, listing, report, run, tune
from firstish.experiments.commands.output import console

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"firstish {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Gradient descent that sets its own step: compare it on the paper's problems.

    Example: firstish run digits-logistic --budget 2000
    """


app.command()(run.run)
app.command()(tune.tune)
app.command("data")(data.show_data)
app.command()(report.report)
app.command("list")(listing.list_all)

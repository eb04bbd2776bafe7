"""The commands with their options: `firstish run`, `tune`, `data`, `report` and `list`.

What they do is in `firstish.experiments.commands`, which is imported when a command runs.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from firstish_command import importing, options


class _PlainFlags:
    """Flags without a type in the help: `--quiet`, not `--quiet <bool>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, also `--help`, which is not ours."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class _Command(_PlainFlags, TyperCommand):
    pass


class _Group(_PlainFlags, TyperGroup):
    pass


app = typer.Typer(cls=_Group, no_args_is_help=True, pretty_exceptions_enable=False)


def _body(module: str, function: str) -> Callable[..., None]:
    """The function of a command, with all that it imports."""
    with importing():
        found: Callable[..., None] = getattr(
            import_module(f"firstish.experiments.commands.{module}"), function
        )
    return found


def _version(wanted: bool) -> None:
    if wanted:
        with importing():
            from firstish import __version__
        print(f"firstish {__version__}")
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


@app.command(cls=_Command)
def run(
    ctx: typer.Context,
    problem: options.ProblemName = "digits-logistic",
    method: options.Method = None,
    budget: options.Budget = None,
    gtol: options.Gtol = None,
    seed: options.Seed = 0,
    subset: options.Subset = None,
    dtype: options.Dtype = None,
    device: options.Device = "cpu",
    data: options.Data = None,
    out: options.Out = None,
    resume: options.Resume = False,
    checkpoint_seconds: options.CheckpointSeconds = 10.0,
    tensorboard: options.TensorBoard = False,
    chunk_size: options.ChunkSize = None,
    processor_time: options.ProcessorTime = False,
    timeout: options.Timeout = 300.0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run methods on a problem: a table on the screen, records and figures on disk.

    Under torchrun the rows are divided among the processes, and the first one writes.

    Example: firstish run digits-mlp --method cgmr --method adam --budget 2000
    """
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    left_open = {name for name, s in sources.items() if s is not None and s.name == "DEFAULT"}
    _body("run", "run")(**ctx.params, left_open=left_open)


@app.command(cls=_Command)
def tune(
    ctx: typer.Context,
    problem: options.ProblemName,
    method: options.RatedMethod = None,
    budget: options.Budget = None,
    gtol: options.Gtol = None,
    seed: options.Seed = 0,
    subset: options.Subset = None,
    dtype: options.Dtype = None,
    device: options.Device = "cpu",
    data: options.Data = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Try the problem's grid of step sizes: each result, the winner, and the cost of the grid.

    Example: firstish tune digits-mlp --method adam --budget 500
    """
    _body("tune", "tune")(**ctx.params)


@app.command("data", cls=_Command)
def data(
    name: options.DataSet = None,
    data: options.Data = None,
) -> None:
    """List the data sets: which are present, whether their files are intact, how to get the others.

    Unchecked: the file is not the one we know, but may be valid; its reader checks the contents.

    Example: firstish data mushrooms --data ~/data
    """
    _body("data", "show_data")(name, data)


@app.command(cls=_Command)
def report(
    folder: options.Folder,
    out: options.ReportOut = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Print the tables of a run folder, draw its figures and write its page.

    While a run is still writing to it, --out DIR reports the methods that have finished.

    Example: firstish report runs/digits-logistic
    """
    _body("report", "report")(folder, out, quiet, as_json)


@app.command("list", cls=_Command)
def list_all() -> None:
    """List the problems and the methods.

    Example: firstish list
    """
    _body("listing", "list_all")()

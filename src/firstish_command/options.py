"""The options of the commands."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

PROBLEMS = "firstish.problems:PROBLEMS"
METHODS = "firstish.experiments.methods:METHODS"
DATA_SETS = "firstish.problems.datasets:CATALOGUE"
_OWN = "the problem's own"


def completes(place: str) -> Callable[[str], list[str]]:
    """A completion by the keys of a table, `module:name`, which is imported when it is needed."""

    def names(incomplete: str) -> list[str]:  # typer tells its argument by this name
        module, _, table = place.partition(":")
        keys = getattr(import_module(module), table)
        return [name for name in keys if name.startswith(incomplete)]

    return names


ProblemName = Annotated[
    str,
    typer.Argument(
        help="A problem; `firstish list` shows all.", autocompletion=completes(PROBLEMS)
    ),
]
Method = Annotated[
    list[str] | None,
    typer.Option(
        help="May be repeated: cgmr, adam, adam@0.01, ...",
        show_default="the standard panel",
        autocompletion=completes(METHODS),
    ),
]
RatedMethod = Annotated[
    list[str] | None,
    typer.Option(
        help="A method with a step size, such as adam; may be repeated.",
        show_default="all with a grid",
        autocompletion=completes(METHODS),
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the last line.")]
Json = Annotated[bool, typer.Option("--json", help="Print only a summary, as JSON.")]
Budget = Annotated[
    int | None, typer.Option(help="Oracle calls per method.", min=1, show_default=_OWN)
]
Gtol = Annotated[
    float | None,
    typer.Option(help="Stop when the gradient norm is at most this.", show_default=_OWN),
]
Seed = Annotated[int, typer.Option(help="Seed of the initial parameters.")]
Subset = Annotated[
    int | None, typer.Option(help="Use only this many rows.", min=1, show_default="all")
]
Dtype = Annotated[str | None, typer.Option(help="float32 or float64.", show_default=_OWN)]
Device = Annotated[str, typer.Option(help="Device to compute on.")]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder of the data sets.", show_default="FIRSTISH_DATA, then the cache"),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Run folder.", show_default="runs/PROBLEM, or the first free of runs/PROBLEM-2, ..."
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Resume the run of that folder; --method adds methods. Without --out: the unfinished "
        "run of the problem in runs/, or the last one if all are finished.",
    ),
]
CheckpointSeconds = Annotated[float, typer.Option(help="Seconds between checkpoints.")]
TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Also write TensorBoard events, to DIR/tensorboard.")
]
ChunkSize = Annotated[
    int | None,
    typer.Option(
        help="Rows per chunk of a network's data: fewer use less memory.", min=1, show_default=_OWN
    ),
]
ProcessorTime = Annotated[
    bool,
    typer.Option(
        "--processor-time", help="Measure processor time, not wall time: for a busy machine."
    ),
]
Timeout = Annotated[
    float, typer.Option(help="Seconds to wait for the other processes under torchrun.")
]
Folder = Annotated[Path, typer.Argument(help="A run folder.")]
ReportOut = Annotated[
    Path | None,
    typer.Option(help="Where to write figures and page.", show_default="the run folder"),
]
DataSet = Annotated[
    str | None,
    typer.Argument(help="A data set.", show_default="all", autocompletion=completes(DATA_SETS)),
]

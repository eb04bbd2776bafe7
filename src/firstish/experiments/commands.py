"""The commands behind `firstish`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import torch
import typer
from rich.console import Console
from rich.table import Table

from firstish.experiments import runner
from firstish.experiments.console import Live, table
from firstish.experiments.figures import draw_all
from firstish.experiments.methods import METHODS, PANEL, parse_choice
from firstish.experiments.report import write_report
from firstish.experiments.settings import Settings
from firstish.experiments.summary import summarise
from firstish.problems import PROBLEMS, get
from firstish.problems.base import Options

app = typer.Typer(
    help="Gradient descent that sets its own step: compare it on the paper's problems.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
console = Console()

ProblemName = Annotated[str, typer.Argument(help="A problem; `firstish list` names them.")]
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def _fail(error: Exception) -> NoReturn:
    console.print(f"firstish: {error}", style="red", markup=False, highlight=False)
    raise typer.Exit(2)


@app.command()
def run(
    problem: ProblemName = "digits-logistic",
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="May be repeated: cgmr, adam, adam@0.01, ... The standard panel if none."
        ),
    ] = None,
    budget: Annotated[int | None, typer.Option(help="Oracle calls a method.", min=1)] = None,
    gtol: Annotated[float | None, typer.Option(help="Stop when |g| is at most this.")] = None,
    seed: Annotated[int, typer.Option(help="For the initial parameters.")] = 0,
    subset: Annotated[int | None, typer.Option(help="Use so many rows.", min=1)] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64.")] = None,
    device: Annotated[str, typer.Option(help="Where to compute.")] = "cpu",
    data: Annotated[Path | None, typer.Option(help="Folder with data sets.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/PROBLEM if none.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with that folder.")] = False,
    checkpoint_seconds: Annotated[float, typer.Option(help="How often to save.")] = 10.0,
) -> None:
    """Run methods on a problem: a table on the screen, records and figures on disk.

    Example: firstish run digits-mlp --method cgmr --method adam --budget 2000
    """
    try:
        if dtype is not None and dtype not in DTYPES:
            raise ValueError(f"--dtype {dtype} is unknown. Use float32 or float64.")
        panel = method or get(problem).panel or PANEL
        settings = Settings(
            problem=problem,
            methods=tuple(dict.fromkeys(parse_choice(m) for m in panel)),
            budget=budget,
            gtol=gtol,
            options=Options(
                subset=subset,
                dtype=None if dtype is None else DTYPES[dtype],
                device=device,
                seed=seed,
                data=data,
            ),
            checkpoint_seconds=checkpoint_seconds,
        )
        folder = out or (Path("runs") / problem if resume else _free(Path("runs") / problem))
        with Live(console) as live:
            runner.run(settings, folder, live, resume)
    except (ValueError, FileExistsError, FileNotFoundError, ImportError) as error:
        _fail(error)
    except KeyboardInterrupt:
        console.print(f"interrupted; go on with: --out {folder} --resume")
        raise typer.Exit(130) from None
    report(folder)


def _free(folder: Path) -> Path:
    """That folder, or the first of its numbered sisters that does not exist."""
    k, free = 1, folder
    while free.exists():
        k += 1
        free = folder.with_name(f"{folder.name}-{k}")
    return free


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="A run folder.")]) -> None:
    """Print the table of a run folder, draw its figures and write its page.

    Example: firstish report runs/digits-logistic
    """
    if not (folder / "summary.json").exists():
        _fail(FileNotFoundError(f"{folder} holds no finished method: there is no summary.json."))
    console.print(table(summarise(folder), console.width))
    page = write_report(folder, draw_all(folder))
    console.print(f"records and figures: {folder}   page: {page}", highlight=False)


@app.command("list")
def list_all() -> None:
    """Name the problems and the methods.

    Example: firstish list
    """
    problems = Table("problem", "title", "budget", "gtol", title="Problems")
    for p in PROBLEMS.values():
        problems.add_row(p.name, p.title, f"{p.budget:g}", f"{p.gtol:g}")
    methods = Table("method", "label", "step size", title="Methods")
    for name, spec in METHODS.items():
        rate = "theory or grid" if spec.theory else "grid" if spec.rated else "sets its own"
        methods.add_row(name, spec.label, rate)
    console.print(problems)
    console.print(methods)

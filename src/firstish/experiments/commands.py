"""The commands behind `firstish`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from firstish import __version__
from firstish.experiments import runner
from firstish.experiments.console import Live, table
from firstish.experiments.figures import draw_all
from firstish.experiments.methods import METHODS, PANEL, parse_choice
from firstish.experiments.report import write_report
from firstish.experiments.settings import Settings
from firstish.experiments.summary import summarise
from firstish.experiments.tuning import tune as grid
from firstish.problems import PROBLEMS, get
from firstish.problems.base import Options
from firstish.problems.data import CATALOGUE, catalogue, folders
from firstish.problems.data.files import inspect

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
console = Console()

ProblemName = Annotated[str, typer.Argument(help="A problem; `firstish list` names them.")]
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def _version(asked: bool) -> None:
    if asked:
        console.print(f"firstish {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Gradient descent that sets its own step: compare it on the paper's problems."""


def _fail(error: Exception) -> NoReturn:
    console.print(f"firstish: {error}", style="red", markup=False, highlight=False)
    raise typer.Exit(2)


Budget = Annotated[int | None, typer.Option(help="Oracle calls a method.", min=1)]
Gtol = Annotated[float | None, typer.Option(help="Stop when |g| is at most this.")]
Seed = Annotated[int, typer.Option(help="For the initial parameters.")]
Subset = Annotated[int | None, typer.Option(help="Use so many rows.", min=1)]
Dtype = Annotated[str | None, typer.Option(help="float32 or float64.")]
Device = Annotated[str, typer.Option(help="Where to compute.")]
Data = Annotated[Path | None, typer.Option(help="Folder with data sets.")]

# What a user can mend, told in one line; anything else is a fault of ours and shows its traceback.
MISTAKES = (ValueError, OSError, ImportError)


def _settings(
    problem: str,
    methods: Sequence[str],
    budget: int | None,
    gtol: float | None,
    options: Options,
    checkpoint_seconds: float = 10.0,
) -> Settings:
    get(problem)
    return Settings(
        problem=problem,
        methods=tuple(dict.fromkeys(parse_choice(m) for m in methods)),
        budget=budget,
        gtol=gtol,
        options=options,
        checkpoint_seconds=checkpoint_seconds,
    )


def _options(
    seed: int, subset: int | None, dtype: str | None, device: str, data: Path | None
) -> Options:
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"--dtype {dtype} is unknown. Use float32 or float64.")
    precision = None if dtype is None else DTYPES[dtype]
    return Options(subset=subset, dtype=precision, device=device, seed=seed, data=data)


@app.command()
def run(
    problem: ProblemName = "digits-logistic",
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="May be repeated: cgmr, adam, adam@0.01, ... The standard panel if none."
        ),
    ] = None,
    budget: Budget = None,
    gtol: Gtol = None,
    seed: Seed = 0,
    subset: Subset = None,
    dtype: Dtype = None,
    device: Device = "cpu",
    data: Data = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/PROBLEM if none.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with that folder.")] = False,
    checkpoint_seconds: Annotated[float, typer.Option(help="How often to save.")] = 10.0,
) -> None:
    """Run methods on a problem: a table on the screen, records and figures on disk.

    Example: firstish run digits-mlp --method cgmr --method adam --budget 2000
    """
    folder = out or (_newest if resume else _free)(Path("runs") / problem)
    try:
        panel = method or get(problem).panel or PANEL
        options = _options(seed, subset, dtype, device, data)
        settings = _settings(problem, panel, budget, gtol, options, checkpoint_seconds)
        with Live(console) as live:
            runner.run(settings, folder, live, resume)
    except MISTAKES as error:
        _fail(error)
    except KeyboardInterrupt:
        words = [w for w in sys.argv[1:] if w != "--resume"]
        named = [] if out else ["--out", str(folder)]
        again = shlex.join(["firstish", *words, *named, "--resume"])
        console.print(f"interrupted; go on with: {again}", soft_wrap=True, highlight=False)
        raise typer.Exit(130) from None
    report(folder)


@app.command()
def tune(
    problem: ProblemName,
    method: Annotated[str, typer.Option(help="fixed, heavy-ball, nesterov or adam.")] = "adam",
    budget: Budget = None,
    gtol: Gtol = None,
    seed: Seed = 0,
    subset: Subset = None,
    dtype: Dtype = None,
    device: Device = "cpu",
    data: Data = None,
) -> None:
    """Try the problem's grid of step sizes: each result, the winner, and the whole price.

    Example: firstish tune digits-mlp --method adam --budget 500
    """
    try:
        options = _options(seed, subset, dtype, device, data)
        settings = _settings(problem, [method], budget, gtol, options)
        with Live(console) as live:
            tuning = grid(settings, settings.methods[0], live)
    except MISTAKES as error:
        _fail(error)
    shown = Table("step size", "final objective", "ended", "oracle calls", "seconds")
    for trial in tuning.trials:
        value = "not finite" if trial.value is None else f"{trial.value:.8g}"
        name = f"{trial.rate:g}" + (" *" if trial.rate == tuning.winner else "")
        ended = trial.status.lower().replace("_", " ")
        shown.add_row(name, value, ended, f"{trial.oracle_calls:g}", f"{trial.seconds:.1f}")
    console.print(shown)
    console.print(
        f"winner {tuning.winner:g}; the grid took {tuning.oracle_calls:g} oracle calls and "
        f"{tuning.seconds:.1f} s"
        if tuning.winner is not None
        else "no step size stayed finite"
    )


@app.command("data")
def show_data(
    name: Annotated[str | None, typer.Argument(help="A data set; all if none.")] = None,
    data: Data = None,
) -> None:
    """Say which data sets are here, whether their files are right, and how to get the others.

    Example: firstish data mushrooms --data ~/data
    """
    try:
        places = folders(data)
        sets = list(CATALOGUE) if name is None else [catalogue.get(name).name]
        shown = Table("data set", "files", "where, or how to get it")
        for key in sets:
            shown.add_row(key, *map(escape, _files(key, places)))
    except MISTAKES as error:
        _fail(error)
    console.print(shown)
    console.print(f"searched: {', '.join(map(str, places))}", highlight=False)


def _files(name: str, places: Sequence[Path]) -> tuple[str, str]:
    """The state of a data set, and where it is or how to get it."""
    dataset = CATALOGUE[name]
    if not dataset.forms:
        return "embedded", dataset.how
    for folder in places:
        for form in dataset.forms:
            if form.find(folder) is None:
                continue
            checks = [inspect(file, folder).checksum_ok for file in form.files]
            told = "WRONG" if False in checks else "right" if all(checks) else "here"
            return f"{len(checks)} {told}", f"{folder} ({form.title})"
    return "missing", dataset.how


def _newest(folder: Path) -> Path:
    """The last begun of that folder and its numbered sisters."""
    runs = [p for p in folder.parent.glob(f"{folder.name}*") if (p / "run.json").exists()]
    return max(runs, key=lambda p: (p / "run.json").stat().st_mtime, default=folder)


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
        _fail(
            FileNotFoundError(
                f"{folder} holds no finished method: there is no summary.json. Name a run folder, "
                "or finish the run with --resume."
            )
        )
    console.print(table(summarise(folder), console.width))
    page = write_report(folder, draw_all(folder))
    console.print(f"records and figures: {folder}", highlight=False, soft_wrap=True)
    console.print(f"page: {page}", highlight=False, soft_wrap=True)


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

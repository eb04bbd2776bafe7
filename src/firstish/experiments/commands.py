"""The commands behind `firstish`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import torch
import typer
from rich.console import Console
from rich.table import Column, Table

from firstish import __version__
from firstish.distributed import Group
from firstish.errors import RankError
from firstish.experiments import runner
from firstish.experiments.console import Live, headline, table, trials, winners
from firstish.experiments.methods import METHODS, PANEL, parse_choice
from firstish.experiments.observers import Observer, Several, Silent
from firstish.experiments.ranks import first_decides, joined, world_size
from firstish.experiments.report.figures import draw_all
from firstish.experiments.report.page import write_report
from firstish.experiments.report.summary import Summary, digest, summarise
from firstish.experiments.settings import Settings
from firstish.experiments.storage import folders, plain_json, sessions
from firstish.experiments.storage.files import StorageError
from firstish.experiments.tensorboard import TensorBoard
from firstish.experiments.tuning import Tuning
from firstish.experiments.tuning import tune as tune_grid
from firstish.experiments.winners import grids, write_markdown
from firstish.problems import PROBLEMS, get
from firstish.problems.base import Options
from firstish.problems.datasets import CATALOGUE, registry
from firstish.problems.datasets import folders as data_folders
from firstish.problems.datasets.files import inspect

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _console(stderr: bool = False, quiet: bool = False) -> Console:
    """A console that shows paths and messages as they are: [v2] is no colour, :x: no picture."""
    made = Console(stderr=stderr, quiet=quiet, markup=False, emoji=False)
    made.width = max(made.width, 20)  # COLUMNS=0 would show nothing
    return made


def _table(*names: str, title: str | None = None) -> Table:
    """A table that folds what a narrow terminal has no room for, and cuts nothing."""
    return Table(*(Column(name, overflow="fold") for name in names), title=title)


console = _console()
errors = _console(stderr=True)  # so that standard output holds results alone


def _completes(names: Iterable[str]) -> Callable[[str], list[str]]:
    """A completion by these names; typer tells its argument by the name `incomplete`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


ProblemName = Annotated[
    str,
    typer.Argument(
        help="A problem; `firstish list` names them.", autocompletion=_completes(PROBLEMS)
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the last line alone.")]
Json = Annotated[bool, typer.Option("--json", help="Print a summary in JSON, and nothing else.")]
RATED = [name for name, spec in METHODS.items() if spec.rated]
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
    """Gradient descent that sets its own step: compare it on the paper's problems.

    Example: firstish run digits-logistic --budget 2000
    """


def _talk(quiet: bool, as_json: bool) -> Console:
    """Where what comes before the last line goes."""
    return _console(quiet=True) if quiet or as_json else console


def _print_json(content: object) -> None:
    print(plain_json.dumps(content, indent=1))


def _fail(error: Exception, more: str = "") -> NoReturn:
    told = f"firstish: {error}{more}"
    errors.print(told, style="red", highlight=False, soft_wrap=True)
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
    processor_time: bool = False,
) -> Settings:
    get(problem)
    return Settings(
        problem=problem,
        methods=tuple(dict.fromkeys(parse_choice(m) for m in methods)),
        budget=budget,
        gtol=gtol,
        options=options,
        checkpoint_seconds=checkpoint_seconds,
        processor_time=processor_time,
    )


def _options(
    seed: int,
    subset: int | None,
    dtype: str | None,
    device: str,
    data: Path | None,
    chunk_size: int | None = None,
    group: Group | None = None,
) -> Options:
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"--dtype {dtype} is unknown. Use float32 or float64.")
    precision = None if dtype is None else DTYPES[dtype]
    _check_device(device)
    return Options(
        subset=subset,
        dtype=precision,
        device=device,
        seed=seed,
        data=data,
        chunk_size=chunk_size,
        group=group or Group(),
    )


def _check_device(device: str) -> None:
    try:
        torch.ones(1, device=device).sum().item()  # the device "meta" has no numbers to give
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ValueError(
            f"--device {device} cannot be used: {reason}. Use one that this torch has, such as cpu."
        ) from None


@app.command()
def run(
    ctx: typer.Context,
    problem: ProblemName = "digits-logistic",
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="May be repeated: cgmr, adam, adam@0.01, ... The standard panel if none.",
            autocompletion=_completes(METHODS),
        ),
    ] = None,
    budget: Budget = None,
    gtol: Gtol = None,
    seed: Seed = 0,
    subset: Subset = None,
    dtype: Dtype = None,
    device: Device = "cpu",
    data: Data = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Run folder; if none, runs/PROBLEM or the first free of runs/PROBLEM-2, ..."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with that folder; --method adds to its methods. Without --out: with the "
            "unfinished run of the problem in runs/, or the last one if all are finished.",
        ),
    ] = False,
    checkpoint_seconds: Annotated[float, typer.Option(help="How often to save.")] = 10.0,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write DIR/tensorboard as it goes, too.")
    ] = False,
    chunk_size: Annotated[
        int | None, typer.Option(help="Rows of a network's data at a time; memory allows.", min=1)
    ] = None,
    processor_time: Annotated[
        bool,
        typer.Option(
            "--processor-time",
            help="Count the processor's seconds, not the wall's: for a busy machine.",
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for the other processes under torchrun.")
    ] = 300.0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run methods on a problem: a table on the screen, records and figures on disk.

    Under torchrun the rows are divided among the processes, and the first one writes.

    Example: firstish run digits-mlp --method cgmr --method adam --budget 2000
    """
    folder = out or Path("runs") / problem
    asked: dict[str, Any] = {
        "problem": problem,
        "methods": method or [],
        "budget": budget,
        "gtol": gtol,
        "seed": seed,
        "subset": subset,
        "dtype": dtype,
        "chunk_size": chunk_size,
        "processor_time": processor_time,
    }
    try:
        with ExitStack() as stack:
            group = stack.enter_context(joined(device, timeout))
            folder = first_decides(group, partial(_folder, out, problem, resume))
            if group.rank == 0 and out is None and not resume:
                stack.callback(folders.remove_empty, folder)
            if resume:
                if group.rank == 0 and out is None:
                    errors.print(f"going on with {folder}", markup=False, soft_wrap=True)
                asked = first_decides(group, partial(_recalled, asked, folder, ctx))
            seed, subset, dtype, chunk_size = (
                asked[k] for k in ("seed", "subset", "dtype", "chunk_size")
            )
            options = _options(seed, subset, dtype, device, data, chunk_size, group)
            settings = _settings(
                asked["problem"],
                asked["methods"] or get(asked["problem"]).panel or PANEL,
                asked["budget"],
                asked["gtol"],
                options,
                checkpoint_seconds,
                asked["processor_time"],
            )
            if group.rank != 0:
                runner.run(settings, folder, Silent(), resume)
                return
            events = [stack.enter_context(TensorBoard(folder))] if tensorboard else []
            live = stack.enter_context(Live(_talk(quiet, as_json)))
            observer: Observer = Several(live, *events)
            runner.run(settings, folder, observer, resume)
    except RankError as error:
        _fail(error, f" Go on with: {_resumption(None if out else folder)}")
    except MISTAKES as error:
        begun = type(error) is StorageError and (folder / "run.json").exists()
        again = _resumption(None if out else folder) if begun else ""
        _fail(error, f" When that is mended, go on with: {again}" if begun else "")
    except KeyboardInterrupt:
        if os.environ.get("RANK", "0") == "0":
            again = _resumption(None if out else folder)
            errors.print(f"interrupted; go on with: {again}", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    report(folder, None, quiet, as_json)


def _resumption(folder: Path | None) -> str:
    """The command that goes on with this run; the folder is named if the user had not."""
    start = ["firstish"]
    if world_size() > 1:
        each = os.environ.get("LOCAL_WORLD_SIZE", "1")
        start = ["torchrun", "--nproc-per-node", each, "-m", "firstish"]
    words = [w for w in sys.argv[1:] if w != "--resume"]
    named = [] if folder is None else ["--out", str(folder)]
    return shlex.join([*start, *words, *named, "--resume"])


def _recalled(asked: dict[str, Any], folder: Path, ctx: typer.Context) -> dict[str, Any]:
    """What was asked for, and for the rest what the run in the folder was started with."""
    found = runner.started_with(folder)

    def left_open(name: str) -> bool:
        source = ctx.get_parameter_source(name)  # of click, or of typer's copy of it
        return source is not None and source.name == "DEFAULT"

    recalled = {k: found[k] if k in found and left_open(k) else v for k, v in asked.items()}
    return {**recalled, "methods": [*found["methods"], *asked["methods"]]}


@app.command()
def tune(
    problem: ProblemName,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help=f"May be repeated: {', '.join(RATED)}. All with a grid if none.",
            autocompletion=_completes(RATED),
        ),
    ] = None,
    budget: Budget = None,
    gtol: Gtol = None,
    seed: Seed = 0,
    subset: Subset = None,
    dtype: Dtype = None,
    device: Device = "cpu",
    data: Data = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Try the problem's grid of step sizes: each result, the winner, and the whole price.

    Example: firstish tune digits-mlp --method adam --budget 500
    """
    talk = _talk(quiet, as_json)
    try:
        options = _options(seed, subset, dtype, device, data)
        settings = _settings(problem, method or list(get(problem).grids), budget, gtol, options)
        with Live(talk) as live:
            tunings = [tune_grid(settings, choice, live) for choice in settings.methods]
    except MISTAKES as error:
        _fail(error)
    for tuning in tunings:
        talk.print(trials(problem, tuning))
    talk.print(winners(problem, [asdict(tuning) for tuning in tunings]))
    if as_json:
        _print_json(_tuned(settings, tunings))
    else:
        console.print(_verdict(tunings), soft_wrap=True)


def _tuned(settings: Settings, tunings: Sequence[Tuning]) -> dict[str, Any]:
    paper = get(settings.problem).rates
    lines = [{**asdict(t), "paper": paper.get(t.method)} for t in tunings]
    return {"run": settings.describe(), "grids": lines}


def _verdict(tunings: Sequence[Tuning]) -> str:
    """The last line: who won, and what all of it cost."""
    won = ["none finite" if t.winner is None else f"{t.winner:g}" for t in tunings]
    if len(tunings) > 1:
        won = [f"{t.method} {winner}" for t, winner in zip(tunings, won, strict=True)]
    words = ("winners", "grids") if len(tunings) > 1 else ("winner", "grid")
    calls, seconds = sum(t.oracle_calls for t in tunings), sum(t.seconds for t in tunings)
    price = f"the {words[1]} took {calls:.12g} oracle calls and {seconds:.1f} s"
    return f"{words[0]} {', '.join(won)}; {price}"


@app.command("data")
def show_data(
    name: Annotated[
        str | None,
        typer.Argument(help="A data set; all if none.", autocompletion=_completes(CATALOGUE)),
    ] = None,
    data: Data = None,
) -> None:
    """Say which data sets are here, whether their files are right, and how to get the others.

    Unchecked: other bytes than ours, which may be as good; the reader checks what it holds.

    Example: firstish data mushrooms --data ~/data
    """
    try:
        places = data_folders(data)
        sets = list(CATALOGUE) if name is None else [registry.get(name).name]
        shown = _table("data set", "files", "where, or how to get it")
        for key in sets:
            try:
                shown.add_row(key, *_files(key, places))
            except OSError as error:  # of one data set: the others are shown
                shown.add_row(key, "unreadable", str(error))
    except MISTAKES as error:
        _fail(error)
    console.print(shown)
    console.print(f"searched: {', '.join(map(str, places))}", highlight=False, soft_wrap=True)


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
            wrong = checks.count(False)
            told = "right" if all(checks) else "here, unchecked"
            told = f"{wrong} of {len(checks)} WRONG" if wrong else f"{len(checks)} {told}"
            return told, f"{folder} ({form.title})"
    return "missing", f"{dataset.how} {dataset.page}"


def _folder(out: Path | None, problem: str, resume: bool) -> Path:
    """The run folder: as named, the run to go on with, or a new one."""
    if out is not None:
        return out
    default = Path("runs") / problem
    return folders.to_resume(default, problem) if resume else folders.fresh(default)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write figures and page; the run folder if none.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Print the tables of a run folder, draw its figures and write its page.

    While a run is going on in it, --out DIR shows the methods that have ended.

    Example: firstish report runs/digits-logistic
    """
    try:
        summary = _read_run(folder)
    except MISTAKES as error:
        _fail(error)
    talk = _talk(quiet, as_json)
    talk.print(table(summary, console.width))
    if tuned := grids(summary):
        talk.print(winners(summary.run["problem"], tuned))
    if first := headline(summary):
        talk.print(first, highlight=False, soft_wrap=True)
    for change in sessions.changes(summary.run):
        talk.print(change, markup=False, highlight=False, soft_wrap=True)
    try:
        page = _write_page(summary, out or folder)
    except MISTAKES as error:
        again = shlex.join(["firstish", "report", str(folder), "--out", "DIR"])
        written = isinstance(error, StorageError)
        _fail(error, f" To write into another folder: {again}" if written else "")
    talk.print(f"records and figures: {folder}", highlight=False, soft_wrap=True)
    if as_json:
        _print_json({"folder": str(folder), "page": str(page), **digest(summary)})
    else:
        console.print(f"page: {page}", highlight=False, soft_wrap=True)


def _read_run(folder: Path) -> Summary:
    if not (folder / "summary.json").exists():
        raise FileNotFoundError(
            f"{folder} holds no finished method: there is no summary.json. Name a run folder, "
            "or finish the run with --resume."
        )
    return summarise(folder)


def _write_page(summary: Summary, out: Path) -> Path:
    """Write the figures and the page of a run; no other process may be writing there."""
    with folders.occupied(out):
        write_markdown(out, summary)
        return write_report(summary, draw_all(summary, out), out)


@app.command("list")
def list_all() -> None:
    """Name the problems and the methods.

    Example: firstish list
    """
    problems = _table("problem", "title", "budget", "gtol", title="Problems")
    for p in PROBLEMS.values():
        problems.add_row(p.name, p.title, f"{p.budget:g}", f"{p.gtol:g}")
    methods = _table("method", "label", "step size", title="Methods")
    for name, spec in METHODS.items():
        rate = "theory or grid" if spec.theory else "grid" if spec.rated else "sets its own"
        methods.add_row(name, spec.label, rate)
    console.print(problems)
    console.print(methods)

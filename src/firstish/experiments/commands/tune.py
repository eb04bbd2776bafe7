"""`firstish tune`: a grid of step sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from firstish.experiments.commands.options import (
    Budget,
    Data,
    Device,
    Dtype,
    Gtol,
    Json,
    ProblemName,
    Quiet,
    Seed,
    Subset,
    completes,
    make_options,
    make_settings,
)
from firstish.experiments.commands.output import MISTAKES, console, fail, print_json, talk
from firstish.experiments.console import Live, trials, winners
from firstish.experiments.methods import METHODS
from firstish.experiments.settings import Settings
from firstish.experiments.tuning import Tuning
from firstish.experiments.tuning import tune as tune_grid
from firstish.problems import get

RATED = [name for name, spec in METHODS.items() if spec.rated]


def tune(
    problem: ProblemName,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help=f"May be repeated: {', '.join(RATED)}. Default: all with a grid.",
            autocompletion=completes(RATED),
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
    """Try the problem's grid of step sizes: each result, the winner, and the cost of the grid.

    Example: firstish tune digits-mlp --method adam --budget 500
    """
    shown = talk(quiet, as_json)
    try:
        options = make_options(seed, subset, dtype, device, data)
        settings = make_settings(problem, method or list(get(problem).grids), budget, gtol, options)
        with Live(shown) as live:
            tunings = [tune_grid(settings, choice, live.tuning) for choice in settings.methods]
    except MISTAKES as error:
        fail(error)
    for tuning in tunings:
        shown.print(trials(problem, tuning))
    shown.print(winners(problem, [asdict(tuning) for tuning in tunings]))
    if as_json:
        print_json(_tuned(settings, tunings))
    else:
        console.print(_verdict(tunings), soft_wrap=True)


def _tuned(settings: Settings, tunings: Sequence[Tuning]) -> dict[str, Any]:
    paper = get(settings.problem).rates
    lines = [{**asdict(t), "paper": paper.get(t.method)} for t in tunings]
    return {"run": settings.describe(), "grids": lines}


def _verdict(tunings: Sequence[Tuning]) -> str:
    """The last line: the winners, and the cost of the grids."""
    won = ["none finite" if t.winner is None else f"{t.winner:g}" for t in tunings]
    if len(tunings) > 1:
        won = [f"{t.method} {winner}" for t, winner in zip(tunings, won, strict=True)]
    words = ("winners", "grids") if len(tunings) > 1 else ("winner", "grid")
    calls, seconds = sum(t.oracle_calls for t in tunings), sum(t.seconds for t in tunings)
    cost = f"the {words[1]} took {calls:.12g} oracle calls and {seconds:.1f} s"
    return f"{words[0]} {', '.join(won)}; {cost}"

"""`firstish tune`: a grid of step sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from firstish.experiments.commands.options import make_options, make_settings
from firstish.experiments.commands.output import MISTAKES, console, fail, print_json, talk
from firstish.experiments.console import Live, trials, winners
from firstish.experiments.settings import Settings
from firstish.experiments.tuning import Tuning
from firstish.experiments.tuning import tune as tune_grid
from firstish.problems import get


def tune(
    *,
    problem: str,
    method: list[str] | None,
    budget: int | None,
    gtol: float | None,
    seed: int,
    subset: int | None,
    dtype: str | None,
    device: str,
    data: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """The command `firstish tune`."""
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

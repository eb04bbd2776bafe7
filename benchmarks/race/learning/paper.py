"""The six problems of `firstish.problems`, on so few rows that a run takes seconds."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from firstish.problems import Options, get
from firstish.problems.base import Instance
from race.problem import BUDGET, RaceProblem

# Rows, and oracle calls where a value costs milliseconds or more.
SIZES = {
    "digits-logistic": (600, BUDGET),
    "digits-mlp": (100, BUDGET),
    "mushrooms": (1_000, BUDGET),
    "cifar10-logistic": (200, 2_000),
    "fashion-mlp": (50, 1_000),
    "imagenette-resnet": (8, 40),
}
EMBEDDED = ("digits-logistic", "digits-mlp")


def data_folder() -> Path | None:
    """FIRSTISH_DATA's folder, or shared/data beside the repository; None if there is neither."""
    named = os.environ.get("FIRSTISH_DATA")
    beside = Path(__file__).resolve().parents[4] / "shared" / "data"
    for folder in (Path(named) if named else None, beside):
        if folder is not None and folder.is_dir():
            return folder
    return None


def missing(name: str) -> bool:
    """Whether a problem needs data that are not here; nothing is ever fetched for the race."""
    return name in SIZES and name not in EMBEDDED and data_folder() is None


def _build(name: str) -> Instance:
    data = None if name in EMBEDDED else data_folder()
    return get(name).load(Options(subset=SIZES[name][0], data=data))


def _problem(name: str) -> RaceProblem:
    own = get(name)
    return RaceProblem(
        name=name,
        family="learning",
        build=partial(_build, name),
        budget=SIZES[name][1],
        sigma=own.sigma,
        rho=own.rho,
    )


PAPER = tuple(_problem(name) for name in SIZES)

"""The options that several commands have, and the settings made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer

from firstish.distributed import Group
from firstish.experiments.methods import parse_choice
from firstish.experiments.settings import Settings
from firstish.problems import PROBLEMS, get
from firstish.problems.base import Options

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def completes(names: Iterable[str]) -> Callable[[str], list[str]]:
    """A completion by these names; typer tells its argument by the name `incomplete`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


ProblemName = Annotated[
    str,
    typer.Argument(
        help="A problem; `firstish list` names them.", autocompletion=completes(PROBLEMS)
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the last line.")]
Json = Annotated[bool, typer.Option("--json", help="Print only a summary, as JSON.")]
Budget = Annotated[
    int | None, typer.Option(help="Oracle calls per method. Default: the problem's.", min=1)
]
Gtol = Annotated[
    float | None,
    typer.Option(help="Stop when the gradient norm is at most this. Default: the problem's."),
]
Seed = Annotated[int, typer.Option(help="Seed of the initial parameters.")]
Subset = Annotated[int | None, typer.Option(help="Use only so many rows. Default: all.", min=1)]
Dtype = Annotated[str | None, typer.Option(help="float32 or float64. Default: the problem's.")]
Device = Annotated[str, typer.Option(help="Device to compute on.")]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder of the data sets. Default: FIRSTISH_DATA, then the cache."),
]


def make_settings(
    problem: str,
    methods: Sequence[str],
    budget: int | None,
    gtol: float | None,
    options: Options,
    checkpoint_seconds: float = 10.0,
    processor_time: bool = False,
) -> Settings:
    """What to run; a problem or a method that does not exist is refused."""
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


def make_options(
    seed: int,
    subset: int | None,
    dtype: str | None,
    device: str,
    data: Path | None,
    chunk_size: int | None = None,
    group: Group | None = None,
) -> Options:
    """The options for building the problem; what does not exist here is refused."""
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
        torch.ones(1, device=device).sum().item()  # the device "meta" has no values
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ValueError(
            f"--device {device} cannot be used: {reason}. Use one that this torch has, such as cpu."
        ) from None

"""The settings made of the options that several commands have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from firstish.distributed import Group
from firstish.experiments.methods import parse_choice
from firstish.experiments.settings import Settings
from firstish.problems import get
from firstish.problems.base import Options

DTYPES = {"float32": torch.float32, "float64": torch.float64}


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

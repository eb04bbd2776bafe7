"""The command of a run, from its settings."""

from __future__ import annotations

from typing import Any

from firstish.experiments.methods import PANEL, parse_choice
from firstish.problems import get


def words(run: dict[str, Any]) -> list[str]:
    """What to type for the same run, option by option; what is the default is left out.

    >>> words({"problem": "digits-mlp", "methods": ["lazy"], "budget": 400, "gtol": 1e-4, "seed": 0,
    ...        "threads": 1, "dtype": "float64", "subset": None, "chunk_size": None})
    ['OMP_NUM_THREADS=1 firstish run', 'digits-mlp', '--method lazy', '--budget 400']
    """
    problem = get(run["problem"])
    own = {
        "budget": problem.budget,
        "gtol": problem.gtol,
        "seed": 0,
        "dtype": str(problem.dtype).removeprefix("torch."),
        "device": "cpu",
        "subset": None,
        "chunk_size": None,
    }
    panel = [parse_choice(name).key for name in problem.panel or PANEL]
    named = [] if run["methods"] == panel else run["methods"]
    changed = [(k, run[k]) for k, default in own.items() if run.get(k, default) != default]
    threads = f"OMP_NUM_THREADS={run['threads']} " if "threads" in run else ""
    return [
        f"{threads}firstish run",
        problem.name,
        *(f"--method {key}" for key in named),
        *(f"--{k.replace('_', '-')} {_text(value)}" for k, value in changed),
        *(["--processor-time"] if run.get("processor_time") else []),
    ]


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

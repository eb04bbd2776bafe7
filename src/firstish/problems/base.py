"""A problem: its formula, its settings, and a function that builds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from firstish._validate import check_count
from firstish.distributed import Group
from firstish.objectives.base import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options for building a problem.

    Args:
        subset: the number of rows to use, the first ones; None for all.
        dtype: the precision; None for the problem's own.
        device: where to compute.
        seed: for the initial parameters.
        data: a folder with data sets; None for the default places.
        chunk_size: the number of rows a network evaluates at a time; None for the problem's own.
        group: the processes among which the rows are divided; by default this process only.
    """

    subset: int | None = None
    dtype: torch.dtype | None = None
    device: str = "cpu"
    seed: int = 0
    data: Path | None = None
    chunk_size: int | None = None
    group: Group = field(default_factory=Group)

    def own_rows(self, rows: int) -> slice:
        """The rows of this process, contiguous; those of the last ranks may be fewer."""
        each, rank = -(-rows // self.group.size), self.group.rank
        return slice(min(rows, rank * each), min(rows, (rank + 1) * each))


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A problem that has been built, ready to minimise.

    Args:
        objective: f.
        x0: the starting point, a vector.
        rows: the number of data rows f averages over.
        mu: strong convexity constant; None if unknown.
        lipschitz: Lipschitz constant of the gradient; None if unknown.
    """

    objective: Objective
    x0: Tensor
    rows: int
    mu: float | None = None
    lipschitz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem of the paper, or one of ours.

    Args:
        name: its name on the command line.
        title: its name in figures and tables.
        formula: the objective, in LaTeX.
        formula_text: the same as plain text, for the page of a run.
        choices: the paper's settings, and ours where the paper states none.
        build: builds the instance.
        dtype: the precision the problem is solved in.
        sigma: curvature tolerance for the scaled methods.
        rho: Armijo's constant for the scaled methods and line-search GD.
        gtol: tolerance on the gradient norm.
        budget: oracle calls per method.
        scaling: the scaling the paper shows for this problem.
        grids: step sizes to tune over, by method.
        rates: the step sizes that won in the paper, by method.
        panel: the methods `firstish run` compares on it; empty for the standard ones.
        mu: strong convexity constant for any subset of the rows; None if unknown.
    """

    name: str
    title: str
    formula: str
    choices: tuple[str, ...]
    build: Callable[[Options], Instance]
    dtype: torch.dtype = torch.float64
    sigma: float = 1e-6
    rho: float = 1e-4
    gtol: float = 1e-4
    budget: int = 10_000
    scaling: str = "CGMR"
    grids: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    panel: tuple[str, ...] = ()
    mu: float | None = None
    formula_text: str = ""

    def load(self, options: Options | None = None) -> Instance:
        """Build the problem; by default with all rows and in the problem's own precision."""
        options = Options() if options is None else options
        if options.subset is not None:
            check_count("Options", "subset", options.subset)
        return self.build(options)

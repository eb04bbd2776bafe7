"""How large a single row's Hessian is along the gradient: L1max of the sampling lemma."""

from __future__ import annotations

import torch
from torch import Tensor

from firstish.objectives.finite_sum import FiniteSum
from firstish.objectives.sampling import draw
from firstish.vectors import norm


def estimate_max_lipschitz(
    objective: FiniteSum, x: Tensor | None = None, *, rows: int = 200, seed: int = 0
) -> float:
    """The largest |H_i g| / |g| among some rows: L1max for `HessianSample`, at one point.

    With f the mean of f_i, H_i is the Hessian of f_i, weight decay left out: it is never sampled.
    The largest of a few rows is below the largest of all; leave a margin.

    Args:
        objective: the finite sum, of one process.
        x: where to look; the model's own parameters by default.
        rows: how many to look at, drawn at random; all if there are no more.
        seed: for the draw.
    """
    if objective.rows is None:
        raise ValueError(
            "`estimate_max_lipschitz(objective)` needs data whose rows can be asked for: "
            "`(inputs, targets)` or a Dataset."
        )
    if not objective.group.alone:
        raise ValueError("`estimate_max_lipschitz(objective)` is for one process.")
    if rows < 1:
        raise ValueError(f"`estimate_max_lipschitz(rows=...)` must be at least 1, got {rows}.")
    point = objective.at(objective.initial() if x is None else x, "gradient")
    g, n = point.grad, objective.rows
    if point.grad_norm == 0:
        raise ValueError("`estimate_max_lipschitz(x=...)` is a stationary point: g is zero there.")
    chosen = torch.arange(n) if rows >= n else draw(seed, 0.0, 0.0, rows, n)
    largest = 0.0
    for i in chosen:
        for chunk in objective.chunks.rows(i.view(1)):
            total = objective.product_of(chunk, point.x, g)
            largest = max(largest, norm(total))
    return largest * n / (point.denominator * point.grad_norm)

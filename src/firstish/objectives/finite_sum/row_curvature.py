"""An estimate of L1max in the sampling lemma: the largest |H_i g| / |g| of a row."""

from __future__ import annotations

import torch
from torch import Tensor

from firstish._validate import check_count
from firstish.linalg import norm
from firstish.objectives.finite_sum.objective import FiniteSum
from firstish.objectives.finite_sum.sampling import draw


def estimate_max_lipschitz(
    objective: FiniteSum, x: Tensor | None = None, *, rows: int = 200, seed: int = 0
) -> float:
    """The largest |H_i g| / |g| over a sample of rows, at one point: L1max for `HessianSample`.

    f is the mean of f_i, and H_i the Hessian of f_i without weight decay, which is never sampled.
    The maximum over a sample is a lower bound of that over all rows; leave a margin.

    Args:
        objective: the finite sum, on one process.
        x: the point; the model's own parameters by default.
        rows: the number of rows to sample; all rows if there are no more.
        seed: of the random sample.
    """
    if objective.rows is None:
        raise ValueError(
            "`estimate_max_lipschitz(objective)` needs data with indexable rows: "
            "`(inputs, targets)` or a Dataset."
        )
    if not objective.group.alone:
        raise ValueError(
            "`estimate_max_lipschitz(objective)` does not support several processes. "
            "Make the objective without `process_group=`."
        )
    check_count("estimate_max_lipschitz", "rows", rows)
    point = objective.at(objective.initial() if x is None else x, 1)
    g, n = point.grad, objective.rows
    if point.grad_norm == 0:
        raise ValueError(
            "`estimate_max_lipschitz(x=...)` is a stationary point: the gradient is zero. Pass "
            "another x."
        )
    chosen = torch.arange(n) if rows >= n else draw(seed, 0.0, 0.0, rows, n)
    largest = 0.0
    for i in chosen:
        for chunk in objective.chunks.rows(i.view(1)):
            total = objective.product_of(chunk, point.x, g)
            largest = max(largest, norm(total))
    return largest * n / (point.denominator * point.grad_norm)

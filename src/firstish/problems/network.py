"""A classifier network as an objective: on all rows at once, in chunks, or on several processes."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from firstish.objectives.finite_sum.objective import FiniteSum
from firstish.objectives.module.objective import ModuleObjective
from firstish.problems.base import Instance, Options

GRIDS = {
    "fixed": (1e0, 1e-1, 1e-2, 1e-3),
    "adam": (1e-2, 1e-3, 1e-4, 1e-5),
    "heavy-ball": (1e-1, 1e-2, 1e-3),
    "nesterov": (1e-1, 1e-2, 1e-3),
}
"""The step sizes that the paper tries on its networks."""


def classifier(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    weight_decay: float,
    options: Options,
    at_once: int | None = None,
) -> Instance:
    """The mean cross-entropy over all rows, divided among the processes of the group.

    Args:
        model: the network.
        inputs: all rows.
        labels: their classes.
        weight_decay: lambda.
        options: sets `chunk_size` and `group`.
        at_once: the chunk size if the options set none; None for all rows.
    """
    rows = len(labels)
    chunk_size = options.chunk_size or at_once or rows
    objective: ModuleObjective | FiniteSum
    if options.group.alone and chunk_size >= rows:
        objective = ModuleObjective(
            model, F.cross_entropy, inputs, labels, weight_decay=weight_decay
        )
    else:
        own = options.own_rows(rows)
        objective = FiniteSum(
            model,
            F.cross_entropy,
            (inputs[own], labels[own]),
            chunk_size=chunk_size,
            weight_decay=weight_decay,
            process_group=options.group.process_group,
        )
    return Instance(objective=objective, x0=objective.initial(), rows=rows)

"""Multi-class logistic regression on CIFAR-10."""

from __future__ import annotations

import torch

from firstish.problems import logistic
from firstish.problems.base import Instance, Options, Problem
from firstish.problems.datasets.readers.cifar import load_cifar10
from firstish.problems.rows import first_rows, precision

_ROWS = 50_000
_WEIGHT_DECAY = 1e-3


def _build(options: Options) -> Instance:
    rows = first_rows(_ROWS, options, CIFAR10_LOGISTIC.name)
    data = load_cifar10(options.data, rows)
    dtype = precision(options, CIFAR10_LOGISTIC.dtype)
    A = logistic.with_bias(data.images.reshape(rows, -1), 255, dtype)
    labels = torch.from_numpy(data.labels)
    return logistic.softmax_regression(A, labels, len(data.classes), _WEIGHT_DECAY, options)


CIFAR10_LOGISTIC = Problem(
    name="cifar10-logistic",
    title="Logistic regression on CIFAR-10",
    formula=logistic.SOFTMAX,
    formula_text=logistic.SOFTMAX_TEXT,
    choices=(
        "The paper's: n = 50,000, 3,072 pixels and a bias, C = 10, λ = 1e-3, the start 0, σ = 0, "
        "‖g‖ ≤ 1e-4 or 100,000 oracle calls, Adam's grid 1e-1 to 1e-5 (its winner is not stated).",
        "Ours, where the paper is silent: pixels are divided by 255, to [0, 1], without centring.",
        "A subset is the first rows in the order of the batches, in which the classes are mixed.",
        logistic.BIAS,
        logistic.LIKELIHOOD,
        logistic.CONSTANTS,
    ),
    build=_build,
    mu=_WEIGHT_DECAY,
    sigma=0.0,
    gtol=1e-4,
    budget=100_000,
    grids=logistic.GRIDS,
)

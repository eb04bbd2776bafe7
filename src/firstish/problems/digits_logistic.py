"""Multi-class logistic regression on scikit-learn's digits: the default, solved in seconds."""

from __future__ import annotations

import torch

from firstish.problems import logistic
from firstish.problems.base import Instance, Options, Problem
from firstish.problems.datasets.readers.digits import ROWS, load_digits
from firstish.problems.rows import first_rows, precision

_WEIGHT_DECAY = 1e-3


def _build(options: Options) -> Instance:
    rows = first_rows(ROWS, options, DIGITS_LOGISTIC.name)
    data = load_digits()
    dtype = precision(options, DIGITS_LOGISTIC.dtype)
    A = logistic.with_bias(data.images[:rows].reshape(rows, -1), 16, dtype)
    labels = torch.from_numpy(data.labels[:rows])
    return logistic.softmax_regression(A, labels, len(data.classes), _WEIGHT_DECAY, options)


DIGITS_LOGISTIC = Problem(
    name="digits-logistic",
    title="Logistic regression on digits",
    formula=logistic.SOFTMAX,
    formula_text=logistic.SOFTMAX_TEXT,
    choices=(
        "Not in the paper: a small version of its CIFAR-10 problem, n = 1,797, 64 pixels and a "
        "bias, C = 10.",
        "λ = 1e-3 and the start 0, as on CIFAR-10.",
        "Pixels are divided by 16, their largest value.",
        "A subset is the first rows in scikit-learn's order, in which the classes are mixed.",
        "It stops at ‖g‖ ≤ 1e-6 or 10,000 oracle calls.",
        logistic.BIAS,
        logistic.LIKELIHOOD,
        logistic.CONSTANTS,
    ),
    build=_build,
    mu=_WEIGHT_DECAY,
    sigma=0.0,
    gtol=1e-6,
    budget=10_000,
    grids=logistic.GRIDS,
)

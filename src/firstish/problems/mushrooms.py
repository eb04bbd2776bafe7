"""Logistic regression on mushrooms: the study of initial step sizes in the paper's first figure."""

from __future__ import annotations

import numpy as np
import torch

from firstish.problems import logistic
from firstish.problems.base import Instance, Options, Problem
from firstish.problems.datasets.readers.libsvm import load_libsvm
from firstish.problems.rows import mixed_rows, precision

INITIAL_STEPS = (1e-1, 1e0, 1e1, 1e2)
"""First trials of the line searches of gradient descent."""

_WEIGHT_DECAY = 1e-3
_POISONOUS = 1


def _build(options: Options) -> Instance:
    data = load_libsvm("mushrooms", data=options.data)
    rows = mixed_rows(len(data.labels), options, MUSHROOMS.name)
    dtype = precision(options, MUSHROOMS.dtype)
    A = logistic.with_bias(data.features[rows].toarray(), 1, dtype)
    if options.device != "mps":  # sparse products are not supported there
        A = A.to_sparse()  # a fifth of the entries are nonzero: a pass takes a third of the time
    signs = torch.from_numpy(np.where(data.labels[rows] == _POISONOUS, 1.0, -1.0)).to(dtype)
    return logistic.logistic_regression(A, signs, _WEIGHT_DECAY, options)


MUSHROOMS = Problem(
    name="mushrooms",
    title="Logistic regression on mushrooms",
    formula=logistic.BINARY,
    formula_text=logistic.BINARY_TEXT,
    choices=(
        "The paper states no settings for this figure. Ours: λ = 1e-3, the start 0, and line "
        "searches that begin at α⁰ = 0.1, 1, 10 or 100 each time (line-search-full@α⁰).",
        "b = 1 for poisonous, −1 for edible; n = 8,124, 112 binary features, unscaled, and a bias.",
        logistic.BIAS,
        "Rows are taken in a fixed random order, the same for every seed; a subset is the first "
        "of them.",
        "The constants are the paper's for C = 2: μ = λ and L = ‖A‖²/(4n) + λ, ‖A‖ the largest "
        "singular value with the bias column, from the Gram matrix in float64.",
        "It stops at ‖g‖ ≤ 1e-6 or 10,000 oracle calls; Adam's grid is that of CIFAR-10.",
    ),
    build=_build,
    mu=_WEIGHT_DECAY,
    sigma=0.0,
    gtol=1e-6,
    budget=10_000,
    grids=logistic.GRIDS,
    panel=("lazy", "cgmr", "mrcg", *(f"line-search-full@{step:g}" for step in INITIAL_STEPS)),
)

"""A small network on scikit-learn's digits."""

from __future__ import annotations

from firstish.problems import mlp, network
from firstish.problems.base import Instance, Options, Problem
from firstish.problems.datasets.readers.digits import ROWS, load_digits
from firstish.problems.rows import first_rows

_WIDTHS = (64, 50, 50, 10)
_WEIGHT_DECAY = 1e-3


def _build(options: Options) -> Instance:
    rows = first_rows(ROWS, options, DIGITS_MLP.name)
    data = load_digits()
    pixels = data.images[:rows].reshape(rows, -1)
    labels = data.labels[:rows]
    return mlp.classifier(_WIDTHS, pixels, 16, labels, _WEIGHT_DECAY, options, DIGITS_MLP.dtype)


DIGITS_MLP = Problem(
    name="digits-mlp",
    title="MLP on digits",
    formula=mlp.FORMULA,
    formula_text=mlp.FORMULA_TEXT,
    choices=(
        "Not in the paper: a small version of its FashionMNIST problem, n = 1,797, h a network "
        "64-50-50-10 with GELU.",
        "λ = 1e-3 and PyTorch's default start, as on FashionMNIST; drawn in float32 from the seed.",
        "λ applies to the biases as to the weights.",
        "Pixels are divided by 16, their largest value.",
        "A subset is the first rows in scikit-learn's order, in which the classes are mixed.",
        "It stops at ‖g‖ ≤ 1e-4 or 10,000 oracle calls; the grids are those of FashionMNIST.",
    ),
    build=_build,
    gtol=1e-4,
    budget=10_000,
    grids=network.GRIDS,
)

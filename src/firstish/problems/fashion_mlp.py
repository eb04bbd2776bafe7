"""A network on FashionMNIST."""

from __future__ import annotations

from firstish.problems import mlp, network
from firstish.problems.base import Instance, Options, Problem
from firstish.problems.datasets.readers.idx import ROWS, load_fashion_mnist
from firstish.problems.rows import first_rows

_WIDTHS = (784, 100, 100, 10)
_WEIGHT_DECAY = 1e-3


def _build(options: Options) -> Instance:
    rows = first_rows(ROWS["train"], options, FASHION_MLP.name)
    data = load_fashion_mnist("train", options.data)
    pixels = data.images[:rows].reshape(rows, -1)
    labels = data.labels[:rows]
    return mlp.classifier(_WIDTHS, pixels, 255, labels, _WEIGHT_DECAY, options, FASHION_MLP.dtype)


FASHION_MLP = Problem(
    name="fashion-mlp",
    title="MLP on FashionMNIST",
    formula=mlp.FORMULA,
    formula_text=mlp.FORMULA_TEXT,
    choices=(
        "The paper's: n = 60,000, h a network 784-100-100-10 with GELU, λ = 1e-3, PyTorch's "
        "default start, σ = 1e-6, ‖g‖ ≤ 1e-4 or 100,000 oracle calls, the grids and their winners.",
        "Ours, where the paper is silent: pixels are divided by 255, to [0, 1].",
        "The start is drawn in float32 from the seed, then converted; the paper's seed is unknown.",
        "λ applies to the biases as to the weights.",
        "A subset is the first rows in the order of the file, in which the classes are mixed.",
    ),
    build=_build,
    gtol=1e-4,
    budget=100_000,
    grids=network.GRIDS,
    rates={"fixed": 1e-2, "adam": 1e-5, "heavy-ball": 1e-3, "nesterov": 1e-3},
)

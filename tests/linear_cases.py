"""Small data for every family, and the same f written with torch for autograd."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from firstish import FunctionObjective, LinearModel, families

ROWS, FEATURES, CLASSES = 40, 6, 4


@dataclass(frozen=True)
class Case:
    """A family, how its targets come from scores, and its losses in plain torch."""

    family: Any
    columns: int | None
    targets: Any
    losses: Any


def _labels(z):
    return torch.distributions.Categorical(logits=z).sample()


def _pinned(z):
    return F.pad(z, (0, 1))


CASES = {
    "logistic": Case(
        families.Logistic(),
        None,
        lambda z: torch.bernoulli(torch.sigmoid(z)).long(),
        lambda z, y: F.binary_cross_entropy_with_logits(z, y.to(z.dtype), reduction="none"),
    ),
    "multinomial": Case(
        families.Multinomial(classes=CLASSES),
        CLASSES,
        _labels,
        lambda z, y: F.cross_entropy(z, y, reduction="none"),
    ),
    "pinned": Case(
        families.Multinomial(classes=CLASSES, pinned=True),
        CLASSES - 1,
        lambda z: _labels(_pinned(z)),
        lambda z, y: F.cross_entropy(_pinned(z), y, reduction="none"),
    ),
    "squares": Case(
        families.LeastSquares(),
        None,
        lambda z: z + torch.randn_like(z),
        lambda z, y: 0.5 * (z - y) ** 2,
    ),
    "several squares": Case(
        families.LeastSquares(),
        3,
        lambda z: z + torch.randn_like(z),
        lambda z, y: 0.5 * ((z - y) ** 2).sum(1),
    ),
    "poisson": Case(
        families.Poisson(),
        None,
        lambda z: torch.poisson(z.clamp(max=3).exp()),
        lambda z, y: F.poisson_nll_loss(z, y, reduction="none"),
    ),
}


@dataclass(frozen=True)
class Setting:
    """What surrounds the loss."""

    sparse: bool = False
    weighted: bool = False
    weight_decay: float = 0.0
    intercept: bool = False
    penalise_intercept: bool = True


SETTINGS = {
    "plain": Setting(),
    "decay": Setting(weight_decay=0.1),
    "weights": Setting(weighted=True),
    "sparse": Setting(sparse=True, weight_decay=0.1),
    "intercept": Setting(intercept=True, weight_decay=0.1),
    "free intercept": Setting(intercept=True, penalise_intercept=False, weight_decay=0.1),
    "all": Setting(True, True, 0.1, True, False),
}


@dataclass(frozen=True)
class Made:
    """One f, twice."""

    linear: LinearModel
    generic: FunctionObjective
    A: Tensor
    targets: Tensor
    weights: Tensor | None

    @property
    def size(self) -> int:
        return self.linear.features.size


def make(
    case: str, setting: Setting, dtype: torch.dtype = torch.float64, condition: float = 1.0
) -> Made:
    """The case on random data, as a linear model and as a function for autograd.

    The largest feature is `condition` times the smallest.
    """
    chosen = CASES[case]
    generator = torch.Generator().manual_seed(1)
    A = torch.randn(ROWS, FEATURES, generator=generator, dtype=torch.float64)
    A = A / torch.logspace(0, math.log10(condition), FEATURES, dtype=A.dtype)
    if setting.sparse:
        A = A * (torch.rand(A.shape, generator=generator) < 0.4)
    rows = 1 if chosen.columns is None else chosen.columns
    width = FEATURES + setting.intercept
    true = torch.randn(rows, width, generator=generator, dtype=torch.float64) / 2
    full = torch.cat([A, torch.ones(ROWS, 1, dtype=A.dtype)], 1) if setting.intercept else A

    def scores(x: Tensor) -> Tensor:
        z = full.to(x.dtype) @ x.view(rows, width).T
        return z.squeeze(1) if chosen.columns is None else z

    with torch.random.fork_rng():
        torch.manual_seed(2)
        y = chosen.targets(scores(true.reshape(-1)))
    if y.is_floating_point():
        y = y.to(dtype)
    w = torch.rand(ROWS, generator=generator, dtype=torch.float64).to(dtype)
    w[3] = 0
    w = w if setting.weighted else None
    penalised = torch.ones(rows, width, dtype=dtype)
    if setting.intercept and not setting.penalise_intercept:
        penalised[:, -1] = 0

    def f(x: Tensor) -> Tensor:
        losses = chosen.losses(scores(x), y)
        mean = losses.mean() if w is None else (w * losses).sum() / w.sum()
        return mean + setting.weight_decay / 2 * (penalised.reshape(-1) * x * x).sum()

    features = A.to(dtype)
    linear = LinearModel(
        features.to_sparse() if setting.sparse else features,
        y,
        chosen.family,
        sample_weight=w,
        weight_decay=setting.weight_decay,
        intercept=setting.intercept,
        penalise_intercept=setting.penalise_intercept,
    )
    example = torch.zeros(rows * width, dtype=dtype)
    return Made(
        linear, FunctionObjective(f, example, product="double-backward", check=False), A, y, w
    )

"""Fully connected networks with GELU."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstish.problems import network
from firstish.problems.base import Instance, Options
from firstish.problems.rows import precision
from firstish.problems.seeded import seeded

FORMULA = (
    r"f(x) = \frac1n \sum_{i=1}^n \operatorname{CrossEntropy}\big( h(x; a_i), b_i \big) "
    r"+ \frac{\lambda}{2} \lVert x \rVert^2"
)
FORMULA_TEXT = "f(x) = 1/n Σᵢ CrossEntropy(h(x; aᵢ), bᵢ) + λ/2 ‖x‖²"


def mlp(widths: tuple[int, ...], seed: int) -> nn.Sequential:
    """Linear layers of these widths with GELU between them, in float32.

    The start is PyTorch's default: uniform in [-1/sqrt(k), 1/sqrt(k)], k the number of inputs of
    the layer.
    """
    layers: list[nn.Module] = []
    with seeded(seed):
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs, dtype=torch.float32), nn.GELU()]
    return nn.Sequential(*layers[:-1])


def classifier(
    widths: tuple[int, ...],
    features: NDArray[np.uint8],
    scale: float,
    labels: NDArray[np.int64],
    weight_decay: float,
    options: Options,
    own: torch.dtype,
) -> Instance:
    """The mean cross-entropy of a network that classifies the rows of `features / scale`."""
    dtype = precision(options, own)
    model = mlp(widths, options.seed).to(options.device, dtype)
    inputs = torch.from_numpy(features).to(options.device, dtype) / scale
    targets = torch.from_numpy(labels).to(options.device)
    return network.classifier(model, inputs, targets, weight_decay, options)

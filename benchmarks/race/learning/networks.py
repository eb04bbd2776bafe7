"""An autoencoder, and softmax regression without a penalty, on the digits."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from firstish.problems.base import Instance
from firstish.problems.datasets.readers.digits import load_digits
from race.learning.making import glorot, learning, shapes, split
from race.problem import function

_ROWS = 200


def _pixels() -> tuple[Tensor, Tensor]:
    data = load_digits()
    pixels = torch.from_numpy(data.images[:_ROWS].reshape(_ROWS, -1)).double() / 16
    return pixels, torch.from_numpy(data.labels[:_ROWS])


def autoencoder() -> Instance:
    """64-32-8-32-64 with tanh, mean squared error; Glorot's start."""
    pixels, _ = _pixels()
    widths = (64, 32, 8, 32, 64)
    layout = shapes(widths)

    def loss(x: Tensor) -> Tensor:
        parts = split(x, layout)
        h = pixels
        for weight, bias in zip(parts[:-2:2], parts[1:-2:2], strict=True):
            h = torch.tanh(F.linear(h, weight, bias))
        return F.mse_loss(F.linear(h, parts[-2], parts[-1]), pixels)

    return function(loss, glorot(10, widths))


def multinomial() -> Instance:
    """Softmax on standardised pixels, no penalty: separable, so the minimum 0 is at infinity."""
    pixels, labels = _pixels()
    used = pixels[:, pixels.std(0) > 0]
    scaled = (used - used.mean(0)) / used.std(0)
    A = F.pad(scaled, (0, 1), value=1.0)

    def loss(x: Tensor) -> Tensor:
        return F.cross_entropy(A @ x.view(10, -1).T, labels)

    return function(loss, torch.zeros(10 * A.shape[1], dtype=torch.float64))


NETWORKS = (
    learning("digits-autoencoder", autoencoder),
    learning("digits-multinomial", multinomial),
)

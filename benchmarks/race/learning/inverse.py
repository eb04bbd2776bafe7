"""Inverse problems: phases from intensities, and a sharp signal from a blurred one."""

from __future__ import annotations

import torch
from torch import Tensor

from firstish.problems.base import Instance
from race.learning.making import learning, normal
from race.problem import function


def phase_retrieval() -> Instance:
    """(<a_i, x>² - y_i)² / 4 on average over 200 real measurements of 40 numbers."""
    A, truth = normal(120, 200, 40), normal(121, 40)
    y = (A @ truth) ** 2
    # The spectral start: the leading eigenvector of the mean of y_i a_i a_iᵀ, at the right length.
    vectors = torch.linalg.eigh(A.T @ (y[:, None] * A)).eigenvectors
    x0 = vectors[:, -1] * torch.sqrt(y.mean())
    x0 = x0 * torch.sign(x0[0])

    def loss(x: Tensor) -> Tensor:
        return (((A @ x) ** 2 - y) ** 2).mean() / 4

    return function(loss, x0)


def deconvolution() -> Instance:
    """A blurred signal of 128 steps: least squares and a smooth total variation."""
    t = torch.arange(128, dtype=torch.float64)
    sharp = (t > 30).double() - 2 * (t > 55).double() + 1.5 * (t > 90).double()
    blur = torch.exp(-((t[:, None] - t[None]) ** 2) / (2 * 3.0**2))
    blur = blur / blur.sum(1, keepdim=True)
    y = blur @ sharp + 0.01 * normal(130, 128)

    def loss(x: Tensor) -> Tensor:
        r, jumps = blur @ x - y, x[1:] - x[:-1]
        return r.dot(r) / 2 + 1e-3 * torch.sqrt(jumps**2 + 1e-4).sum()

    return function(loss, torch.zeros(128, dtype=torch.float64))


INVERSE = (learning("phase-retrieval", phase_retrieval), learning("deconvolution", deconvolution))

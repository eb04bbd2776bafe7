"""Helpers of the problems in this folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from firstish.problems.base import Instance
from race.problem import RaceProblem


def learning(name: str, build: Callable[[], Instance]) -> RaceProblem:
    """A problem whose minimum only the race itself can find."""
    return RaceProblem(name=name, family="learning", build=build)


def normal(seed: int, *shape: int) -> Tensor:
    """Standard normal numbers in float64, always the same."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def shapes(widths: Sequence[int]) -> list[tuple[int, ...]]:
    """Those of the weights and biases of a network, layer by layer."""
    return [shape for a, b in pairwise(widths) for shape in ((b, a), (b,))]


def split(x: Tensor, layout: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """A vector as tensors of these shapes."""
    parts = torch.split(x, [torch.Size(shape).numel() for shape in layout])
    return [part.view(shape) for part, shape in zip(parts, layout, strict=True)]


def glorot(seed: int, widths: Sequence[int]) -> Tensor:
    """Glorot's normal start, biases 0, as one vector."""
    parts = []
    for k, (a, b) in enumerate(pairwise(widths)):
        parts += [normal(seed + k, b * a) * (2 / (a + b)) ** 0.5, torch.zeros(b).double()]
    return torch.cat(parts)

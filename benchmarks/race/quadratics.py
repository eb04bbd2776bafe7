"""Convex quadratics of given spectra, rotated so that no coordinate is special.

f(x) = 1/2 |B (x - c)|²,   B = diag(√λ) Q,   Q a product of three Householder reflections
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from firstish.problems.base import Instance
from race.problem import RaceProblem, function

DIMENSION = 200
CONDITIONS = (1e2, 1e4, 1e6, 1e8)


def uniform(condition: float, generator: torch.Generator) -> Tensor:
    """Equally spaced from 1 to the condition number."""
    return torch.linspace(1, condition, DIMENSION, dtype=torch.float64)


def geometric(condition: float, generator: torch.Generator) -> Tensor:
    """Equally spaced logarithms."""
    return condition ** torch.linspace(0, 1, DIMENSION, dtype=torch.float64)


def clustered(condition: float, generator: torch.Generator) -> Tensor:
    """Five clusters at geometric centres, each spread by 5 %."""
    centres = condition ** torch.linspace(0, 1, 5, dtype=torch.float64)
    return _ends(centres.repeat_interleave(DIMENSION // 5) * _spread(generator), condition)


def two_clusters(condition: float, generator: torch.Generator) -> Tensor:
    """Half of them near 1 and half near the condition number, each spread by 5 %."""
    centres = torch.tensor([1, condition], dtype=torch.float64)
    return _ends(centres.repeat_interleave(DIMENSION // 2) * _spread(generator), condition)


def outliers(condition: float, generator: torch.Generator) -> Tensor:
    """From 1 to 10, but for five that reach up to the condition number."""
    bulk = 1 + 9 * torch.rand(DIMENSION - 5, generator=generator, dtype=torch.float64)
    far = condition ** torch.linspace(0.6, 1, 5, dtype=torch.float64)
    return _ends(torch.cat([bulk, far]), condition)


SPECTRA: dict[str, Callable[[float, torch.Generator], Tensor]] = {
    "uniform": uniform,
    "geometric": geometric,
    "clustered": clustered,
    "two-clusters": two_clusters,
    "outliers": outliers,
}


def _spread(generator: torch.Generator) -> Tensor:
    return 0.95 + 0.1 * torch.rand(DIMENSION, generator=generator, dtype=torch.float64)


def _ends(spectrum: Tensor, condition: float) -> Tensor:
    """Sorted, with the least eigenvalue 1 and the largest the condition number, exactly."""
    spectrum = spectrum.clamp(1, condition).sort().values
    spectrum[0], spectrum[-1] = 1, condition
    return spectrum


def quadratic(spectrum: str, condition: float) -> Instance:
    """Start 0, the minimiser c of length about √d; the constants are 1 and the condition number."""
    seed = 100 * list(SPECTRA).index(spectrum) + CONDITIONS.index(condition)
    generator = torch.Generator().manual_seed(seed)
    eigenvalues = SPECTRA[spectrum](condition, generator)
    normals = torch.randn(3, DIMENSION, generator=generator, dtype=torch.float64)
    centre = torch.randn(DIMENSION, generator=generator, dtype=torch.float64)
    B = torch.diag(torch.sqrt(eigenvalues))
    for v in normals / normals.norm(dim=1, keepdim=True):
        B = B - 2 * torch.outer(B @ v, v)

    def f(x: Tensor) -> Tensor:
        r = B @ (x - centre)
        return r.dot(r) / 2

    return function(f, torch.zeros_like(centre), mu=1.0, lipschitz=condition)


def _problem(spectrum: str, condition: float) -> RaceProblem:
    return RaceProblem(
        name=f"quadratic-{spectrum}-{condition:.0e}",
        family="quadratic",
        build=lambda: quadratic(spectrum, condition),
        reference=0.0,
    )


QUADRATICS = tuple(_problem(s, c) for s in SPECTRA for c in CONDITIONS)

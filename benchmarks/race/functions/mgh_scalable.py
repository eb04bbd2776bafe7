"""Moré, Garbow and Hillstrom's functions of any number of variables, each at one size."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from race.functions.sums import count, squares
from race.problem import classical


def extended_rosenbrock(x: Tensor) -> Tensor:
    """[21]"""
    a, b = x.view(-1, 2).unbind(1)
    return torch.cat([10 * (b - a**2), 1 - a])


def extended_powell(x: Tensor) -> Tensor:
    """[22]"""
    a, b, c, d = x.view(-1, 4).unbind(1)
    root5, root10 = math.sqrt(5), math.sqrt(10)
    return torch.cat([a + 10 * b, root5 * (c - d), (b - 2 * c) ** 2, root10 * (a - d) ** 2])


def penalty1(x: Tensor) -> Tensor:
    """[23]"""
    return torch.cat([math.sqrt(1e-5) * (x - 1), (x.dot(x) - 0.25).view(1)])


def penalty2(x: Tensor) -> Tensor:
    """[24]"""
    n, root = len(x), math.sqrt(1e-5)
    e, i = torch.exp(x / 10), count(len(x))
    y = torch.exp(i[1:] / 10) + torch.exp(i[:-1] / 10)
    weights = n + 1 - i
    return torch.cat(
        [
            (x[0] - 0.2).view(1),
            root * (e[1:] + e[:-1] - y),
            root * (e[1:] - math.exp(-0.1)),
            ((weights * x).dot(x) - 1).view(1),
        ]
    )


def variably_dimensioned(x: Tensor) -> Tensor:
    """[25]"""
    r = x - 1
    weighted = count(len(x)).dot(r)
    return torch.cat([r, torch.stack([weighted, weighted**2])])


def trigonometric(x: Tensor) -> Tensor:
    """[26]"""
    n, cos = len(x), torch.cos(x)
    return n - cos.sum() + count(n) * (1 - cos) - torch.sin(x)


def brown_almost_linear(x: Tensor) -> Tensor:
    """[27]"""
    return torch.cat([x[:-1] + x.sum() - (len(x) + 1), (x.prod() - 1).view(1)])


def boundary_value(x: Tensor) -> Tensor:
    """[28]"""
    h = 1 / (len(x) + 1)
    wide = F.pad(x, (1, 1))
    return 2 * x - wide[:-2] - wide[2:] + h**2 * (x + h * count(len(x)) + 1) ** 3 / 2


def integral_equation(x: Tensor) -> Tensor:
    """[29]"""
    h = 1 / (len(x) + 1)
    t = h * count(len(x))
    cubes = (x + t + 1) ** 3
    below = torch.cumsum(t * cubes, 0)
    above = (1 - t) * cubes
    above = above.sum() - torch.cumsum(above, 0)
    return x + h * ((1 - t) * below + t * above) / 2


def broyden_tridiagonal(x: Tensor) -> Tensor:
    """[30]"""
    wide = F.pad(x, (1, 1))
    return (3 - 2 * x) * x - wide[:-2] - 2 * wide[2:] + 1


def broyden_banded(x: Tensor) -> Tensor:
    """[31]: five below, one above"""
    wide = F.pad(x * (1 + x), (5, 1))
    n = len(x)
    band = sum((wide[k : k + n] for k in (0, 1, 2, 3, 4, 6)), torch.zeros_like(x))
    return x * (2 + 5 * x**2) + 1 - band


def linear_full_rank(x: Tensor) -> Tensor:
    """[32], m = 2n"""
    n = len(x)
    m = 2 * n
    return F.pad(x, (0, m - n)) - 2 / m * x.sum() - 1


def linear_rank1(x: Tensor) -> Tensor:
    """[33], m = 2n"""
    return count(2 * len(x)) * count(len(x)).dot(x) - 1


def linear_rank1_zero(x: Tensor) -> Tensor:
    """[34], m = 2n: the first and last column and row are zero"""
    n = len(x)
    rows = F.pad(count(2 * n - 2), (1, 1))
    return rows * count(n - 2, 2).dot(x[1:-1]) - 1


@cache
def _chebyshev_integrals(n: int) -> Tensor:
    """Of T_1 to T_n over [0, 1], shifted to it."""
    means = [-1 / (i * i - 1) if i % 2 == 0 else 0.0 for i in range(1, n + 1)]
    return torch.tensor(means, dtype=torch.float64)


def chebyquad(x: Tensor) -> Tensor:
    """[35], m = n"""
    y = 2 * x - 1
    twice, rows = 2 * y, [torch.ones_like(x), y]
    while len(rows) <= len(x):
        rows.append(twice * rows[-1] - rows[-2])
    return torch.stack(rows[1:]).mean(1) - _chebyshev_integrals(len(x))


def _grid(n: int) -> list[float]:
    """t (t - 1) at t = j / (n + 1)."""
    return [j / (n + 1) * (j / (n + 1) - 1) for j in range(1, n + 1)]


def _rank1(m: int) -> float:
    return m * (m - 1) / (2 * (2 * m + 1))


def _rank1_zero(m: int) -> float:
    return (m * m + 3 * m - 6) / (2 * (2 * m - 3))


MGH_SCALABLE = (
    classical("extended-rosenbrock", squares(extended_rosenbrock), [-1.2, 1] * 100, 0.0),
    classical("extended-powell", squares(extended_powell), [3, -1, 0, 1] * 25, 0.0),
    classical(
        "penalty1",
        squares(penalty1),
        [float(j) for j in range(1, 11)],
        7.087651467090369e-05,
        published=7.08765e-5,
    ),
    classical(
        "penalty2", squares(penalty2), [0.5] * 10, 0.00029366053745674594, published=2.93660e-4
    ),
    classical(
        "variably-dimensioned",
        squares(variably_dimensioned),
        [1 - j / 50 for j in range(1, 51)],
        0.0,
    ),
    classical(
        "trigonometric",
        squares(trigonometric),
        [1 / 10] * 10,
        2.79505612187844e-05,
        published=2.79506e-5,
        lowest=0.0,
    ),
    classical("brown-almost-linear", squares(brown_almost_linear), [0.5] * 10, 0.0),
    classical("boundary-value", squares(boundary_value), _grid(50), 0.0),
    classical("integral-equation", squares(integral_equation), _grid(50), 0.0),
    classical("broyden-tridiagonal", squares(broyden_tridiagonal), [-1] * 100, 0.0),
    classical("broyden-banded", squares(broyden_banded), [-1] * 100, 0.0),
    classical("linear-full-rank", squares(linear_full_rank), [1] * 50, 50.0),
    classical("linear-rank1", squares(linear_rank1), [1] * 20, _rank1(40)),
    classical("linear-rank1-zero", squares(linear_rank1_zero), [1] * 20, _rank1_zero(40)),
    classical(
        "chebyquad8",
        squares(chebyquad),
        [j / 9 for j in range(1, 9)],
        0.0035168737256779,
        published=3.51687e-3,
    ),
    classical(
        "chebyquad10",
        squares(chebyquad),
        [j / 11 for j in range(1, 11)],
        0.006503954800,
        published=6.50395e-3,
        lowest=0.004772713696375353,
    ),
)

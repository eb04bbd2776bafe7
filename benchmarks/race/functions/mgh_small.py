"""Moré, Garbow and Hillstrom's functions of two to four variables without data, and Cube."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from race.functions.sums import count, squares
from race.problem import classical


def rosenbrock(x: Tensor) -> Tensor:
    """[1]"""
    a, b = x.unbind()
    return torch.stack([10 * (b - a**2), 1 - a])


def freudenstein_roth(x: Tensor) -> Tensor:
    """[2]"""
    a, b = x.unbind()
    return torch.stack([-13 + a + ((5 - b) * b - 2) * b, -29 + a + ((b + 1) * b - 14) * b])


def powell_badly_scaled(x: Tensor) -> Tensor:
    """[3]"""
    a, b = x.unbind()
    return torch.stack([1e4 * a * b - 1, torch.exp(-x).sum() - 1.0001])


def brown_badly_scaled(x: Tensor) -> Tensor:
    """[4]"""
    a, b = x.unbind()
    return torch.stack([a - 1e6, b - 2e-6, a * b - 2])


def beale(x: Tensor) -> Tensor:
    """[5]"""
    a, b = x.unbind()
    return torch.stack([1.5 - a * (1 - b), 2.25 - a * (1 - b**2), 2.625 - a * (1 - b**3)])


def jennrich_sampson(x: Tensor) -> Tensor:
    """[6], m = 10"""
    i = count(10)
    return 2 + 2 * i - torch.exp(i[:, None] * x).sum(1)


def helical_valley(x: Tensor) -> Tensor:
    """[7]

    theta is arctan(x2/x1)/2π, plus 1/2 where x1 < 0; atan2 on either side avoids the division.
    """
    a, b, c = x.unbind()
    if float(a.detach()) < 0:
        theta = torch.atan2(-b, -a) / (2 * math.pi) + 0.5
    else:
        theta = torch.atan2(b, a) / (2 * math.pi)
    return torch.stack([10 * (c - 10 * theta), 10 * (torch.sqrt(a**2 + b**2) - 1), c])


def powell_singular(x: Tensor) -> Tensor:
    """[13]"""
    a, b, c, d = x.unbind()
    root5, root10 = math.sqrt(5), math.sqrt(10)
    return torch.stack([a + 10 * b, root5 * (c - d), (b - 2 * c) ** 2, root10 * (a - d) ** 2])


def wood(x: Tensor) -> Tensor:
    """[14]"""
    a, b, c, d = x.unbind()
    r90, r10 = math.sqrt(90), math.sqrt(10)
    return torch.stack(
        [10 * (b - a**2), 1 - a, r90 * (d - c**2), 1 - c, r10 * (b + d - 2), (b - d) / r10]
    )


def cube(x: Tensor) -> Tensor:
    """CUTEst's CUBE (Leon, 1966)"""
    a, b = x.unbind()
    return torch.stack([a - 1, 10 * (b - a**3)])


def engval2(x: Tensor) -> Tensor:
    """CUTEst's ENGVAL2 (Engvall, 1966)"""
    a, b, c = x.unbind()
    round_ = a**2 + b**2
    return torch.stack(
        [
            round_ + c**2 - 1,
            round_ + (c - 2) ** 2 - 1,
            a + b + c - 1,
            a + b - c + 1,
            a**3 + 3 * b**2 + (5 * c - a + 1) ** 2 - 36,
        ]
    )


def denschnb(x: Tensor) -> Tensor:
    """CUTEst's DENSCHNB (Dennis and Schnabel, 1983)"""
    a, b = x.unbind()
    return torch.stack([a - 2, (a - 2) * b, b + 1])


def denschnf(x: Tensor) -> Tensor:
    """CUTEst's DENSCHNF (Dennis and Schnabel, 1983)"""
    a, b = x.unbind()
    first = 2 * (a + b) ** 2 + (a - b) ** 2 - 8
    return torch.stack([first, 5 * a**2 + (b - 3) ** 2 - 9])


MGH_SMALL = (
    classical("rosenbrock", squares(rosenbrock), [-1.2, 1], 0.0),
    classical(
        "freudenstein-roth",
        squares(freudenstein_roth),
        [0.5, -2],
        48.98425367923989,
        published=48.9842,
        lowest=0.0,
    ),
    classical("powell-badly-scaled", squares(powell_badly_scaled), [0, 1], 0.0),
    classical("brown-badly-scaled", squares(brown_badly_scaled), [1, 1], 0.0),
    classical("beale", squares(beale), [1, 1], 0.0),
    classical(
        "jennrich-sampson",
        squares(jennrich_sampson),
        [0.3, 0.4],
        124.36218235561489,
        published=124.362,
    ),
    classical("helical-valley", squares(helical_valley), [-1, 0, 0], 0.0),
    classical("powell-singular", squares(powell_singular), [3, -1, 0, 1], 0.0),
    classical("wood", squares(wood), [-3, -1, -3, -1], 0.0),
    classical("cube", squares(cube), [-1.2, 1], 0.0),
    classical("engval2", squares(engval2), [1, 2, 0], 0.0),
    classical("denschnb", squares(denschnb), [1, 1], 0.0),
    classical("denschnf", squares(denschnf), [2, 0], 0.0),
)

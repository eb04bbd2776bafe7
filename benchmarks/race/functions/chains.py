"""Functions of CUTEst whose neighbouring variables are coupled, each at one size."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from race.functions.sums import count
from race.problem import classical


def _sum2(r: Tensor) -> Tensor:
    return r.dot(r)


def bdqrtic(x: Tensor) -> Tensor:
    """Conn, Gould, Lescrenier, Toint (1994), problem 61"""
    s = x**2
    inner = s[:-4] + 2 * s[1:-3] + 3 * s[2:-2] + 4 * s[3:-1] + 5 * s[-1]
    return _sum2(3 - 4 * x[:-4]) + _sum2(inner)


def engval1(x: Tensor) -> Tensor:
    """Toint (1978), problem 31"""
    s = x**2
    return _sum2(s[:-1] + s[1:]) + (3 - 4 * x[:-1]).sum()


def tridia(x: Tensor) -> Tensor:
    """Toint (1978), problem 8: alpha = 2, the rest 1"""
    i = count(len(x) - 1, 2)
    return (x[0] - 1) ** 2 + i.dot((2 * x[1:] - x[:-1]) ** 2)


def cragglvy(x: Tensor) -> Tensor:
    """Toint (1982), problem 32"""
    a, b = x[0:-2:2], x[1:-2:2]
    c, d = x[2::2], x[3::2]
    gap = c - d
    return (
        ((torch.exp(a) - b) ** 4).sum()
        + 100 * ((b - c) ** 6).sum()
        + ((torch.tan(gap) + gap) ** 4).sum()
        + (a**8).sum()
        + _sum2(d - 1)
    )


def fletchcr(x: Tensor) -> Tensor:
    """Fletcher's chained Rosenbrock function"""
    return 100 * _sum2(x[1:] - x[:-1] + 1 - x[:-1] ** 2)


def edensch(x: Tensor) -> Tensor:
    """Li (1988): the extended Dennis and Schnabel function"""
    a, b = x[:-1], x[1:]
    return 16 + ((a - 2) ** 4).sum() + _sum2(a * b - 2 * b) + _sum2(b + 1)


def dqdrtic(x: Tensor) -> Tensor:
    """Toint (1978), problem 22"""
    s = x**2
    return s[:-2].sum() + 100 * s[1:-1].sum() + 100 * s[2:].sum()


def cosine(x: Tensor) -> Tensor:
    """Luksan and Vlcek; the sum of cos(x_i^2 - x_{i+1}/2)"""
    return torch.cos(x[:-1] ** 2 - x[1:] / 2).sum()


def genrose(x: Tensor) -> Tensor:
    """Generalised Rosenbrock function, Nash (1984)"""
    return 1 + 100 * _sum2(x[1:] - x[:-1] ** 2) + _sum2(x[1:] - 1)


def nondquar(x: Tensor) -> Tensor:
    """Conn, Gould, Lescrenier, Toint (1994), problem 57"""
    ends = (x[0] - x[1]) ** 2 + (x[-2] + x[-1]) ** 2
    return ends + ((x[:-2] + x[1:-1] + x[-1]) ** 4).sum()


def schmvett(x: Tensor) -> Tensor:
    """Schmidt and Vetters (1970)"""
    a, b, c = x[:-2], x[1:-1], x[2:]
    terms = (
        1 / (1 + (a - b) ** 2)
        + torch.sin((math.pi * b + c) / 2)
        + torch.exp(-(((a + c) / b - 2) ** 2))
    )
    return -terms.sum()


def tointgss(x: Tensor) -> Tensor:
    """Toint's Gaussian problem"""
    a, b, s = x[:-2], x[1:-1], x[2:] ** 2
    return ((10 / (len(x) + 2) + s) * (2 - torch.exp(-((a - b) ** 2) / (0.1 + s)))).sum()


def dixon3dq(x: Tensor) -> Tensor:
    """Dixon's tridiagonal quadratic"""
    return (x[0] - 1) ** 2 + _sum2(x[1:-1] - x[2:]) + (x[-1] - 1) ** 2


CHAINS = (
    classical("bdqrtic", bdqrtic, [1] * 100, 378.76919180868424),
    classical("engval1", engval1, [2] * 100, 109.08813614309213),
    classical("tridia", tridia, [1] * 100, 0.0),
    classical("cragglvy", cragglvy, [1] + [2] * 99, 32.26991145858178),
    classical("fletchcr", fletchcr, [0] * 50, 0.0),
    classical("edensch", edensch, [8] * 36, 219.28459202076465),
    classical("dqdrtic", dqdrtic, [3] * 500, 0.0),
    classical("cosine", cosine, [1] * 100, -99.0),
    classical("genrose", genrose, [i / 51 for i in range(1, 51)], 1.0),
    classical("nondquar", nondquar, [1, -1] * 50, 0.0),
    classical("schmvett", schmvett, [0.5] * 100, -294.0),
    classical("tointgss", tointgss, [3] * 50, 480 / 52),
    classical("dixon3dq", dixon3dq, [-1] * 100, 0.0),
)

"""Functions of CUTEst coupled through one variable, through blocks or not at all."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from race.functions.sums import count
from race.problem import classical


def arwhead(x: Tensor) -> Tensor:
    """Conn, Gould, Lescrenier, Toint (1994), problem 55"""
    a = x[:-1]
    arrow = a**2 + x[-1] ** 2
    return arrow.dot(arrow) + (3 - 4 * a).sum()


def nondia(x: Tensor) -> Tensor:
    """Shanno (1978): a Rosenbrock function that is not diagonal"""
    r = x[0] - x[:-1] ** 2
    return (x[0] - 1) ** 2 + 100 * r.dot(r)


def woods(x: Tensor) -> Tensor:
    """Wood's function in blocks of four"""
    a, b, c, d = x.view(-1, 4).unbind(1)
    terms = (
        100 * (b - a**2) ** 2
        + (1 - a) ** 2
        + 90 * (d - c**2) ** 2
        + (1 - c) ** 2
        + 10 * (b + d - 2) ** 2
        + 0.1 * (b - d) ** 2
    )
    return terms.sum()


def liarwhd(x: Tensor) -> Tensor:
    """Li (1988): a simplified NONDIA"""
    r, s = 2 * (x**2 - x[0]), x - 1
    return r.dot(r) + s.dot(s)


def power(x: Tensor) -> Tensor:
    """Oren (1974)"""
    return count(len(x)).dot(x**2) ** 2


def dqrtic(x: Tensor) -> Tensor:
    """Conn, Gould, Lescrenier, Toint (1994), problem 157"""
    return ((x - count(len(x))) ** 4).sum()


def dixmaan(
    beta: float, gamma: float, delta: float, k: tuple[int, int, int, int]
) -> Callable[[Tensor], Tensor]:
    """Dixon and Maany (1988): alpha = 1, and the powers k of i/n in the four sums."""

    def f(x: Tensor) -> Tensor:
        n = len(x)
        m = n // 3
        i, s = count(n) / n, x**2
        first = (s * i ** k[0]).sum()
        second = (s[:-1] * (x[1:] + s[1:]) ** 2 * i[:-1] ** k[1]).sum()
        third = (s[: 2 * m] * s[m:] ** 2 * i[: 2 * m] ** k[2]).sum()
        fourth = (x[:m] * x[2 * m :] * i[:m] ** k[3]).sum()
        return 1 + first + beta * second + gamma * third + delta * fourth

    return f


def sinquad(x: Tensor) -> Tensor:
    """Conn, Gould, Lescrenier, Toint (1994), problem 56"""
    a, mid, z = x[0], x[1:-1], x[-1]
    r = torch.sin(mid - z) - a**2 + mid**2
    return (a - 1) ** 4 + r.dot(r) + (z**2 - a**2) ** 2


SEPARABLE = (
    classical("arwhead", arwhead, [1] * 100, 0.0),
    classical("nondia", nondia, [-1] * 100, 0.0),
    classical("woods", woods, [-3, -1, -3, -1] * 50, 0.0),
    classical("liarwhd", liarwhd, [4] * 100, 0.0),
    classical("power", power, [1] * 100, 0.0),
    classical("dqrtic", dqrtic, [2] * 50, 0.0),
    classical("dixmaana", dixmaan(0, 0.125, 0.125, (0, 0, 0, 0)), [2] * 90, 1.0),
    classical("dixmaane", dixmaan(0, 0.125, 0.125, (1, 0, 0, 1)), [2] * 90, 1.0),
    classical("dixmaanj", dixmaan(0.0625, 0.0625, 0.0625, (2, 0, 0, 2)), [2] * 90, 1.0),
    classical("sinquad", sinquad, [0.1] * 50, 0.0),
)

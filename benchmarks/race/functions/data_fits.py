"""Moré, Garbow and Hillstrom's small fits to data."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from race.functions.sums import count, squares
from race.problem import classical


def _data(text: str) -> Tensor:
    return torch.tensor([float(word) for word in text.split()], dtype=torch.float64)


_BARD = _data(".14 .18 .22 .25 .29 .32 .35 .39 .37 .58 .73 .96 1.34 2.10 4.39")
_GAUSSIAN = _data(
    ".0009 .0044 .0175 .0540 .1295 .2420 .3521 .3989 .3521 .2420 .1295 .0540 .0175 .0044 .0009"
)
_MEYER = _data(
    "34780 28610 23650 19630 16370 13720 11540 9744 8261 7030 6005 5147 4427 3820 3307 2872"
)
_KOWALIK_Y = _data(".1957 .1947 .1735 .1600 .0844 .0627 .0456 .0342 .0323 .0235 .0246")
_KOWALIK_U = _data("4 2 1 .5 .25 .167 .125 .1 .0833 .0714 .0625")
_GULF_T = count(99) / 100
_GULF_Y = 25 + (-50 * torch.log(_GULF_T)) ** (2 / 3)
_BOX_T = count(10) / 10
_BOX_GAP = torch.exp(-_BOX_T) - torch.exp(-10 * _BOX_T)
_DENNIS_T = count(20) / 5
_BIGGS_T = count(13) / 10
_BIGGS_Y = torch.exp(-_BIGGS_T) - 5 * torch.exp(-10 * _BIGGS_T) + 3 * torch.exp(-4 * _BIGGS_T)
_OSBORNE1 = _data(
    ".844 .908 .932 .936 .925 .908 .881 .850 .818 .784 .751 .718 .685 .658 .628 .603 .580 .558 "
    ".538 .522 .506 .490 .478 .467 .457 .448 .438 .431 .424 .420 .414 .411 .406"
)
_OSBORNE2 = _data(
    "1.366 1.191 1.112 1.013 .991 .885 .831 .847 .786 .725 .746 .679 .608 .655 .616 .606 .602 "
    ".626 .651 .724 .649 .649 .694 .644 .624 .661 .612 .558 .533 .495 .500 .423 .395 .375 .372 "
    ".391 .396 .405 .428 .429 .523 .562 .607 .653 .672 .708 .633 .668 .645 .632 .591 .559 .597 "
    ".625 .739 .710 .729 .720 .636 .581 .428 .292 .162 .098 .054"
)


def bard(x: Tensor) -> Tensor:
    """[8]"""
    a, b, c = x.unbind()
    u = count(15)
    v = 16 - u
    return _BARD - (a + u / (v * b + torch.minimum(u, v) * c))


def gaussian(x: Tensor) -> Tensor:
    """[9]"""
    a, b, c = x.unbind()
    t = (8 - count(15)) / 2
    return a * torch.exp(-b * (t - c) ** 2 / 2) - _GAUSSIAN


def meyer(x: Tensor) -> Tensor:
    """[10]"""
    a, b, c = x.unbind()
    t = 45 + 5 * count(16)
    return a * torch.exp(b / (t + c)) - _MEYER


def gulf(x: Tensor) -> Tensor:
    """[11], m = 99; with y - x2 in the absolute value, as in the authors' program."""
    a, b, c = x.unbind()
    return torch.exp(-((_GULF_Y - b).abs() ** c) / a) - _GULF_T


def box3d(x: Tensor) -> Tensor:
    """[12], m = 10"""
    a, b, c = x.unbind()
    return torch.exp(-_BOX_T * a) - torch.exp(-_BOX_T * b) - c * _BOX_GAP


def kowalik_osborne(x: Tensor) -> Tensor:
    """[15]"""
    a, b, c, d = x.unbind()
    u = _KOWALIK_U
    return _KOWALIK_Y - a * (u**2 + u * b) / (u**2 + u * c + d)


def brown_dennis(x: Tensor) -> Tensor:
    """[16], m = 20"""
    a, b, c, d = x.unbind()
    t = _DENNIS_T
    return (a + t * b - torch.exp(t)) ** 2 + (c + d * torch.sin(t) - torch.cos(t)) ** 2


def osborne1(x: Tensor) -> Tensor:
    """[17]"""
    a, b, c, d, e = x.unbind()
    t = 10 * count(33, 0)
    return _OSBORNE1 - (a + b * torch.exp(-t * d) + c * torch.exp(-t * e))


def biggs_exp6(x: Tensor) -> Tensor:
    """[18], m = 13"""
    a, b, c, d, e, f = x.unbind()
    t = _BIGGS_T
    return c * torch.exp(-t * a) - d * torch.exp(-t * b) + f * torch.exp(-t * e) - _BIGGS_Y


def osborne2(x: Tensor) -> Tensor:
    """[19]"""
    t = count(65, 0) / 10
    bumps = torch.exp(-((t[:, None] - x[8:]) ** 2) * x[5:8]) @ x[1:4]
    return _OSBORNE2 - (x[0] * torch.exp(-t * x[4]) + bumps)


@cache
def _watson_tables(n: int) -> tuple[Tensor, Tensor]:
    """t_i^(j-1), and its derivative by t."""
    t = (count(29) / 29)[:, None]
    j = count(n, 0)
    powers = t**j
    return powers, torch.cat([torch.zeros_like(t), j[1:] * powers[:, :-1]], 1)


def watson(x: Tensor) -> Tensor:
    """[20]"""
    powers, slopes = _watson_tables(len(x))
    r = slopes @ x - (powers @ x) ** 2 - 1
    return torch.cat([r, torch.stack([x[0], x[1] - x[0] ** 2 - 1])])


DATA_FITS = (
    classical("bard", squares(bard), [1, 1, 1], 0.008214877306578964, published=8.21487e-3),
    classical(
        "gaussian", squares(gaussian), [0.4, 1, 0], 1.1279327696188738e-08, published=1.12793e-8
    ),
    classical("meyer", squares(meyer), [0.02, 4000, 250], 87.94585517045, published=87.9458),
    classical("gulf", squares(gulf), [5, 2.5, 0.15], 0.0),
    classical("box-3d", squares(box3d), [0, 10, 20], 0.0),
    classical(
        "kowalik-osborne",
        squares(kowalik_osborne),
        [0.25, 0.39, 0.415, 0.39],
        0.00030750560384924,
        published=3.07505e-4,
    ),
    classical(
        "brown-dennis",
        squares(brown_dennis),
        [25, 5, -5, -1],
        85822.20162635628,
        published=85822.2,
    ),
    classical(
        "osborne1",
        squares(osborne1),
        [0.5, 1.5, -1, 0.01, 0.02],
        5.464894697482687e-05,
        published=5.46489e-5,
    ),
    classical(
        "biggs-exp6",
        squares(biggs_exp6),
        [1, 2, 1, 1, 1, 1],
        0.005655649925518041,
        published=5.65565e-3,
        lowest=0.0,
    ),
    classical(
        "osborne2",
        squares(osborne2),
        [1.3, 0.65, 0.65, 0.7, 0.6, 3, 5, 7, 2, 4.5, 5.5],
        0.040137736293547706,
        published=4.01377e-2,
    ),
    classical("watson6", squares(watson), [0.0] * 6, 0.002287670053552373, published=2.28767e-3),
    classical("watson12", squares(watson), [0.0] * 12, 4.722381106641e-10, published=4.72238e-10),
)

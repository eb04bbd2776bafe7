"""How far to go along -g: the curvature cases and the CG, MR and GM scales.

With `gg = <g,g>`, `gHg = <g,Hg>` and `HgHg = <Hg,Hg>`:

    SPC  strong positive curvature    gHg >  sigma gg    CG = gg/gHg, MR = gHg/HgHg, GM = |g|/|Hg|
    LPC  limited positive curvature   0 <= gHg <= sigma gg               s_lpc in (0, 1/sigma]
    NC   negative curvature           gHg <  0                           s_nc > 0

Nothing here knows of tensors: floats in, floats out.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

SCALES = ("CG", "MR", "GM")


class Curvature(Enum):
    """The curvature of f along its gradient."""

    SPC = "SPC"
    LPC = "LPC"
    NC = "NC"


class Angle(NamedTuple):
    """|g|, |Hg| and the cosine between g and Hg: all that the cases and the scales need.

    Products such as gg and HgHg never appear, so nothing overflows while the norms themselves
    are finite. Where |g| is extreme, g stands for g over a power of two: cases and scales are the
    same.

    Attributes:
        grad_norm: |g|, positive.
        product_norm: |Hg|.
        cosine: gHg / (|g| |Hg|), clipped to [-1, 1]; 0 where Hg = 0.
        error: a bound on |<g, (H~ - H) g>| / gg when the product H~g is not exact.
        partial: whether only the part of Hg along g is known, which is enough for the cases and
            the CG scale; `product_norm` is then its length and `cosine` -1 or 1.
    """

    grad_norm: float
    product_norm: float
    cosine: float
    error: float = 0.0
    partial: bool = False

    @property
    def local_lipschitz(self) -> float:
        """|Hg| / |g|, the local L1."""
        return self.product_norm / self.grad_norm

    @property
    def rayleigh(self) -> float:
        """gHg / gg, the curvature along the gradient."""
        return self.cosine * (self.product_norm / self.grad_norm)


@lru_cache
def parse_cycle(scaling: str) -> tuple[str, ...]:
    """The scales a name stands for, in order.

    >>> parse_cycle("CGMR")
    ('CG', 'MR')
    >>> parse_cycle("gm")
    ('GM',)
    """
    if not isinstance(scaling, str) or not re.fullmatch("(CG|MR|GM)+", scaling.upper()):
        raise ValueError(
            f"`scaling={scaling!r}` is unknown. Use 'CG', 'MR', 'GM' or a cycle of them, "
            "such as 'CGMR', 'MRCG' or 'CGMRGM', or one of the rules 'ASD', 'DY' and 'SDC'."
        )
    return tuple(re.findall("CG|MR|GM", scaling.upper()))


def curvature_case(angle: Angle, sigma: float) -> Curvature:
    """SPC, LPC or NC; an inexact product decides only where its error cannot.

        SPC  if gHg - e > sigma gg,    NC  if gHg + e < 0,    LPC otherwise;    e = angle.error gg

    A curvature so small that the CG step |g| / (gHg / gg) overflows is limited, not strong.

    >>> curvature_case(Angle(grad_norm=1.0, product_norm=2.0, cosine=1.0), sigma=1e-6)
    <Curvature.SPC: 'SPC'>
    """
    # --8<-- [start:cases]
    g_norm, Hg_norm, cosine, error, _ = angle
    rayleigh = cosine * (Hg_norm / g_norm)
    if sigma < rayleigh - error < math.inf and math.isfinite(g_norm / rayleigh):
        return Curvature.SPC
    if rayleigh + error < 0:
        return Curvature.NC
    return Curvature.LPC
    # --8<-- [end:cases]


def scale(name: str, angle: Angle, sigma: float) -> float:
    """The SPC scale of that name; MR <= GM <= CG <= 1/sigma holds to the last bit.

    GM = |g| / |Hg|        MR = cosine GM        CG = GM / cosine
    """
    if angle.partial and name != "CG":
        raise ValueError(f"`scale('{name}', ...)` needs |Hg|: ask the point for its whole `angle`.")
    # --8<-- [start:scales]
    GM = angle.grad_norm / angle.product_norm
    s = GM / angle.cosine if name == "CG" else angle.cosine * GM if name == "MR" else GM
    # Only rounding can exceed 1/sigma in SPC; the minimum keeps the bound and the order exact.
    return min(s, 1 / sigma) if sigma > 0 else s
    # --8<-- [end:scales]

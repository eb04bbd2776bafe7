"""Algorithm 1: the curvature case along the gradient, and the scale of the step -s g.

With `gg = <g,g>`, `gHg = <g,Hg>` and `HgHg = <Hg,Hg>`:

    SPC  strong positive curvature    gHg >  sigma gg    CG = gg/gHg, MR = gHg/HgHg, GM = |g|/|Hg|
    LPC  limited positive curvature   0 <= gHg <= sigma gg               s_lpc in (0, 1/sigma]
    NC   negative curvature           gHg <  0                           s_nc > 0

All functions take and return floats, not tensors.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from functools import lru_cache
from typing import Literal, NamedTuple

from firstish._validate import check_nonnegative, check_positive
from firstish.errors import NonFiniteError

SCALES = ("CG", "MR", "GM")

LimitedScale = float | Literal["1/sigma"] | None
"""s_lpc: a number in (0, 1/sigma], that bound itself, or None for min(1, 1/sigma)."""


class Curvature(Enum):
    """The curvature of f along its gradient."""

    SPC = "SPC"
    LPC = "LPC"
    NC = "NC"


class Angle(NamedTuple):
    """|g|, |Hg| and the cosine between g and Hg: all that the cases and the scales need.

    Squares such as gg and HgHg are never formed, so nothing overflows while the norms are finite.
    If |g| is extreme, g is the gradient divided by a power of two: cases and scales are the same.

    Attributes:
        grad_norm: |g|, positive.
        product_norm: |Hg|.
        cosine: gHg / (|g| |Hg|), clipped to [-1, 1]; 0 if Hg = 0.
        error: a bound on |<g, (H~ - H) g>| / gg if the product H~g is not exact.
        partial: True if only the component of Hg along g is known. It is enough for the cases and
            the CG scale; `product_norm` is then its length and `cosine` is -1 or 1.
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
    """The scales in the name of a cycle, in order.

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


def algorithm_1(
    angle: Angle, name: str, *, sigma: float, s_lpc: LimitedScale, s_nc: float
) -> tuple[Curvature, float]:
    """The curvature case, and the scale s of the step -s g: Algorithm 1 of the paper.

    Args:
        angle: |g|, |Hg| and the cosine between g and Hg.
        name: the scale in SPC: "CG", "MR" or "GM".
        sigma: the curvature gHg/gg above which it is strong.
        s_lpc: the scale in LPC.
        s_nc: the scale in NC.

    >>> algorithm_1(Angle(1.0, 2.0, 1.0), "CG", sigma=1e-6, s_lpc=None, s_nc=1.0)
    (<Curvature.SPC: 'SPC'>, 0.5)
    """
    case = curvature_case(angle, sigma)
    if case is Curvature.SPC:
        return case, scale(name, angle, sigma)
    return case, unscaled(case, angle, sigma=sigma, s_lpc=s_lpc, s_nc=s_nc)


def unscaled(
    case: Curvature, angle: Angle, *, sigma: float, s_lpc: LimitedScale, s_nc: float
) -> float:
    """The scale in LPC and NC, which does not depend on the curvature."""
    require_finite(angle)
    if case is Curvature.NC:
        return s_nc
    if isinstance(s_lpc, str):
        return 1 / sigma
    if s_lpc is not None:
        return s_lpc
    return 1.0 if sigma <= 1 else 1 / sigma


def require_finite(angle: Angle) -> None:
    """Raise if the product is not finite; a run then ends as not finite."""
    if not math.isfinite(angle.product_norm):
        raise NonFiniteError(
            "The Hessian-vector product is not finite at the starting point although f and its "
            "gradient are. Check for a root at 0 (such as sqrt or norm), or start elsewhere."
        )


def check_cases(call: str, sigma: float, s_lpc: LimitedScale, s_nc: float) -> None:
    """Raise unless 0 <= sigma, 0 < s_nc and 0 < s_lpc <= 1/sigma, all finite."""
    check_nonnegative(call, "sigma", sigma)
    check_positive(call, "s_nc", s_nc)
    if s_lpc is None:
        return
    if isinstance(s_lpc, str):
        if s_lpc != "1/sigma":
            raise ValueError(f"`{call}(s_lpc=...)` must be a number or '1/sigma', got {s_lpc!r}.")
        if sigma == 0:
            raise ValueError(
                f"`{call}(s_lpc='1/sigma')` needs sigma > 0, got sigma=0. "
                "Pass a number, or omit it."
            )
    elif not (0 < s_lpc < math.inf and s_lpc * sigma <= 1):
        raise ValueError(
            f"`{call}(s_lpc=...)` must lie in (0, 1/sigma], sigma={sigma}, got {s_lpc}."
        )


def curvature_case(angle: Angle, sigma: float) -> Curvature:
    """SPC, LPC or NC, with a margin for the error of an inexact product.

        SPC  if gHg - e > sigma gg,    NC  if gHg + e < 0,    LPC otherwise;    e = angle.error gg

    A curvature so small that the length |g| / (gHg / gg) of the CG step overflows is LPC.

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
        raise ValueError(f"`scale('{name}', ...)` needs |Hg|: use `point.angle()`.")
    # --8<-- [start:scales]
    GM = angle.grad_norm / angle.product_norm
    s = GM / angle.cosine if name == "CG" else angle.cosine * GM if name == "MR" else GM
    # Only rounding can exceed 1/sigma in SPC; the minimum keeps the bound and the order exact.
    return min(s, 1 / sigma) if sigma > 0 else s
    # --8<-- [end:scales]

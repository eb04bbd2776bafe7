"""Rules for the scale beyond cycles of CG, MR and GM.

    ASD    MR if MR/CG > 1/2, else CG - MR/2
    DY     CG, CG, Y, Y, repeated
    SDC    CG, CG, CG, CG, Y and the same Y for three more steps, repeated

Y is Yuan's step. With a = 1/CG at the last point, b = 1/CG here, and d the step between them,

    Y = 2 / (sqrt((a - b)^2 + 4 |g|^2 / |d|^2) + a + b).

Under CG steps, Y tends to the inverse of the largest eigenvalue, and so removes the component of
the gradient that makes the next CG steps short. The root is at least |a - b|, hence Y <= CG, which
implies second-order descent, <g,p> + <p,Hp> <= 0, and Y <= 1/sigma. A Y that is held may exceed the
CG of a later point, so it is clipped to that. It is also clipped to at least MR/10, which keeps the
lower bounds of MR up to that factor (with MR/2 the rules lose their speed).

The formulas are quoted from memory after Zhou, Gao and Dai (2006), Dai and Yuan (2005) and De
Asmundis and others (2014). All functions take and return floats, not tensors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from firstish.scaling import Angle, scale

RULES = {
    "ASD": ("ASD",),
    "DY": ("CG", "CG", "Y", "Y"),
    "SDC": ("CG", "CG", "CG", "CG", "Y", "held", "held", "held"),
}
"""The rules by name, each a cycle of scales."""

RULES_WITH_MEMORY = frozenset((RULES["DY"], RULES["SDC"]))
"""The rules that need a `RuleMemory`."""

FLOOR = 0.1  # the least Y, in units of MR


class RuleMemory(NamedTuple):
    """What a rule remembers of the last step; zeros before the first.

    Attributes:
        curvature: 1/CG at the last point.
        length: |d|, the length of the step from it.
        held: the last Y.
    """

    curvature: float = 0.0
    length: float = 0.0
    held: float = 0.0

    def relative_to(self, ratio: float) -> RuleMemory:
        """The same with lengths in units of `ratio`, for g = ratio v and |v| in place of |g|."""
        return self._replace(length=self.length / ratio)


def rule_scale(name: str, angle: Angle, sigma: float, memory: RuleMemory) -> float:
    """The scale "ASD", "Y" or "held"; MR/10 <= s <= CG, and MR <= s for ASD.

    >>> rule_scale("ASD", Angle(grad_norm=1.0, product_norm=1.0, cosine=0.5), 0.0, RuleMemory())
    1.75
    """
    CG, MR = scale("CG", angle, sigma), scale("MR", angle, sigma)
    if name == "ASD":
        return MR if 2 * MR > CG else CG - MR / 2
    s = memory.held if name == "held" else yuan(angle, memory)
    return max(FLOOR * MR, min(s, CG))


def yuan(angle: Angle, memory: RuleMemory) -> float:
    """Yuan's Y, not clipped."""
    a, b = memory.curvature, angle.rayleigh
    if memory.length == 0:  # it underflowed
        return 0.0
    return 2 / (math.hypot(a - b, 2 * angle.grad_norm / memory.length) + a + b)

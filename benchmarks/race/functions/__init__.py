"""Test functions of the literature, each from its published formula, with its published start.

Residual functions r are minimised as |r|². Numbers in brackets are those of Moré, Garbow and
Hillstrom, "Testing unconstrained optimization software", ACM TOMS 7 (1981).
"""

from race.functions.chains import CHAINS
from race.functions.data_fits import DATA_FITS
from race.functions.mgh_scalable import MGH_SCALABLE
from race.functions.mgh_small import MGH_SMALL
from race.functions.separable import SEPARABLE

CLASSICAL = (*MGH_SMALL, *DATA_FITS, *MGH_SCALABLE, *CHAINS, *SEPARABLE)

__all__ = ["CLASSICAL"]

"""Physics-informed networks as people fit them: five equations, three starts each, loss and error.

Fully connected tanh networks in float64, points that stay the same, 3,000 calls. The loss is the
mean square of the residual plus that of the initial and boundary values. The error is that of the
solution, |u - u*| / |u*| on a fine grid, u* exact or computed by another method.
"""

from race.learning.pinns.allen_cahn import ALLEN_CAHN
from race.learning.pinns.burgers import BURGERS
from race.learning.pinns.equation import Equation
from race.learning.pinns.helmholtz import HELMHOLTZ
from race.learning.pinns.poisson import POISSON
from race.learning.pinns.stiff import STIFF
from race.problem import RaceProblem

SEEDS = (0, 1, 2)
EQUATIONS: tuple[Equation, ...] = (POISSON, HELMHOLTZ, BURGERS, ALLEN_CAHN, STIFF)
PINNS: tuple[RaceProblem, ...] = tuple(e.problem(seed) for e in EQUATIONS for seed in SEEDS)

__all__ = ["EQUATIONS", "PINNS", "SEEDS", "Equation"]

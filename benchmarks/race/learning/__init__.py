"""What people fit: the paper's problems in small, statistics, physics and inverse problems."""

from race.learning.factorisation import FACTORISATION
from race.learning.inverse import INVERSE
from race.learning.networks import NETWORKS
from race.learning.paper import PAPER
from race.learning.physics import PHYSICS
from race.learning.pinns import PINNS
from race.learning.regression import REGRESSION

LEARNING = (*PAPER, *NETWORKS, *PHYSICS, *PINNS, *REGRESSION, *FACTORISATION, *INVERSE)

__all__ = ["LEARNING"]

"""Gradient descent that sets its own step."""

from firstish import baselines, theory
from firstish.errors import NondeterministicError, NonFiniteError, ProductError, RankError
from firstish.line_search import Anneal, Armijo, NonMonotone
from firstish.methods import (
    AdamDirection,
    Direction,
    Failure,
    LazyStep,
    Method,
    MomentumDirection,
    PlaneStep,
    ScaledDirection,
    ScaledGradient,
    Step,
)
from firstish.minimize import minimize
from firstish.objectives import (
    FiniteSum,
    FunctionObjective,
    HessianSample,
    LinearModel,
    Meter,
    ModuleObjective,
    NumpyObjective,
    Objective,
    Point,
    Product,
    ShardedSum,
    Summed,
    estimate_max_lipschitz,
)
from firstish.objectives.linear import families
from firstish.optim import ScaledGD
from firstish.result import Progress, Result, Row, Status
from firstish.scaling import Curvature
from firstish.scipy.method import scipy_method
from firstish.spectrum import Eigenpair, curvature, hvp, largest_eigenvalue

__version__ = "0.1.0"

__all__ = [
    "AdamDirection",
    "Anneal",
    "Armijo",
    "Curvature",
    "Direction",
    "Eigenpair",
    "Failure",
    "FiniteSum",
    "FunctionObjective",
    "HessianSample",
    "LazyStep",
    "LinearModel",
    "Meter",
    "Method",
    "ModuleObjective",
    "MomentumDirection",
    "NonFiniteError",
    "NonMonotone",
    "NondeterministicError",
    "NumpyObjective",
    "Objective",
    "PlaneStep",
    "Point",
    "Product",
    "ProductError",
    "Progress",
    "RankError",
    "Result",
    "Row",
    "ScaledDirection",
    "ScaledGD",
    "ScaledGradient",
    "ShardedSum",
    "Status",
    "Step",
    "Summed",
    "baselines",
    "curvature",
    "estimate_max_lipschitz",
    "families",
    "hvp",
    "largest_eigenvalue",
    "minimize",
    "scipy_method",
    "theory",
]

"""Gradient descent that sets its own step."""

from firstish import baselines, theory
from firstish.errors import NondeterministicError, NonFiniteError, ProductError
from firstish.line_search import Armijo, NonMonotone
from firstish.loop import Status
from firstish.methods import (
    AdamDirection,
    Direction,
    LazyStep,
    Method,
    MomentumDirection,
    PlaneStep,
    ScaledDirection,
    ScaledGradient,
    Step,
)
from firstish.minimize import Progress, Result, minimize
from firstish.objectives import (
    FunctionObjective,
    Meter,
    ModuleObjective,
    Objective,
    Point,
    Product,
)
from firstish.optim import ScaledGD
from firstish.records import Row
from firstish.scaling import Curvature
from firstish.schedules import Anneal

__version__ = "0.1.0"

__all__ = [
    "AdamDirection",
    "Anneal",
    "Armijo",
    "Curvature",
    "Direction",
    "FunctionObjective",
    "LazyStep",
    "Meter",
    "Method",
    "ModuleObjective",
    "MomentumDirection",
    "NonFiniteError",
    "NonMonotone",
    "NondeterministicError",
    "Objective",
    "PlaneStep",
    "Point",
    "Product",
    "ProductError",
    "Progress",
    "Result",
    "Row",
    "ScaledDirection",
    "ScaledGD",
    "ScaledGradient",
    "Status",
    "Step",
    "baselines",
    "minimize",
    "theory",
]

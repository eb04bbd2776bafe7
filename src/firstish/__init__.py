"""Gradient descent that sets its own step."""

from firstish import baselines, theory
from firstish.errors import NondeterministicError, NonFiniteError, ProductError
from firstish.line_search import Armijo
from firstish.loop import Status
from firstish.methods import Method, ScaledGradient, Step
from firstish.minimize import Progress, Result, minimize
from firstish.objectives import (
    FunctionObjective,
    LinearModel,
    Meter,
    ModuleObjective,
    Objective,
    Point,
    Product,
    families,
)
from firstish.optim import ScaledGD
from firstish.records import Row
from firstish.scaling import Curvature

__version__ = "0.1.0"

__all__ = [
    "Armijo",
    "Curvature",
    "FunctionObjective",
    "LinearModel",
    "Meter",
    "Method",
    "ModuleObjective",
    "NonFiniteError",
    "NondeterministicError",
    "Objective",
    "Point",
    "Product",
    "ProductError",
    "Progress",
    "Result",
    "Row",
    "ScaledGD",
    "ScaledGradient",
    "Status",
    "Step",
    "baselines",
    "families",
    "minimize",
    "theory",
]

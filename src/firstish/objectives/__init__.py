"""Where f, its gradient and its Hessian-vector products come from."""

from firstish.objectives.closure import ClosureObjective
from firstish.objectives.function import FunctionObjective
from firstish.objectives.linear import LinearModel
from firstish.objectives.module import ModuleObjective
from firstish.objectives.point import Depth, Meter, Objective, Point, Product

__all__ = [
    "ClosureObjective",
    "Depth",
    "FunctionObjective",
    "LinearModel",
    "Meter",
    "ModuleObjective",
    "Objective",
    "Point",
    "Product",
]

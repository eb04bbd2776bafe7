"""Where f, its gradient and its Hessian-vector products come from."""

from firstish.objectives.base import Depth, Meter, Objective, Point, Product
from firstish.objectives.closure import ClosureObjective
from firstish.objectives.finite_sum import FiniteSum
from firstish.objectives.function import FunctionObjective
from firstish.objectives.linear import LinearModel
from firstish.objectives.module import ModuleObjective
from firstish.objectives.numpy_function import NumpyObjective
from firstish.objectives.row_curvature import estimate_max_lipschitz
from firstish.objectives.sampling import HessianSample
from firstish.objectives.sharded_sum import ShardedSum
from firstish.objectives.summed import Summed

__all__ = [
    "ClosureObjective",
    "Depth",
    "FiniteSum",
    "FunctionObjective",
    "HessianSample",
    "LinearModel",
    "Meter",
    "ModuleObjective",
    "NumpyObjective",
    "Objective",
    "Point",
    "Product",
    "ShardedSum",
    "Summed",
    "estimate_max_lipschitz",
]

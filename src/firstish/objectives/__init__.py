"""Where f, its gradient and its Hessian-vector products come from."""

from firstish.objectives.base import Meter, Objective, Order, Point, Product
from firstish.objectives.closure import ClosureObjective
from firstish.objectives.finite_sum.objective import FiniteSum
from firstish.objectives.finite_sum.row_curvature import estimate_max_lipschitz
from firstish.objectives.finite_sum.sampling import HessianSample
from firstish.objectives.finite_sum.summed_loss import Summed
from firstish.objectives.function import FunctionObjective
from firstish.objectives.linear.model import LinearModel
from firstish.objectives.module.objective import ModuleObjective
from firstish.objectives.numpy import NumpyObjective
from firstish.objectives.sharded.objective import ShardedSum

__all__ = [
    "ClosureObjective",
    "FiniteSum",
    "FunctionObjective",
    "HessianSample",
    "LinearModel",
    "Meter",
    "ModuleObjective",
    "NumpyObjective",
    "Objective",
    "Order",
    "Point",
    "Product",
    "ShardedSum",
    "Summed",
    "estimate_max_lipschitz",
]

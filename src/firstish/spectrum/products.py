"""`hvp` and `curvature`: the Hessian along a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from firstish.linalg import dot, norm
from firstish.objectives.base import Objective, Point
from firstish.objectives.flatten import Structure
from firstish.objectives.function import objective_of
from firstish.objectives.hvp import Mode


def hvp(
    fun: Callable[..., object] | Objective,
    x: Any,
    v: Any,
    args: Any = (),
    *,
    product: Mode | None = None,
) -> Any:
    """The Hessian-vector product Hv of f at x, in the form of x.

    Args:
        fun: a torch function `fun(x, *args)`, a function of a module, or an objective; as in
            `minimize`.
        x: where, in any form that `minimize` takes as x0. A module stands for its parameters, as
            one vector in the order of `model.parameters()`.
        v: the vector, in the form of x.
        args: further arguments of `fun`.
        product: how it is computed; see `FunctionObjective`.

    Examples:
        >>> hvp(lambda x: (x**4).sum(), [1.0, 2.0], [1.0, 1.0]).tolist()
        [12.0, 48.0]
    """
    point, form = point_of(fun, x, args, product, "hvp(fun, x, v)")
    return form.restored(point.hvp(form.vector_of(v, "hvp(v=...)")).vector)


def curvature(
    fun: Callable[..., object] | Objective,
    x: Any,
    v: Any = None,
    args: Any = (),
    *,
    product: Mode | None = None,
) -> float:
    """The curvature <v, Hv> / <v, v> of f at x along v, by default along the gradient.

    Arguments as for `hvp`. It is at most the largest eigenvalue of H, and at least the smallest.

    Examples:
        >>> curvature(lambda x: 3 * x[0] ** 2 + x[1] ** 2, [1.0, 0.0])
        6.0
    """
    point, form = point_of(fun, x, args, product, "curvature(fun, x, v)")
    along = point.grad if v is None else form.vector_of(v, "curvature(v=...)")
    length = norm(along)
    if length == 0:
        what = "the gradient at x" if v is None else "v"
        raise ValueError(f"`curvature(fun, x, v)`: {what} is zero. Pass another v.")
    return rayleigh_quotient(point, along / length)


def point_of(
    fun: Callable[..., object] | Objective, x: Any, args: Any, product: Mode | None, call: str
) -> tuple[Point, Structure]:
    """The point x of the objective of `fun`, and the form of x; `call` is what errors name."""
    objective, form = objective_of(fun, x, args, product, call)
    return objective.at(form.start, 2), form


def rayleigh_quotient(point: Point, unit: Tensor) -> float:
    """<v, Hv> of a v of length 1."""
    return dot(unit, point.hvp(unit).vector)

"""`largest_eigenvalue`: Lanczos' method with full reorthogonalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from firstish._validate import check_count, check_positive
from firstish.linalg import add, dot, norm
from firstish.objectives.base import Objective
from firstish.objectives.hvp import Mode
from firstish.spectrum.products import point_of


class Eigenpair(NamedTuple):
    """An eigenvalue with its eigenvector.

    Attributes:
        value: the eigenvalue.
        vector: its eigenvector of length 1, in the form of x.
        error: |Hv - value v|: some eigenvalue is at most this far from `value`.
        products: how many Hessian-vector products it took.
    """

    value: float
    vector: Any
    error: float
    products: int

    def __repr__(self) -> str:
        """The numbers, without the vector."""
        return (
            f"Eigenpair(value={self.value:.6g}, error={self.error:.2g}, products={self.products})"
        )


def largest_eigenvalue(
    fun: Callable[..., object] | Objective,
    x: Any,
    args: Any = (),
    *,
    tol: float = 1e-4,
    max_products: int = 100,
    seed: int = 0,
    product: Mode | None = None,
) -> Eigenpair:
    """The largest eigenvalue of the Hessian of f at x, by Lanczos' method.

    The largest, not the largest in absolute value: at a saddle point a more negative one may exist.
    It is approached from below. Memory: a vector like x for each product.

    Args:
        fun: as for `hvp`.
        x: as for `hvp`.
        args: further arguments of `fun`.
        tol: stop when |Hv - value v| <= tol |value|.
        max_products: stop after as many Hessian-vector products in any case.
        seed: of the random vector that it starts from.
        product: how products are computed; see `FunctionObjective`.

    Examples:
        >>> scales = torch.tensor([1.0, -8.0, 5.0])
        >>> pair = largest_eigenvalue(lambda x: (scales * x**2).sum() / 2, torch.zeros(3))
        >>> round(pair.value, 3), pair.products
        (5.0, 3)
    """
    check_positive("largest_eigenvalue", "tol", tol)
    check_count("largest_eigenvalue", "max_products", max_products)
    point, form = point_of(fun, x, args, product, "largest_eigenvalue(fun, x)")
    basis = [_random_unit(form.start, seed)]
    diagonal: list[float] = []
    beside: list[float] = []  # the other entries of the tridiagonal matrix
    for done in range(1, min(max_products, form.start.numel()) + 1):
        q = basis[-1]
        rest = point.hvp(q).vector
        diagonal.append(dot(q, rest))
        rest = _orthogonal(rest, basis)
        beta = norm(rest)
        value, combination = _top(diagonal, beside)
        error = beta * abs(float(combination[-1]))
        if error <= tol * abs(value) or done == min(max_products, form.start.numel()):
            break
        basis.append(rest / beta)
        beside.append(beta)
    vector = torch.zeros_like(form.start)
    for q, c in zip(basis, combination, strict=True):
        vector = add(vector, q, float(c))
    return Eigenpair(value, form.restored(vector / norm(vector)), error, done)


def _random_unit(like: Tensor, seed: int) -> Tensor:
    numbers = torch.randn(like.numel(), generator=torch.Generator().manual_seed(seed))
    v = numbers.to(like)
    return v / norm(v)


def _orthogonal(v: Tensor, basis: list[Tensor]) -> Tensor:
    """v without its parts along the basis; twice, because once leaves rounding errors of v."""
    for q in 2 * basis:
        v = add(v, q, -dot(q, v))
    return v


def _top(diagonal: list[float], beside: list[float]) -> tuple[float, np.ndarray[Any, Any]]:
    """The largest eigenvalue of the tridiagonal matrix, and its eigenvector."""
    T = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    values, vectors = np.linalg.eigh(T)
    return float(values[-1]), vectors[:, -1]

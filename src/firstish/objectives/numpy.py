"""Objectives defined by NumPy functions, with SciPy's argument names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firstish.objectives.base import FLOAT64_EPS, Meter, Order, Point, Product
from firstish.objectives.hvp import gradient_difference

Array = NDArray[Any]


class NumpyObjective:
    """A function of a NumPy vector, with its gradient.

    Each call gets its own copy of x. The work inside the functions is unknown, so `passes` counts
    1 for a value, 1 (`jac_passes`) for a gradient, 2 for a product, and 2 for a gradient at another
    point in a difference.

    Args:
        fun: x -> f(x); with `jac=True`, x -> (f(x), g(x)).
        jac: x -> g(x); True if `fun` returns both.
        hess: x -> H(x), an array, a sparse array or a linear operator.
        hessp: (x, v) -> H(x) v; not used if `hess` is given. Without either, products are
            differences of gradients.
        jac_error: the error of the gradient relative to the largest one; 0 for rounding only, more
            if the gradient is a finite difference of `fun`.
        jac_passes: the cost of a gradient, in evaluations of f.
        args: further arguments of each function, as in SciPy.

    Examples:
        >>> import numpy as np, torch, firstish
        >>> objective = NumpyObjective(lambda x: float(np.sum(x**4)), lambda x: 4 * x**3)
        >>> x0 = torch.tensor([1.0, 2.0], dtype=torch.float64)
        >>> firstish.minimize(objective, x0).success
        True
    """

    def __init__(
        self,
        fun: Callable[[Array], Any],
        jac: Callable[[Array], Any] | Literal[True],
        *,
        hess: Callable[[Array], Any] | None = None,
        hessp: Callable[[Array, Array], Any] | None = None,
        jac_error: float = 0.0,
        jac_passes: float = 1,
        args: Any = (),
    ) -> None:
        if jac in (None, False) or isinstance(jac, str):
            raise TypeError(
                f"`NumpyObjective(jac={jac!r})`: pass the gradient, or True if fun returns (f, g). "
                "Without a gradient use `scipy.optimize.minimize(fun, x0, "
                "method=firstish.scipy_method)`, which takes differences of f."
            )
        for name, call in (("fun", fun), ("jac", jac), ("hess", hess), ("hessp", hessp)):
            needed = name in ("fun", "jac") or call is not None
            if needed and not callable(call) and not (name == "jac" and call is True):
                raise TypeError(f"`NumpyObjective({name}=...)` must be callable, got {call!r}.")
        given = args if isinstance(args, tuple) else (args,)
        self.fun, self.hess, self.hessp = (_with(given, call) for call in (fun, hess, hessp))
        self.jac: Callable[[Array], Any] | Literal[True]
        self.jac = True if jac is True else _with(given, jac)
        self.jac_error, self.jac_passes = jac_error, jac_passes
        self.meter = Meter()
        self.eps = FLOAT64_EPS  # the largest of those of x, f and g so far
        self.grad_scale = 0.0  # the largest gradient norm seen
        self.accepted: NumpyPoint | None = None  # the current point of the last run

    def at(self, x: Tensor, order: Order = 2) -> NumpyPoint:
        """The point x, not yet evaluated."""
        return NumpyPoint(self, x, order)

    def check_vector(self, x: Tensor, call: str) -> None:
        """Raise unless x is in float32 or float64 on the CPU."""
        if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"`{call}` with a `NumpyObjective` needs a point in float64 or float32 on the CPU, "
                f"got {x.dtype} on {x.device}. Use `.double().cpu()`."
            )

    def note_precision(self, dtype: np.dtype[Any]) -> None:
        """Raise `eps` to that of a floating-point dtype."""
        if dtype.kind == "f":
            self.eps = max(self.eps, float(np.finfo(dtype).eps))

    def value(self, x: Array) -> tuple[float, Tensor | None]:
        """f(x), and the gradient if `fun` returns both."""
        returned, gradient = self.fun(x.copy()), None
        if self.jac is True:
            try:
                returned, g = returned
            except (TypeError, ValueError):
                raise ValueError(
                    f"`jac=True` says that `fun` returns (f, g), but it returned {returned!r}."
                ) from None
            gradient = self._vector(g, x, "the gradient of `fun`")
            self.meter.passes += self.jac_passes
        self.meter.passes += 1
        return self._number(returned), gradient

    def gradient(self, x: Array) -> Tensor:
        """g(x)."""
        if self.jac is True:
            _, gradient = self.value(x)
            assert gradient is not None  # `jac` is True
            return gradient
        self.meter.passes += self.jac_passes
        return self._vector(self.jac(x.copy()), x, "`jac`")

    def matrix(self, x: Array) -> Any:
        """H(x), as an object with `dot`."""
        assert self.hess is not None
        H: Any = self.hess(x.copy())
        if not hasattr(H, "dot") or hasattr(H, "__array__"):  # neither sparse nor an operator
            H = np.atleast_2d(np.asarray(H))
        if H.shape != (x.size, x.size):
            raise ValueError(
                f"`hess` returned an array of shape {H.shape} where x has {x.size} entries. "
                f"Return one of shape {(x.size, x.size)}."
            )
        return H

    def product(self, Hv: Any, x: Array, name: str) -> Product:
        """The product from `hess` or `hessp`, whose only error is rounding."""
        self.meter.passes += 2
        return Product.by_exact_formula(self._vector(Hv, x, name), self.eps)

    def _number(self, returned: Any) -> float:
        pair = isinstance(returned, tuple | list)  # with a gradient it makes no array
        number = np.asarray(None if pair and len(returned) > 1 else returned)
        if number.size != 1 or number.dtype.kind not in "fiub":
            raise ValueError(
                f"`fun` must return one real number, got {returned!r}. "
                "Sum or average what it returns; for `(f, g)` pass `jac=True`."
            )
        self.note_precision(number.dtype)
        return float(number.item())

    def _vector(self, returned: Any, x: Array, name: str) -> Tensor:
        vector = np.asarray(returned)
        if vector.size != x.size or vector.dtype.kind not in "fiub":
            raise ValueError(
                f"{name} returned {vector.dtype} of shape {vector.shape} where x has {x.size} "
                "entries. Return one real number for each."
            )
        self.note_precision(vector.dtype)
        # A copy, because functions may reuse the array for their next result.
        return torch.from_numpy(np.array(vector, dtype=x.dtype).reshape(-1))


def _with(args: tuple[Any, ...], call: Any) -> Any:
    """The function with further arguments."""
    return (lambda *where: call(*where, *args)) if args and call is not None else call


class NumpyPoint(Point):
    """A point of a `NumpyObjective`."""

    undefined = (np.linalg.LinAlgError,)

    _with_value: Tensor | None = None  # the gradient, if `fun` returned it with the value
    _matrix: Any = None

    def __init__(self, objective: NumpyObjective, x: Tensor, order: Order) -> None:
        super().__init__(x, objective.meter, order)
        self.objective = objective
        self.by_differences = objective.jac_error > 0
        self.by_hand = not self.by_differences
        self._x: Array = x.numpy()
        objective.note_precision(self._x.dtype)

    @property
    def eps(self) -> float:
        """Unit roundoff of the arithmetic f is computed in."""
        return self.objective.eps

    def at(self, x: Tensor, order: Order = 2) -> Point:
        """Another point of the same objective."""
        return self.objective.at(x, order)

    def accept(self) -> None:
        """Make this the objective's current point."""
        self.objective.accepted = self

    def release(self) -> None:
        """Free the matrix."""
        self._matrix = None

    def _value(self) -> float:
        value, self._with_value = self.objective.value(self._x)
        return value

    def _gradient(self) -> Tensor:
        if self._with_value is not None:
            return self._with_value
        return self.objective.gradient(self._x)

    def _product(self, v: Tensor) -> Product:
        objective = self.objective
        if objective.hess is not None:
            if self._matrix is None:
                self._matrix = objective.matrix(self._x)
            Hv = self._matrix.dot(v.numpy().copy())
            return objective.product(Hv, self._x, "`hess(x)` times a vector")
        if objective.hessp is not None:
            Hv = objective.hessp(self._x.copy(), v.numpy().copy())
            return objective.product(Hv, self._x, "`hessp`")
        return self._difference(v)

    def _difference(self, v: Tensor) -> Product:
        """(g(x + e v) - g(x)) / e."""
        objective = self.objective
        scale = max(objective.grad_scale, self.grad_norm)
        if objective.jac_error:  # each entry of a difference of f has the noise of f
            scale = max(scale, math.sqrt(self.x.numel()) * abs(self.value))
        objective.grad_scale = scale
        return gradient_difference(
            lambda x: self.gradient_inside(self._gradient_at, x),
            self.x,
            self.grad,
            v,
            eps=max(self.eps, objective.jac_error),
            grad_scale=scale,
        )

    def _gradient_at(self, x: Tensor) -> Tensor:
        if self.objective.jac is not True:
            self.meter.passes += 1  # counted as a value and a gradient
        return self.objective.gradient(x.numpy())

"""The functions that SciPy's `minimize` passes to a method, as an objective that counts calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from firstish.objectives.numpy import Array, NumpyObjective

Function = Callable[..., Any]
_EPS = float(np.finfo(np.float64).eps)
_ERROR = {"2-point": _EPS ** (1 / 2), "3-point": _EPS ** (2 / 3), "cs": _EPS}  # at the best step
_VALUES = {"2-point": 1, "3-point": 2, "cs": 1}  # evaluations of f per entry of the gradient


class Counted:
    """A function `call(x, ..., *args)` as SciPy takes it, and the number of its calls."""

    def __init__(self, call: Function, args: tuple[Any, ...] = ()) -> None:
        self._call, self._args = call, args
        self.calls = 0

    def __call__(self, *where: Array) -> Any:
        """The function's result; `args` are passed last."""
        self.calls += 1
        return self._call(*where, *self._args)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A gradient by SciPy's finite differences.

    Args:
        approximate: SciPy's `approx_derivative`.
        method: "2-point", "3-point" or "cs".
        rel_step: the step relative to x; SciPy's default if None.
        abs_step: the absolute step; a relative one is used if None.
        bounds: the lower and upper bounds, which differences do not leave.
    """

    approximate: Function
    method: str = "2-point"
    rel_step: Any = None
    abs_step: Any = None
    bounds: tuple[Any, Any] = (-np.inf, np.inf)

    def __post_init__(self) -> None:
        if self.method not in _ERROR:
            names = ", ".join(map(repr, _ERROR))
            raise ValueError(f"`finite_diff_method` must be one of {names}, got {self.method!r}.")

    def gradient(self, fun: Function, x: Array, value: Any) -> Any:
        """The gradient at x, where f(x) = value is known; 0 for variables fixed by their bounds."""
        lower, upper = (np.broadcast_to(np.asarray(bound), x.shape) for bound in self.bounds)
        free = lower < upper  # SciPy divides by a step of 0 for the others
        if not free.any():
            return np.zeros_like(x)

        def of_free(part: Array) -> Any:
            whole = x.astype(part.dtype)  # complex with "cs"
            whole[free] = part
            return fun(whole)

        part = self.approximate(
            of_free,
            x[free],
            method=self.method,
            rel_step=_entries(self.rel_step, free),
            abs_step=_entries(self.abs_step, free),
            f0=np.asarray(value).reshape(-1),
            bounds=(lower[free], upper[free]),
        )
        gradient = np.zeros(x.shape, dtype=part.dtype)
        gradient[free] = part
        return gradient


def _entries(step: Any, free: Array) -> Any:
    """The steps of the free variables, if there is one for each variable."""
    return step if np.ndim(step) == 0 else np.asarray(step)[free]


class Differentiated:
    """f and its gradient by finite differences; the last f(x) is reused for the gradient at x."""

    def __init__(self, fun: Function, difference: Difference) -> None:
        self._fun, self._difference = fun, difference
        self._last: tuple[Array, Any] | None = None

    def value(self, x: Array) -> Any:
        """f(x)."""
        value = self._fun(x.copy())
        self._last = x, value
        return value

    def gradient(self, x: Array) -> Any:
        """The gradient."""
        last = self._last
        known = last is not None and np.array_equal(last[0], x)
        value = last[1] if last is not None and known else self._fun(x.copy())
        return self._difference.gradient(self._fun, x, value)


class Calls:
    """The user's functions with counters, and the objective made of them.

    Args:
        fun: f; returns (f, g) if `jac` is True.
        size: the number of entries of x.
        args: extra arguments of each function.
        jac: the gradient, True, or a finite difference.
        hess: the Hessian.
        hessp: the Hessian-vector product; not used if `hess` is given.
    """

    def __init__(
        self,
        fun: Function,
        size: int,
        args: tuple[Any, ...],
        jac: Function | Difference | Literal[True],
        hess: Function | None,
        hessp: Function | None,
    ) -> None:
        self._fun = fun = Counted(fun, args)
        value: Function = fun
        gradient: Counted | Literal[True] = True
        error, passes = 0.0, 1
        if isinstance(jac, Difference):
            both = Differentiated(fun, jac)
            value, gradient = both.value, Counted(both.gradient)
            error, passes = _ERROR[jac.method], size * _VALUES[jac.method]
        elif jac is not True:
            gradient = Counted(jac, args)
        self._jac = fun if gradient is True else gradient
        self._products = [Counted(call, args) for call in (hess, hessp) if call is not None]
        self.objective = NumpyObjective(
            value,
            gradient,
            hess=self._products[0] if hess is not None else None,
            hessp=self._products[-1] if hessp is not None else None,
            jac_error=error,
            jac_passes=passes,
        )

    @property
    def counts(self) -> dict[str, int]:
        """The calls of each function by SciPy's names; finite differences count as gradients."""
        nhev = sum(product.calls for product in self._products)
        return {"nfev": self._fun.calls, "njev": self._jac.calls, "nhev": nhev}


def value_with_gradient(fun: Function, jac: Function) -> Function | None:
    """The user's function that returns (f, g), if SciPy has split it for `jac=True`; else None.

    SciPy's `MemoizeJac` caches the result at the last x only. A gradient computed after a line
    search has tried other points would evaluate it again, so we take both at once.
    """
    if type(fun).__name__ != "MemoizeJac" or getattr(jac, "__self__", None) is not fun:
        return None
    return lambda x, *args: (fun(x, *args), jac(x, *args))

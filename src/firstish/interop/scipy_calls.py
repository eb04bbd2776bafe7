"""What SciPy's `minimize` hands to a method, as one counted objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from firstish.objectives.numpy_function import Array, NumpyObjective

Function = Callable[..., Any]
_EPS = float(np.finfo(np.float64).eps)
_ERROR = {"2-point": _EPS ** (1 / 2), "3-point": _EPS ** (2 / 3), "cs": _EPS}  # at the best step
_VALUES = {"2-point": 1, "3-point": 2, "cs": 1}  # for an entry of the gradient


class Counted:
    """A function of SciPy's kind, `call(x, ..., *args)`, and how often it was called."""

    def __init__(self, call: Function, args: tuple[Any, ...] = ()) -> None:
        self._call, self._args = call, args
        self.calls = 0

    def __call__(self, *where: Array) -> Any:
        """Call it, with `args` last."""
        self.calls += 1
        return self._call(*where, *self._args)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How SciPy approximates a gradient.

    Args:
        approximate: SciPy's `approx_derivative`.
        method: "2-point", "3-point" or "cs".
        rel_step: the step relative to x; SciPy's by default.
        abs_step: the step itself; relative by default.
    """

    approximate: Function
    method: str = "2-point"
    rel_step: Any = None
    abs_step: Any = None

    def __post_init__(self) -> None:
        if self.method not in _ERROR:
            names = ", ".join(map(repr, _ERROR))
            raise ValueError(f"`finite_diff_method` must be one of {names}, got {self.method!r}.")

    def gradient(self, fun: Function, x: Array, value: Any) -> Any:
        """The difference, f(x) being known."""
        return self.approximate(
            fun,
            x,
            method=self.method,
            rel_step=self.rel_step,
            abs_step=self.abs_step,
            f0=np.asarray(value).reshape(-1),
        )


class Differentiated:
    """f and its gradient by differences, f not evaluated again for the gradient at the same x."""

    def __init__(self, fun: Function, how: Difference) -> None:
        self._fun, self._how = fun, how
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
        return self._how.gradient(self._fun, x, value)


class Calls:
    """The functions, counted, and the objective they make.

    Args:
        fun: f; f and its gradient where `jac` is True.
        size: how many entries x has.
        args: more arguments for each function.
        jac: the gradient, or True, or how to approximate it.
        hess: the Hessian.
        hessp: the product; not used if `hess` is there.
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
        """How often each function was called, by SciPy's names; gradients by differences too."""
        nhev = sum(product.calls for product in self._products)
        return {"nfev": self._fun.calls, "njev": self._jac.calls, "nhev": nhev}


def value_with_gradient(fun: Function, jac: Function) -> Function | None:
    """(f, g) as one function, where SciPy made two of it for `jac=True`; None where it did not.

    Its `MemoizeJac` knows the last x only. A gradient asked for later, when the line search has
    been elsewhere, would evaluate again: so both are taken at once.
    """
    if type(fun).__name__ != "MemoizeJac" or getattr(jac, "__self__", None) is not fun:
        return None
    return lambda x, *args: (fun(x, *args), jac(x, *args))

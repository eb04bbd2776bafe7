"""A method for SciPy's `minimize`: converts its arguments and our result, nothing more."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal

import numpy as np
import torch

from firstish.bounds.forms import box_of, outside
from firstish.interface.extras import install
from firstish.methods.base import AnyMethod
from firstish.methods.registry import method_of
from firstish.methods.scaled_gradient import ScaledGradient
from firstish.minimize import minimize
from firstish.objectives.flatten import Structure
from firstish.result import Progress, Result, Status
from firstish.scipy.calls import Calls, Difference, Function, value_with_gradient

# The status numbers of SciPy's own methods, those of BFGS where they differ.
_STATUS = {
    Status.CONVERGED: 0,
    Status.GTOL_REL: 0,
    Status.FTOL: 0,
    Status.MAX_ITERATIONS: 1,
    Status.MAX_ORACLE_CALLS: 1,
    Status.MAX_SECONDS: 1,
    Status.ROUNDING: 2,
    Status.LINE_SEARCH: 2,
    Status.NON_FINITE: 3,
    Status.UNBOUNDED: 3,
    Status.STOPPED: 99,
}
NOISE = 1e-12  # relative change of f below which finite differences show no descent
_STOPPED = "`callback` raised `StopIteration`."
_MEANT = {
    "max_iterations": "maxiter",
    "maxfun": "max_oracle_calls",
    "maxcor": "stepper=LazyStep(memory=...)",
    "method": "stepper",
}
_SETTINGS = {field.name for field in fields(ScaledGradient)}


def scipy_method(
    fun: Function,
    x0: Any,
    args: tuple[Any, ...] = (),
    jac: Function | bool | str | None = None,
    hess: Function | str | None = None,
    hessp: Function | None = None,
    bounds: Any = None,
    constraints: Any = (),
    callback: Callable[..., object] | None = None,
    *,
    stepper: AnyMethod | str | None = None,
    gtol: float | None = None,
    gtol_rel: float = 0.0,
    ftol: float | None = None,
    tol: float | None = None,
    maxiter: int | None = None,
    max_oracle_calls: float | Literal["default"] | None = "default",
    max_seconds: float | None = None,
    disp: bool = False,
    return_all: bool = False,
    finite_diff_method: str = "2-point",
    finite_diff_rel_step: Any = None,
    eps: Any = None,
    **settings: Any,
) -> Any:
    """A method for `scipy.optimize.minimize(fun, x0, method=firstish.scipy_method, ...)`.

    SciPy's `minimize` passes the first nine arguments; the others are its `options` and its `tol`.

    Args:
        fun: f, called as `fun(x, *args)`.
        x0: the starting point.
        args: extra arguments of `fun`, `jac`, `hess` and `hessp`.
        jac: the gradient; True if `fun` returns (f, g); by default SciPy's finite differences.
        hess: returns the Hessian as an array, a sparse array or a linear operator. With "2-point",
            or without `hess` and `hessp`, products are differences of gradients.
        hessp: the Hessian-vector product, `hessp(x, v, *args)`; not used if `hess` is given.
        bounds: as SciPy documents them: a `Bounds`, or a pair (min, max) for each entry of x.
        constraints: must be empty.
        callback: called after each iteration, with `intermediate_result=` if that is the name of
            its only argument, else with x. StopIteration ends the run; return values are ignored.
        stepper: the method, as for `firstish.minimize`: "lazy", "plane", "CGMR" or an object such
            as `firstish.LazyStep(memory=20)`. By default "lazy", or `ScaledGradient` if settings
            of it are given (`scaling`, `sigma`, ...).
        gtol: stop when |g| <= gtol. By default `tol`, or 1e-6, or, if g is a finite difference,
            1e-5 (SciPy's default), because its error is no smaller.
        gtol_rel: see `firstish.minimize`.
        ftol: see `firstish.minimize`. If g is a finite difference and no tolerance is given, 1e-12:
            its error, which grows with f, may keep |g| above any gtol.
        tol: as passed to SciPy's `minimize`.
        maxiter: the largest number of iterations.
        max_oracle_calls: see `firstish.minimize`. By default 10,000, or, with `maxiter`, no limit.
        max_seconds: see `firstish.minimize`.
        disp: print how the run ended.
        return_all: return every x, as `allvecs`.
        finite_diff_method: "2-point", "3-point" or "cs", for a gradient by finite differences.
        finite_diff_rel_step: the relative step of the finite differences.
        eps: the absolute step of the finite differences.
        settings: those of `ScaledGradient`: `scaling`, `sigma` and so on.

    Returns:
        An `OptimizeResult` with x, fun, jac, nit, nfev, njev, nhev, status, success and message,
        and with our `Result` as `firstish_result` (with history and oracle calls).

    Examples:
        >>> import scipy.optimize
        >>> from scipy.optimize import rosen, rosen_der, rosen_hess_prod
        >>> result = scipy.optimize.minimize(
        ...     rosen, [-1.2, 1.0], jac=rosen_der, hessp=rosen_hess_prod, method=scipy_method
        ... )
        >>> result.success, result.x.round(5).tolist()
        (True, [1.0, 1.0])
    """
    try:  # here and not above: SciPy is optional
        from scipy.optimize import OptimizeResult

        # Not public, but it is what SciPy's own methods call.
        from scipy.optimize._numdiff import approx_derivative
    except ModuleNotFoundError as error:
        if error.name != "scipy":
            raise
        raise ModuleNotFoundError(
            f"`firstish.scipy_method` needs SciPy: {install('scipy')}.", name="scipy"
        ) from error
    _check_unconstrained(constraints)
    method = _method(stepper, settings)
    start, ends = _between(bounds, _start(x0))
    difference = Difference(
        approximate=approx_derivative,
        method=jac if isinstance(jac, str) else finite_diff_method,
        rel_step=finite_diff_rel_step,
        abs_step=eps,
        bounds=ends or (-np.inf, np.inf),
    )
    calls = _calls(fun, start.numel(), args, jac, hess, hessp, difference)
    default = 1e-5 if calls.objective.jac_error else 1e-6
    if max_oracle_calls == "default":
        max_oracle_calls = 10_000 if maxiter is None else None
    path = [start.numpy().copy()] if return_all else None
    observer = _Observer(callback, calls, OptimizeResult, path)
    result = minimize(
        calls.objective,
        start,
        method=method,
        gtol=next(limit for limit in (gtol, tol, default) if limit is not None),
        gtol_rel=gtol_rel,
        ftol=_ftol(ftol, gtol if tol is None else tol, calls.objective.jac_error),
        max_oracle_calls=max_oracle_calls,
        max_iterations=maxiter,
        max_seconds=max_seconds,
        bounds=ends,
        callback=observer if callback is not None or return_all else None,
    )
    answer = OptimizeResult(
        x=result.x.numpy().copy(),
        fun=result.value,
        jac=observer.gradient(),
        nit=result.iterations,
        **calls.counts,
        status=_STATUS[result.status],
        success=result.success,
        message=_message(result),
        firstish_result=result,
    )
    if path is not None:
        answer["allvecs"] = path
    if disp:
        _print(result, calls)
    return answer


def _ftol(given: float | None, tolerance: float | None, jac_error: float) -> float:
    """The tolerance on the change of f: by default only where differences hide the gradient."""
    if given is not None:
        return given
    return NOISE if jac_error and tolerance is None else 0.0


def _between(bounds: Any, x: torch.Tensor) -> tuple[torch.Tensor, tuple[Any, Any] | None]:
    """x0, moved inside of SciPy's bounds with a warning if it is outside, and their ends."""
    if bounds is not None and not hasattr(bounds, "lb"):
        bounds = [tuple(pair) for pair in bounds]
    box = None if bounds is None else box_of(bounds, Structure(x), "minimize")
    if box is None:
        return x, None
    told = outside(box, Structure(x))
    if told is not None:
        # Level 4: this function, scipy_method, SciPy's minimize, its caller.
        warnings.warn(
            "`minimize(fun, x0, bounds=...)` got an x0 outside of the bounds "
            f"({told}): the run starts from the nearest point inside.",
            stacklevel=4,
        )
    return box.project(x), (box.lower, box.upper)


def _check_unconstrained(constraints: Any) -> None:
    empty = constraints is None or (hasattr(constraints, "__len__") and len(constraints) == 0)
    if not empty:
        raise ValueError(
            "`minimize(method=firstish.scipy_method, constraints=...)` is not supported: the "
            "methods are for bounds, not for other constraints. Add a penalty to fun, or use "
            "method='trust-constr'."
        )


def _method(stepper: AnyMethod | str | None, settings: dict[str, Any]) -> AnyMethod:
    """The method to run; warns about unknown options, as SciPy's methods do."""
    known = {name: settings[name] for name in settings if name in _SETTINGS}
    unknown = [name for name in settings if name not in _SETTINGS]
    if unknown:
        from scipy.optimize import OptimizeWarning

        # Level 4: this function, scipy_method, SciPy's minimize, its caller.
        meant = "".join(f". Use {_MEANT[name]} for {name}" for name in unknown if name in _MEANT)
        warnings.warn(
            f"Unknown solver options: {', '.join(unknown)}{meant}", OptimizeWarning, stacklevel=4
        )
    if stepper is None and known:
        return ScaledGradient(**known)
    method = method_of(stepper, "scipy_method", word="stepper")
    if known:
        raise ValueError(
            f"`options` has a stepper, {type(method).__name__}, and also settings of "
            f"`ScaledGradient`: {', '.join(known)}. Pass the settings to the stepper itself."
        )
    return method


def _start(x0: Any) -> torch.Tensor:
    """x0 as a tensor, in float32 if it is in float32, else in float64."""
    x = np.atleast_1d(np.asarray(x0))
    if x.ndim != 1 or x.dtype.kind not in "fiub":
        raise ValueError(
            f"`scipy_method(x0=...)` must be a vector of real numbers, got {x.dtype} of shape "
            f"{x.shape}."
        )
    return torch.from_numpy(np.array(x, dtype=np.float32 if x.dtype == np.float32 else np.float64))


def _calls(
    fun: Function,
    size: int,
    args: Any,
    jac: Function | bool | str | None,
    hess: Function | str | None,
    hessp: Function | None,
    difference: Difference,
) -> Calls:
    """The user's functions with counters, and their objective."""
    if isinstance(hess, str) and hess == "2-point":
        hess = None
    if hess is not None and not callable(hess):
        raise ValueError(
            f"`minimize(method=firstish.scipy_method, hess={hess!r})` is unknown. Pass a function, "
            "or omit it: products are then differences of gradients."
        )
    args = args if isinstance(args, tuple) else (args,)
    if jac is True:
        return Calls(fun, size, args, True, hess, hessp)
    if not callable(jac):
        return Calls(fun, size, args, difference, hess, hessp)
    both = value_with_gradient(fun, jac)
    if both is not None:
        return Calls(both, size, args, True, hess, hessp)
    return Calls(fun, size, args, jac, hess, hessp)


class _Observer:
    """The callback of a run: calls the user's callback and records the path of x."""

    def __init__(
        self,
        callback: Callable[..., object] | None,
        calls: Calls,
        make: Callable[..., Any],
        path: list[Any] | None,
    ) -> None:
        self._callback, self._calls, self._make = callback, calls, make
        self._by_name = callback is not None and _parameters(callback) == {"intermediate_result"}
        self.path = path

    def __call__(self, progress: Progress) -> None:
        if self.path is not None:
            self.path.append(progress.x.numpy())
        if self._callback is None:
            return
        if self._by_name:
            shown = self._make(
                x=progress.x.numpy(),
                fun=progress.value,
                jac=self.gradient(),
                nit=progress.row.iteration + 1,
                **self._calls.counts,
            )
            self._callback(intermediate_result=shown)
        else:
            self._callback(progress.x.numpy())

    def gradient(self) -> Any:
        """The gradient at the current point."""
        point = self._calls.objective.accepted
        assert point is not None  # the loop accepts the starting point, or raises
        return point.grad.numpy().copy()


def _parameters(callback: Callable[..., object]) -> set[str]:
    try:
        return set(inspect.signature(callback).parameters)
    except (TypeError, ValueError):  # some built-in functions have no signature
        return set()


def _message(result: Result) -> str:
    """The message of the run, with the names of SciPy's options."""
    if result.status is Status.STOPPED:
        return _STOPPED
    return result.message.replace("max_iterations=", "maxiter=")


def _print(result: Result, calls: Calls) -> None:
    counts = calls.counts
    print(result.status.value)
    print(f"         Current function value: {result.value:f}")
    print(f"         Iterations: {result.iterations:d}")
    print(f"         Function evaluations: {counts['nfev']:d}")
    print(f"         Gradient evaluations: {counts['njev']:d}")
    print(f"         Hessian evaluations: {counts['nhev']:d}")

"""`minimize`: a run of a method from a starting point to the end, with its history."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass

import torch
from torch import Tensor, nn

from firstish.loop import Limits, Run
from firstish.methods.base import AnyMethod
from firstish.methods.registry import method_of
from firstish.objectives.base import Objective, Point
from firstish.objectives.finite_sum.base import RowSum
from firstish.objectives.function import FunctionObjective
from firstish.objectives.module.objective import ModuleObjective
from firstish.objectives.threads import in_use
from firstish.result import Entry, Progress, Result, Row, Status

Callback = Callable[[Progress], object]

_SHARED = (
    "the objective of this `minimize(fun, x0)`, which counts and remembers what it evaluates. Make "
    "an objective for each thread."
)


def minimize(
    fun: Callable[[Tensor], object] | Objective,
    x0: Tensor | nn.Module,
    *,
    method: AnyMethod | str | None = None,
    gtol: float = 1e-6,
    max_oracle_calls: float | None = 10_000,
    max_iterations: int | None = None,
    max_seconds: float | None = None,
    callback: Callback | None = None,
) -> Result:
    """The minimum of f from x0, by a method that sets its own step size.

    Args:
        fun: a callable on a tensor shaped like `x0`, returning the loss or `(loss, aux)`; or an
            objective, such as `ModuleObjective`.
        x0: the starting point; or the module of the objective, to start at its parameters and
            write the result into them.
        method: a name or a method with settings, such as
            `ScaledGradient(scaling="CGMR", sigma=0)`. "lazy" by default, which needs the fewest
            oracle calls on most problems; others are "plane" and the paper's scalings such as
            "CGMR". "bfgs", "ssbfgs" and "self-scaled-bfgs" are the lazy step too; "lbfgs" and
            "l-bfgs" are `LazyStep(memory=10, self_scaled=False)`.
        gtol: stop when |g| <= gtol.
        max_oracle_calls: no iteration starts after this many; None for no limit.
        max_iterations: the same for iterations.
        max_seconds: the same for seconds.
        callback: called with a `Progress` after each iteration; the run stops if it returns True
            or raises StopIteration. Its time is not counted. Of several processes only rank 0's
            stops the run.

    Returns:
        A `Result`. Not reaching `gtol` is a status, not an exception.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([-1.2, 1.0], dtype=torch.float64)
        >>> rosenbrock = lambda x: (1 - x[0])**2 + 100 * (x[1] - x[0]**2)**2
        >>> result = firstish.minimize(rosenbrock, x0, gtol=1e-8)
        >>> result.success, [round(v, 6) for v in result.x.tolist()]
        (True, [1.0, 1.0])
    """
    limits = Limits(
        gtol=gtol,
        max_oracle_calls=max_oracle_calls,
        max_iterations=max_iterations,
        max_seconds=max_seconds,
    )
    chosen = method_of(method, "minimize")
    objective, x, shape = _start(fun, x0)
    _require_same(objective, chosen, limits)
    history: list[Entry] = []
    with in_use([objective], _SHARED):
        run = Run(objective, x, chosen)
        try:
            status = _drive(run, limits, callback, history, shape)
        finally:
            if isinstance(x0, nn.Module) and isinstance(objective, ModuleObjective | RowSum):
                _load(objective, run.point.x)  # also after Ctrl-C: what was reached is not lost
        return _result(run, status, history, shape)


def _load(objective: ModuleObjective | RowSum, x: Tensor) -> None:
    try:
        objective.load(x)
    except BaseException:  # a Ctrl-C in the middle of it
        objective.load(x)
        raise


def _require_same(objective: Objective, method: AnyMethod, limits: Limits) -> None:
    """Raise if settings differ between processes; `max_seconds` may, and rank 0's is used."""
    group = getattr(objective, "group", None)
    if group is None or group.alone:
        return
    budgets = (limits.gtol, limits.max_oracle_calls, limits.max_iterations)
    group.require_same(
        zlib.crc32(repr((_settings(method), budgets)).encode()),
        "methods, tolerances or budgets",
        "Call `minimize` with the same arguments on every rank.",
    )


def _settings(thing: object) -> object:
    """A method's settings, as far as they are comparable between processes.

    A function, for example, has another address in each.
    """
    if is_dataclass(thing):
        return type(thing).__qualname__, [_settings(getattr(thing, f.name)) for f in fields(thing)]
    if isinstance(thing, tuple):
        return [_settings(part) for part in thing]
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    return type(thing).__qualname__


def _drive(
    run: Run, limits: Limits, callback: Callback | None, history: list[Entry], shape: torch.Size
) -> Status:
    has_callback = callback is not None
    if run.group is not None:
        has_callback = run.group.any(has_callback)  # in this process or another
    while True:
        outcome = run.advance(limits)
        if isinstance(outcome, Status):
            return outcome
        history.append(outcome)
        if has_callback and _stops(callback, run, outcome, shape):
            return Status.STOPPED


def _stops(callback: Callback | None, run: Run, entry: Entry, shape: torch.Size) -> bool:
    shown = run.clock.seconds()
    stop = callback is not None and _returns_true(callback, run.point, entry, shape)
    if run.group is not None:
        stop = bool(run.group.broadcast(stop))  # the callback of rank 0 decides for all
    run.clock.forget_since(shown)
    return stop


def _returns_true(callback: Callback, point: Point, entry: Entry, shape: torch.Size) -> bool:
    progress = Progress(entry.row(), point.value, point.grad_norm, point.aux, point.x.view(shape))
    try:
        answer = callback(progress)
    except StopIteration:
        return True
    return _is_true(answer)


def _is_true(answer: object) -> bool:
    """True for True of Python, NumPy or torch; a number returned by accident does not count."""
    kind = str(getattr(answer, "dtype", type(answer).__name__))
    return kind in ("bool", "torch.bool") and bool(answer)


def _result(run: Run, status: Status, history: list[Entry], shape: torch.Size) -> Result:
    last = run.here()
    run.point.release()
    rows = [entry.row() for entry in (*history, last)]
    if status not in (Status.CONVERGED, Status.STOPPED) and _seems_unbounded(
        rows, run.point.x.dtype
    ):
        status = Status.UNBOUNDED
    return Result(
        x=run.point.x.view(shape),
        value=last.value,
        grad_norm=last.grad_norm,
        status=status,
        iterations=run.iterations,
        oracle_calls=last.oracle_calls,
        passes=last.passes,
        seconds=last.seconds,
        history=rows,
        aux=run.point.aux,
    )


def _seems_unbounded(rows: Sequence[Row], dtype: torch.dtype) -> bool:
    """True if f is so low that its value at the start is lost in rounding."""
    return rows[-1].value < -max(1.0, abs(rows[0].value)) / torch.finfo(dtype).eps


def _start(
    fun: Callable[[Tensor], object] | Objective, x0: Tensor | nn.Module
) -> tuple[Objective, Tensor, torch.Size]:
    """The objective, the starting point as a vector, and the shape of the user's x0."""
    if isinstance(x0, nn.Module):
        if not isinstance(fun, ModuleObjective | RowSum) or not fun.is_of(x0):
            raise TypeError(
                "`minimize(fun, x0)` takes a module as x0 only with its own objective: "
                "`minimize(ModuleObjective(model, ...), model)`."
            )
        x = fun.initial()
        return fun, x, x.shape
    if not isinstance(x0, Tensor):
        raise TypeError(
            f"`minimize(fun, x0)` needs one tensor as x0, got {type(x0).__name__}. Use "
            "`torch.as_tensor(x0, dtype=torch.float64)`; for several tensors, `ScaledGD`."
        )
    if x0.numel() == 0:
        raise ValueError("`minimize(fun, x0)` got an empty x0: there is nothing to minimise over.")
    x = x0.detach().clone().reshape(-1)
    check = getattr(fun, "check_vector", None)
    if check is not None:
        check(x)
    if isinstance(fun, Objective):
        return fun, x, x0.shape
    return FunctionObjective(fun, x0), x, x0.shape

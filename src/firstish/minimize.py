"""`minimize`: a run of a method from a starting point to the end, with its history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from firstish.advice import diagnosis
from firstish.bounds.bounded import BoundedObjective
from firstish.bounds.box import Box
from firstish.bounds.forms import box_of, by_name, outside
from firstish.distributed import Group, comparable
from firstish.interface.display import Display
from firstish.interface.keywords import arguments_of, unknown_keyword
from firstish.interface.warn import warn
from firstish.loop import Limits, Run
from firstish.methods.base import AnyMethod
from firstish.methods.registry import method_of
from firstish.methods.take_step import ProposingMethod
from firstish.objectives.base import Objective, Point
from firstish.objectives.detached import warn_of_zeros
from firstish.objectives.finite_sum.base import RowSum
from firstish.objectives.flatten import Structure
from firstish.objectives.function import FunctionObjective, objective_of
from firstish.objectives.global_state import in_use
from firstish.objectives.hvp import Mode
from firstish.objectives.module.objective import ModuleObjective
from firstish.objectives.module.unchanged import unchanged
from firstish.objectives.numpy import NumpyObjective
from firstish.result import Entry, Progress, Result, Status, norm_name

Callback = Callable[[Progress], object]

_SHARED = (
    "the objective of this `minimize(fun, x0)`, which counts and remembers what it evaluates. Make "
    "an objective for each thread."
)


def minimize(
    fun: Callable[..., object] | Objective,
    x0: Any,
    args: Any = (),
    *,
    method: AnyMethod | str | None = None,
    gtol: float = 1e-6,
    gtol_rel: float = 0.0,
    ftol: float = 0.0,
    tol: float | None = None,
    max_oracle_calls: float | None = 10_000,
    max_iterations: int | None = None,
    max_seconds: float | None = None,
    callback: Callback | None = None,
    progress: bool = False,
    path: bool = False,
    product: Mode | None = None,
    bounds: Any = None,
    **unknown: object,
) -> Result:
    """The minimum of f from x0, by a method that sets its own step size.

    Args:
        fun: a torch function `fun(x, *args)` that returns the loss or `(loss, aux)`; or an
            objective, such as `ModuleObjective`. With a module as `x0` its argument is the module.
        x0: the starting point. `fun` gets tensors, and `result.x` has the form of `x0`:

            - a tensor: a tensor of the same shape;
            - a NumPy array, or a list of numbers: `fun` gets a tensor, and the result is an array
              (in float64, or in the array's own float32);
            - a number: `fun` gets a tensor of shape (), and the result is a float;
            - a list, tuple or dict of these, nested: the same structure;
            - a module: `fun` gets the module, and the result is written into its parameters.
        args: further arguments of `fun`, as in SciPy.
        method: a name or a method with settings, such as
            `ScaledGradient(scaling="CGMR", sigma=0)`. "lazy" by default, which needs the fewest
            oracle calls on most problems; others are "plane" and the paper's scalings such as
            "CGMR". "bfgs", "ssbfgs" and "self-scaled-bfgs" are the lazy step too; "lbfgs" and
            "l-bfgs" are `LazyStep(memory=10, self_scaled=False)`.
        gtol: stop when |g| <= gtol, in the 2-norm. SciPy's `gtol` (of its largest entry) and
            `tolerance_grad` of torch's L-BFGS.
        gtol_rel: stop when |g| <= gtol_rel |g(x0)|; off by default.
        ftol: stop when a step changes f by at most ftol max(|f before|, |f after|); off by default.
            SciPy's `ftol` of L-BFGS-B, without its 1 in the maximum, and, but for being relative,
            `tolerance_change` of torch's L-BFGS.
        tol: SciPy's name for the main tolerance: the same as `gtol`.
        max_oracle_calls: no iteration starts after this many; None for no limit.
        max_iterations: the same for iterations, a whole number.
        max_seconds: the same for seconds.
        callback: called with a `Progress` after each iteration; the run stops if it returns True
            or raises StopIteration. If `x0` is a module, it holds the new point meanwhile. Its time
            is not counted. Of several processes only rank 0's stops the run.
        progress: show the run while it goes on, on the error output: one line, or, if that is not a
            terminal, a line every 5 seconds.
        path: keep every point, as `result.path`.
        product: how Hessian-vector products are computed; see `FunctionObjective`.
        bounds: of x: `(lower, upper)`, each a number or shaped like `x0`, with None or an infinity
            where there is none; or SciPy's `Bounds`; or a list of pairs. With a module or a dict as
            `x0`, a dict of some parameters: `{"rate": (0, None)}`. f is evaluated inside only, and
            the projected gradient takes the place of g in `gtol` and the history: its entries are
            min(|g_i|, d_i max(1, |g_i|)), with d_i the length of P(x - g) - x, which ends at the
            bounds.
        unknown: none: a keyword of another library is answered with what to use instead.

    Returns:
        A `Result`. Not reaching `gtol` is a status, not an exception.

    Examples:
        >>> import firstish, torch
        >>> rosenbrock = lambda x: (1 - x[0])**2 + 100 * (x[1] - x[0]**2)**2
        >>> result = firstish.minimize(rosenbrock, [-1.2, 1.0], gtol=1e-8)
        >>> result.success, result.x.round(6).tolist()
        (True, [1.0, 1.0])

        >>> x, y = torch.arange(4.0), torch.arange(4.0) * 2 + 1
        >>> line = lambda p: ((p["slope"] * x + p["offset"] - y) ** 2).mean()
        >>> result = firstish.minimize(line, {"slope": torch.zeros(()), "offset": 0.0})
        >>> round(result.x["slope"].item(), 3), round(result.x["offset"], 3)
        (2.0, 1.0)
    """
    for name in unknown:
        raise unknown_keyword("minimize", name, arguments_of(minimize))
    if callback is not None and not callable(callback):
        raise TypeError(f"`minimize(callback=...)` must be callable, got {callback!r}.")
    limits = Limits(
        gtol=_gtol(gtol, tol),
        gtol_rel=gtol_rel,
        ftol=ftol,
        max_oracle_calls=max_oracle_calls,
        max_iterations=max_iterations,
        max_seconds=max_seconds,
    )
    chosen = method_of(method, "minimize")
    objective, form = objective_of(fun, x0, args, product)
    box = None if bounds is None else _box(bounds, x0, form, chosen)
    owner = objective if isinstance(x0, nn.Module) else None
    group = getattr(objective, "group", None)
    if group is not None:
        _require_same(group, chosen, limits, box)
    shown = progress and (group is None or group.rank == 0)
    display = Display(norm=norm_name(box is not None)) if shown else None
    record = _Record(form, callback, owner, display, [] if path else None)
    with in_use([objective], _SHARED):
        bounded = objective if box is None else BoundedObjective(objective, box)
        run = Run(bounded, form.start, chosen)
        try:
            status = _drive(run, limits, record)
        finally:
            record.load(run.point.x)  # also after Ctrl-C: what was reached is not lost
        result = _result(run, status, limits, record)
        plain = isinstance(objective, FunctionObjective | NumpyObjective)
        if plain and not run.point.full_grad.all():
            warn_of_zeros(run.point, run.iterations > 0)
        return result


def _gtol(gtol: float, tol: float | None) -> float:
    if tol is None:
        return gtol
    if gtol not in (1e-6, tol):
        raise ValueError(f"`minimize(gtol={gtol}, tol={tol})`: both name one tolerance. Pass one.")
    return tol


@dataclass(slots=True)
class _Record:
    """What is kept of a run, and who sees it while it goes on.

    Args:
        form: that of x0.
        callback: the user's.
        owner: the objective of the module that is x0, if it is one.
        display: shows the run.
        path: the points so far, if they are kept.
    """

    form: Structure
    callback: Callback | None
    owner: Objective | None
    display: Display | None
    path: list[Tensor] | None
    history: list[Entry] = field(default_factory=list)

    def load(self, x: Tensor) -> None:
        """Write x into the module, if x0 is one."""
        if not isinstance(self.owner, ModuleObjective | RowSum):
            return
        try:
            self.owner.load(x)
        except BaseException:  # a Ctrl-C in the middle of it
            self.owner.load(x)
            raise

    def add(self, run: Run, entry: Entry) -> None:
        """Keep an iteration, and show it."""
        self.history.append(entry)
        if self.path is not None:
            self.path.append(run.point.x)
        if self.display is not None:
            k, calls, _, seconds, value, grad_norm, _ = run.here()
            self.display.show(k, value, grad_norm, calls, seconds)

    def call(self, point: Point, entry: Entry) -> bool:
        """Call the callback; True if it stops the run."""
        model = getattr(self.owner, "model", None)
        if model is None:
            return _returns_true(self.callback, point, entry, self.form)
        with unchanged(model):
            self.load(point.x)
            return _returns_true(self.callback, point, entry, self.form)


def _box(bounds: Any, x0: Any, form: Structure, method: AnyMethod) -> Box | None:
    """The bounds of the vector x; warns if x0 is outside."""
    if not isinstance(method, ProposingMethod):
        raise TypeError(
            f"`minimize(bounds=..., method=...)`: {type(method).__name__} does not support bounds. "
            "Use 'lazy', 'plane' or a scaling such as 'CGMR'."
        )
    if type(form.start) is not Tensor:
        raise TypeError("`minimize(bounds=...)` is not supported with sharded parameters.")
    if isinstance(x0, nn.Module):
        named = {name: p for name, p in x0.named_parameters() if p.requires_grad}
        frozen = [name for name, p in x0.named_parameters() if not p.requires_grad]
        bounds = by_name(bounds, list(named), "minimize", "the model has no parameter", frozen)
        form = Structure(named)
    elif isinstance(x0, dict):
        bounds = by_name(bounds, list(x0), "minimize", "x0 has no key")
    box = box_of(bounds, form, "minimize")
    told = None if box is None else outside(box, form)
    if told is not None:
        warn(
            "`minimize(fun, x0, bounds=...)` got an x0 outside of the bounds "
            f"({told}): the run starts from the nearest point inside."
        )
    return box


def _require_same(group: Group, method: AnyMethod, limits: Limits, box: Box | None) -> None:
    """Raise if settings differ between processes; `max_seconds` may, and rank 0's is used."""
    group.require_same(
        (comparable(method), replace(limits, max_seconds=None), box and box.checksum()),
        "methods, tolerances, budgets or bounds",
        "Call `minimize` with the same arguments on every rank.",
    )


def _drive(run: Run, limits: Limits, record: _Record) -> Status:
    has_callback = record.callback is not None
    if run.group is not None:
        has_callback = run.group.any(has_callback)  # in this process or another
    while True:
        outcome = run.advance(limits)
        if isinstance(outcome, Status):
            return outcome
        record.add(run, outcome)
        if has_callback and _stops(record, run, outcome):
            return Status.STOPPED


def _stops(record: _Record, run: Run, entry: Entry) -> bool:
    shown = run.clock.seconds()
    stop = record.call(run.point, entry)
    if run.group is not None:
        stop = bool(run.group.broadcast(stop))  # the callback of rank 0 decides for all
    run.clock.forget_since(shown)
    return stop


def _returns_true(callback: Callback | None, point: Point, entry: Entry, form: Structure) -> bool:
    if callback is None:  # of another process only
        return False
    progress = Progress(entry.row(), point.value, point.optimality, point.aux, point.x, form)
    try:
        answer = callback(progress)
    except StopIteration:
        return True
    return _is_true(answer)


def _is_true(answer: object) -> bool:
    """True for True of Python, NumPy or torch; a number returned by accident does not count."""
    kind = str(getattr(answer, "dtype", type(answer).__name__))
    return kind in ("bool", "torch.bool") and bool(answer)


def _held(point: Point) -> int | None:
    """The number of variables held at their bounds, None without bounds; without an evaluation."""
    if point.box is None:
        return None
    _ = point.grad  # of an accepted point it is known
    return point.active


def _at_the_start(gtol: float) -> str:
    return (
        f"x0 meets gtol={gtol:g} already. If x0 is not the minimum, its gradient is small in these "
        "units: pass `gtol=0, gtol_rel=1e-8`, or rescale f or x."
    )


def _result(run: Run, status: Status, limits: Limits, record: _Record) -> Result:
    last, active = run.here(), _held(run.point)
    run.point.release()
    rows, form, advice = [entry.row() for entry in (*record.history, last)], record.form, ""
    rows[-1].active = active
    if status is Status.CONVERGED and run.iterations == 0 and last.grad_norm > 0:
        advice = _at_the_start(limits.gtol)
    elif status not in (Status.CONVERGED, Status.GTOL_REL, Status.STOPPED):
        status, advice = diagnosis(run, status, limits, rows[0].value)
    result = Result(
        x=form.restored(run.point.x),
        value=last.value,
        grad_norm=last.grad_norm,
        status=status,
        iterations=run.iterations,
        oracle_calls=last.oracle_calls,
        passes=last.passes,
        seconds=last.seconds,
        history=rows,
        aux=run.point.aux,
        advice=advice,
        path=None if record.path is None else [*map(form.restored, (form.start, *record.path))],
    )
    if record.display is not None:
        record.display.close(result.message)
    return result

"""`Result`, `Row`, `Progress` and `Status`: what a run returns and records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any, NamedTuple

from torch import Tensor

from firstish.interface.plot import draw
from firstish.interface.table import frame, html
from firstish.methods.base import Step
from firstish.objectives.flatten import Structure


class Status(Enum):
    """How a run ended."""

    CONVERGED = "The gradient norm is at most gtol."
    GTOL_REL = "The gradient norm is at most gtol_rel times that at the start."
    FTOL = "The last step changed f by at most ftol, relative to f."
    MAX_ORACLE_CALLS = "The budget of oracle calls is spent."
    MAX_ITERATIONS = "The budget of iterations is spent."
    MAX_SECONDS = "The budget of seconds is spent."
    STOPPED = "The callback stopped the run."
    ROUNDING = "No step from x lowers f by more than its rounding error."
    LINE_SEARCH = "No trial of the line search was accepted."
    NON_FINITE = "f, its gradient or a Hessian-vector product was not finite at the next point."
    UNBOUNDED = "f falls without bound, as far as it was followed."


@dataclass(slots=True, kw_only=True)
class Row(Step):
    """The point x_k and the step taken from it; the last row of a run has no step but `active`.

    Args:
        iteration: k.
        oracle_calls: the cost until f and g at x_k were known, in the paper's unit.
        passes: the same in actual forward passes.
        seconds: the same in seconds.
        value: f(x_k).
        grad_norm: |g(x_k)|; with bounds that of the projected gradient (see `minimize`).
    """

    iteration: int
    oracle_calls: float
    passes: float
    seconds: float
    value: float
    grad_norm: float

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        return {k: v.name if isinstance(v, Enum) else v for k, v in asdict(self).items()}


_STEP = tuple(f.name for f in fields(Step))


class Entry(NamedTuple):
    """The contents of a row, as a tuple: cheaper to make within an iteration."""

    iteration: int
    oracle_calls: float
    passes: float
    seconds: float
    value: float
    grad_norm: float
    step: Step | None

    def row(self) -> Row:
        """The row."""
        fields: dict[str, Any] = self._asdict()
        step = fields.pop("step")
        if step is not None:
            fields.update((name, getattr(step, name)) for name in _STEP)
        return Row(**fields)


@dataclass(frozen=True, slots=True)
class Progress:
    """The argument of a callback, after each iteration.

    Args:
        row: the point the iteration started from and the step it took.
        value: f at the new point.
        grad_norm: |g| there; with bounds that of the projected gradient.
        aux: what the loss returned besides its value there.
    """

    row: Row
    value: float
    grad_norm: float
    aux: Any = field(repr=False)
    _x: Tensor = field(repr=False)  # the run's own, not to be written to
    _form: Structure = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        """Only for names that are not here: those of a row, or of SciPy's result, bring a hint."""
        at_x_k = {name: f"row.{name}" for name in Row.__dataclass_fields__}
        at_x_k |= {"nit": "row.iteration"} | dict.fromkeys(_COUNTS, "row.oracle_calls")
        raise _missing("Progress", name, _SCIPY | at_x_k)

    @property
    def x(self) -> Any:
        """A copy of the new point, in the form of `x0`."""
        return self._form.restored(self._x.clone())


_COUNTS = ("nfev", "njev", "nhev")
_SCIPY = {
    "fun": "value",
    "nit": "iterations",
    **dict.fromkeys(_COUNTS, "oracle_calls"),
    "jac": "grad_norm` for its norm, and `torch.func.grad(fun)(x)` for the gradient at a tensor `x",
    "hess": "torch.autograd.functional.hessian(fun, x)",
    "hess_inv": "torch.linalg.inv(torch.autograd.functional.hessian(fun, x))",
    "allvecs": "path",
}
"""The names of SciPy's `OptimizeResult`, and what is nearest here."""


def _missing(owner: str, name: str, nearest: dict[str, str]) -> AttributeError:
    hint = f" Use `{nearest[name]}`." if name in nearest else ""
    return AttributeError(f"`{owner}` has no `{name}`.{hint}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result:
    """The result of `minimize`.

    Args:
        x: the last point, in the form of `x0`: a tensor for a tensor, a NumPy array for an array or
            a list of numbers, a float for a number, and the same structure for a structure. One
            vector if `x0` was a module, which holds the result.
        value: f(x).
        grad_norm: |g(x)|; with bounds that of the projected gradient.
        status: how the run ended; its value is a sentence.
        advice: what to do to get further, if anything.
        path: every point in the form of `x0`, if it was asked for: `path[k]` belongs to
            `history[k]`.
        iterations: steps taken.
        oracle_calls: the total cost, in the paper's unit.
        passes: the total cost, in actual forward passes.
        seconds: the total time, without the callback's.
        history: a row per point; `history[k]` is x_k and the step taken from it.
        aux: what the loss returned besides its value, at x.
    """

    x: Any
    value: float
    grad_norm: float
    status: Status
    iterations: int
    oracle_calls: float
    passes: float
    seconds: float
    history: Sequence[Row]
    aux: Any = None
    advice: str = ""
    path: Sequence[Any] | None = None

    def __repr__(self) -> str:
        return f"Result({self.status.name}: {self.message} {_shape(self.x)})"

    def __getattr__(self, name: str) -> Any:
        """Only for names that are not here: those of SciPy's result are answered with ours."""
        raise _missing("Result", name, _SCIPY)

    @property
    def success(self) -> bool:
        """True if a tolerance was reached: `gtol`, `gtol_rel` or `ftol`.

        False for `Status.ROUNDING` too: no step lowered f any more, but `gtol` was not reached.
        """
        return self.status in (Status.CONVERGED, Status.GTOL_REL, Status.FTOL)

    @property
    def message(self) -> str:
        """The status as a sentence, with the numbers and the advice."""
        plural = "s" * (self.iterations != 1)
        numbers = (
            f"f = {self.value:.6g}, {self._norm} = {self.grad_norm:.3g} after "
            f"{self.iterations} iteration{plural} and {self.oracle_calls:g} oracle calls."
        )
        return " ".join(filter(None, (self._sentence, numbers, self.advice)))

    @property
    def _bounded(self) -> bool:
        return self.history[-1].active is not None

    @property
    def _norm(self) -> str:
        return norm_name(self._bounded)

    @property
    def _sentence(self) -> str:
        """The status; with bounds the gradient is the projected one."""
        gradient = "projected gradient norm" if self._bounded else "gradient norm"
        return self.status.value.replace("gradient norm", gradient)

    def plot(
        self, y: str = "value", *, x: str = "oracle_calls", ax: Any = None, **line: Any
    ) -> Any:
        """Draw the history with matplotlib, on a logarithmic scale where all values are positive.

        Args:
            y: "value" (f), "grad_norm", "step_size" or "scale".
            x: "oracle_calls", "iteration", "passes" or "seconds".
            ax: the axes to draw into; new ones by default.
            line: settings of the line, such as `label` and `color`.

        Returns:
            The axes.
        """
        return draw(self.history, y, x, ax, self._norm, **line)

    def to_frame(self) -> Any:
        """The history as a pandas data frame: a line for each point, the iteration as index."""
        return frame([row.to_dict() for row in self.history])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return html(
            f"Result: {self.status.name}",
            {
                "message": " ".join(filter(None, (self._sentence, self.advice))),
                "success": str(self.success),
                "f": f"{self.value:.6g}",
                self._norm: f"{self.grad_norm:.3g}",
                "x": _shape(self.x),
                "iterations": str(self.iterations),
                "oracle calls": f"{self.oracle_calls:g}",
                "passes": f"{self.passes:g}",
                "seconds": f"{self.seconds:.3g}",
            },
        )


def norm_name(bounded: bool) -> str:
    """What the norm of the gradient is called; with bounds it is the projected one's."""
    return "|projected gradient|" if bounded else "|g|"


def _shape(x: Any) -> str:
    if hasattr(x, "shape"):
        return f"x has shape {tuple(x.shape)}"
    return f"x = {x:.6g}" if isinstance(x, float) else f"x is a {type(x).__name__} of {len(x)}"

"""The fit of a linear model, shared by the estimators, in preconditioned variables."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from firstish.bounds.bounded import BoundedObjective, BoundedPoint
from firstish.bounds.box import Box
from firstish.loop import Limits, Run
from firstish.methods.base import AnyMethod
from firstish.methods.registry import method_of
from firstish.objectives.global_state import ignored
from firstish.objectives.linear.families import Family, Multinomial
from firstish.objectives.linear.features import from_scipy
from firstish.objectives.linear.model import LinearModel, LinearPoint
from firstish.result import Status
from firstish.sklearn.substituted import Substituted, SubstitutedPoint
from firstish.sklearn.variables import Array, Variables, cost, diagonal, whitened

FIRST_CHANGE = 8
"""Iterations before the first change of variables; the next one follows when they have doubled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A linear model to fit.

    Args:
        A: the features, a C-contiguous float64 array or a CSR matrix.
        targets: in the form that the family expects.
        family: the loss.
        weights: of the samples, or None.
        penalty: lambda in the sum of the losses + lambda/2 |w|^2.
        intercept: True to fit an intercept, which is not penalised.
    """

    A: Any
    targets: Tensor
    family: Family
    weights: Array | None
    penalty: float
    intercept: bool

    @property
    def sum_zero(self) -> bool:
        """True if the loss depends only on differences of the rows of x.

        It has no curvature along a common change of all rows, so the variables exclude it, and the
        rows of the minimiser add up to 0.
        """
        return isinstance(self.family, Multinomial)

    def total(self) -> float:
        """The sum of the weights, by which the losses are divided."""
        return float(self.A.shape[0] if self.weights is None else self.weights.sum())

    def objective(self) -> LinearModel:
        """The mean loss, with the penalty divided by the sum of the weights too."""
        # An estimator fits the data of its own process, also if there are several processes.
        with ignored(".*has no `process_group="):
            return LinearModel(
                as_tensor(self.A),
                self.targets,
                self.family,
                sample_weight=None if self.weights is None else as_tensor(self.weights),
                weight_decay=self.penalty / self.total(),
                intercept=self.intercept,
                penalise_intercept=False,
            )

    def variables(self, point: LinearPoint, rows: int, whiten: bool) -> Variables:
        """Variables in which the Hessian at the point is nearly the identity."""
        n = self.A.shape[0]
        weights = np.full(n, 1 / n) if self.weights is None else self.weights / self.total()
        curvatures = point.score_curvatures().view(n, rows).numpy()
        arguments = (self.A, weights, curvatures, self.penalty / self.total(), self.intercept)
        made = (whitened(*arguments) if whiten else None) or diagonal(*arguments)
        return replace(made, sum_zero=self.sum_zero)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of a fit; `largest` is the largest entry of the gradient."""

    x: Tensor
    iterations: int
    status: Status
    largest: float

    def warn(self, estimator: object) -> None:
        """Warn if the fit did not converge."""
        if self.status is Status.CONVERGED:
            return
        name = type(estimator).__name__
        remedy = {
            Status.MAX_ITERATIONS: "Raise max_iter or tol, or scale the columns of X.",
            Status.ROUNDING: "Raise tol: it is below the precision of float64.",
        }.get(self.status, "Check X for columns of very different scales.")
        warnings.warn(
            f"{name} did not converge: {self.status.value} The largest entry of the gradient is "
            f"{self.largest:.3g} after {self.iterations} iterations. {remedy}",
            ConvergenceWarning,
            stacklevel=3,
        )


def fit(
    task: Task,
    start: Array,
    *,
    method: AnyMethod | str | None,
    tol: float,
    max_iter: int,
    precondition: bool,
    box: Box | None = None,
) -> Fitted:
    """Minimise the mean loss until no entry of its gradient is larger than tol in magnitude.

    Args:
        task: the model.
        start: the initial rows (w, b), one for each score.
        method: as for `minimize`; "lazy" by default.
        tol: the tolerance.
        max_iter: the largest number of iterations.
        precondition: True to run the method in variables chosen from the data.
        box: bounds of x, each 0 or infinite: the same for variables changed by a positive diagonal.
    """
    chosen = method_of(method, "fit")
    objective = task.objective()
    x = torch.from_numpy(start - start.mean(0) if task.sum_zero else start).reshape(-1)
    point = objective.at(x, chosen.order)
    rows, iterations = len(start), 0
    if box is None:
        change: float = max(FIRST_CHANGE, cost(task.A, rows)) if precondition else np.inf
        run = _begin(task, point, chosen, rows, precondition, whiten=False)
    else:
        change, run = np.inf, _begin_between(box, task, point, chosen, rows, precondition)
    while True:
        here = _inner(run)
        largest = _largest(here, run.point.free)
        status = None
        if largest <= tol:
            status = Status.CONVERGED
        elif iterations >= max_iter:
            status = Status.MAX_ITERATIONS
        elif iterations >= change:
            run = _begin(task, here, chosen, rows, precondition, whiten=True)
            change = 2 * iterations
        if status is None:
            outcome = run.advance(Limits())
            if isinstance(outcome, Status):
                status = outcome
            else:
                iterations += 1
        if status is not None:
            return Fitted(here.x, iterations, status, largest)


def _begin(
    task: Task, point: LinearPoint, method: AnyMethod, rows: int, change: bool, whiten: bool
) -> Run:
    """A run from this point, in new variables if `change`."""
    if not change:
        return Run(point.objective, point.x, method)
    objective = Substituted(point, task.variables(point, rows, whiten))
    return Run(objective, objective.initial(), method)


def _begin_between(
    box: Box, task: Task, point: LinearPoint, method: AnyMethod, rows: int, change: bool
) -> Run:
    """A run from this point between bounds; if `change`, in variables centred and scaled."""
    if not change:
        return Run(BoundedObjective(point.objective, box), point.x, method)
    variables = task.variables(point, rows, whiten=False)
    # From x = 0, so that a variable at its bound is exactly 0.
    origin = point.at(torch.zeros_like(point.x), method.order)
    objective = BoundedObjective(Substituted(origin, variables), box)
    return Run(objective, variables.inverse(point.x), method)


def _largest(point: LinearPoint, free: Tensor | None) -> float:
    """The largest entry of the gradient, of the free variables if some are held."""
    g = point.grad if free is None else point.grad.masked_fill(~free, 0.0)
    return float(g.abs().max())


def _inner(run: Run) -> LinearPoint:
    point = run.point
    while isinstance(point, SubstitutedPoint | BoundedPoint):
        point = point.inner
    assert isinstance(point, LinearPoint)
    return point


def as_tensor(array: Any) -> Tensor:
    """A tensor that shares the memory of the array; neither is written to."""
    if sp.issparse(array):
        return from_scipy(array)
    with ignored("The given NumPy array is not writable"):
        return torch.from_numpy(array)

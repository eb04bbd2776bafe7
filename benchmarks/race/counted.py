"""An objective for solvers that are not ours, counted in the same unit.

A value is 1, a gradient after the value 1 more, a Hessian-vector product after the gradient 2
more. All that a solver evaluates counts, and nothing counts twice at the same x.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firstish.objectives.autograd import AutogradObjective
from firstish.objectives.base import Objective
from race.limits import Clock

Array = NDArray[np.float64]

REMEMBERED = 4  # points: the current one and the last trials


class Enough(Exception):
    """Raised out of a solver when the run is over; its argument is the status."""


class OnGraph:
    """What autograd has computed at one x, and the graphs that can give more.

    A graph serves all products of a solver, where a `Point` frees it after the first.
    """

    def __init__(self, objective: AutogradObjective, x: Tensor, products: bool) -> None:
        run = objective.evaluate(x, True)
        (self._leaf,) = run.leaves
        decay = 0.0 if objective.penalty is None else objective.penalty.weight_decay
        self._loss = run.loss + decay / 2 * self._leaf.dot(self._leaf) if decay else run.loss
        self._products = products
        self.value = float(self._loss.detach())
        self.grad: Tensor | None = None

    def differentiate(self) -> Tensor:
        (grad,) = torch.autograd.grad(self._loss, self._leaf, create_graph=self._products)
        return grad

    def product(self, v: Tensor) -> Tensor:
        assert self.grad is not None
        if not self.grad.requires_grad:  # f is linear
            return torch.zeros_like(v)
        (Hv,) = torch.autograd.grad(self.grad, self._leaf, v, retain_graph=True)
        return Hv


class OnPoint:
    """The same by a point of an objective that needs no graph, as `LinearModel`."""

    def __init__(self, objective: Objective, x: Tensor, products: bool) -> None:
        self._point = objective.at(x, 2 if products else 1)
        self.value = self._point.value
        self.grad: Tensor | None = None

    def differentiate(self) -> Tensor:
        return self._point.grad

    def product(self, v: Tensor) -> Tensor:
        return self._point.hvp(v).vector


class Counted:
    """value, gradient and product of an objective as NumPy functions, with a counter.

    Args:
        objective: the function; its own counter is not used.
        dtype: the precision it computes in.
        products: whether gradients keep their graph, for products to come.
        max_calls: an evaluation after so many raises `Enough`.
        max_seconds: likewise.
    """

    def __init__(
        self,
        objective: Objective,
        dtype: torch.dtype,
        products: bool,
        max_calls: float,
        max_seconds: float,
    ) -> None:
        self.objective, self.dtype, self.products = objective, dtype, products
        self.max_calls, self.max_seconds = max_calls, max_seconds
        self.calls = 0
        self._known: OrderedDict[bytes, OnGraph | OnPoint] = OrderedDict()
        self._clock = Clock()

    def seconds(self) -> float:
        """Since the start."""
        return self._clock.seconds()

    def value(self, x: Array) -> float:
        """f(x)."""
        return self._at(x).value

    def grad(self, x: Array) -> Array:
        """The gradient."""
        found: Array = self._grad(self._at(x)).detach().numpy().astype(np.float64)
        return found

    def hessp(self, x: Array, v: Array) -> Array:
        """The product of the Hessian with v."""
        known = self._at(x)
        self._grad(known)
        self._spend(2)
        Hv = known.product(torch.from_numpy(v).to(self.dtype))
        found: Array = Hv.numpy().astype(np.float64)
        return found

    def _at(self, x: Array) -> OnGraph | OnPoint:
        key = x.tobytes()
        known = self._known.get(key)
        if known is None:
            self._spend(1)
            here = torch.tensor(x, dtype=self.dtype)  # a copy, since solvers write to their x
            if isinstance(self.objective, AutogradObjective):
                known = OnGraph(self.objective, here, self.products)
            else:
                known = OnPoint(self.objective, here, self.products)
            self._known[key] = known
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return known

    def _grad(self, known: OnGraph | OnPoint) -> Tensor:
        if known.grad is None:
            self._spend(1)
            known.grad = known.differentiate()
        return known.grad

    def _spend(self, calls: int) -> None:
        if self.calls >= self.max_calls:
            raise Enough("MAX_ORACLE_CALLS")
        if self.seconds() >= self.max_seconds:
            raise Enough("MAX_SECONDS")
        self.calls += calls

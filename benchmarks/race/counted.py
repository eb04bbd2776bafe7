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
from race.limits import Clock

Array = NDArray[np.float64]

REMEMBERED = 4  # points: the current one and the last trials


class Enough(Exception):
    """Raised out of a solver when the run is over; its argument is the status."""


class Known:
    """What has been computed at one x, and the graphs that can give more."""

    def __init__(self, loss: Tensor, leaf: Tensor) -> None:
        self.loss, self.leaf = loss, leaf
        self.value = float(loss.detach())
        self.grad: Tensor | None = None


class Counted:
    """value, gradient and product of an objective as NumPy functions, with a counter.

    Args:
        objective: its loss is evaluated, the weight decay added.
        dtype: the precision it computes in.
        products: whether gradients keep their graph, for products to come.
        max_calls: an evaluation after so many raises `Enough`.
        max_seconds: likewise.
    """

    def __init__(
        self,
        objective: AutogradObjective,
        dtype: torch.dtype,
        products: bool,
        max_calls: float,
        max_seconds: float,
    ) -> None:
        self.objective, self.dtype, self.products = objective, dtype, products
        self.max_calls, self.max_seconds = max_calls, max_seconds
        self.calls = 0
        self._known: OrderedDict[bytes, Known] = OrderedDict()
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
        g = self._grad(known)
        self._spend(2)
        if not g.requires_grad:  # f is linear
            return np.zeros_like(v)
        vector = torch.from_numpy(v).to(self.dtype)
        (Hv,) = torch.autograd.grad(g, known.leaf, vector, retain_graph=True)
        found: Array = Hv.numpy().astype(np.float64)
        return found

    def _at(self, x: Array) -> Known:
        key = x.tobytes()
        known = self._known.get(key)
        if known is None:
            self._spend(1)
            # A copy, since solvers write to their x.
            run = self.objective.evaluate(torch.tensor(x, dtype=self.dtype), True)
            (leaf,) = run.leaves
            decay = self.objective.penalty.weight_decay
            loss = run.loss + decay / 2 * leaf.dot(leaf) if decay else run.loss
            known = self._known[key] = Known(loss, leaf)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return known

    def _grad(self, known: Known) -> Tensor:
        if known.grad is None:
            self._spend(1)
            (known.grad,) = torch.autograd.grad(known.loss, known.leaf, create_graph=self.products)
        return known.grad

    def _spend(self, calls: int) -> None:
        if self.calls >= self.max_calls:
            raise Enough("MAX_ORACLE_CALLS")
        if self.seconds() >= self.max_seconds:
            raise Enough("MAX_SECONDS")
        self.calls += calls

"""SciPy's solvers on the same objectives, counted in the same unit.

A value is 1, a gradient after the value 1 more, a Hessian-vector product after the gradient 2
more. Whatever SciPy asks for counts, and nothing counts twice at the same x.
"""

from __future__ import annotations

import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from scipy import optimize
from torch import Tensor

from firstish.objectives.graph import GraphObjective
from firstish.problems.base import Instance
from race.limits import Finish
from race.traces import Outcome, Trace

Array = NDArray[np.float64]

# SciPy's own tests are off: the race says when to stop. The rest is as SciPy has it.
SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "scipy-lbfgsb": (
        "L-BFGS-B",
        {"ftol": 0.0, "gtol": 0.0, "maxiter": 10**9, "maxfun": 10**9},
    ),
    "scipy-trust-ncg": ("trust-ncg", {"gtol": 0.0, "maxiter": 10**9}),
    "scipy-newton-cg": ("Newton-CG", {"xtol": 0.0, "maxiter": 10**9}),
}
REMEMBERED = 4  # points: the current one and the last trials


def setting(name: str) -> str:
    """What the results depend on."""
    method, options = SOLVERS[name]
    return f"{method} {options}, SciPy {scipy.__version__}"


class Enough(Exception):
    """Raised out of SciPy when the run is over; its argument is the status."""


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
        max_calls: `Enough` is raised when more is asked for after so many.
        max_seconds: likewise.
    """

    def __init__(
        self,
        objective: GraphObjective,
        dtype: torch.dtype,
        products: bool,
        max_calls: float,
        max_seconds: float,
    ) -> None:
        self.objective, self.dtype, self.products = objective, dtype, products
        self.max_calls, self.max_seconds = max_calls, max_seconds
        self.calls = 0
        self._known: OrderedDict[bytes, Known] = OrderedDict()
        self._start = time.perf_counter()

    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._start

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
        vector = torch.from_numpy(v).to(self.dtype)
        if not g.requires_grad:  # f is linear
            return np.zeros_like(v)
        (Hv,) = torch.autograd.grad(g, known.leaf, vector, retain_graph=True)
        found: Array = Hv.numpy().astype(np.float64)
        return found

    def _at(self, x: Array) -> Known:
        key = x.tobytes()
        known = self._known.get(key)
        if known is None:
            self._spend(1)
            run = self.objective.evaluate(torch.from_numpy(x).to(self.dtype), True)
            (leaf,) = run.leaves
            loss = run.loss + self.objective.weight_decay / 2 * leaf.dot(leaf)
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


def run(instance: Instance, name: str, finish: Finish) -> Outcome:
    """Run it to the finish. An iterate counts once f and g are known there, as for ours."""
    method, options = SOLVERS[name]
    objective = instance.objective
    assert isinstance(objective, GraphObjective)
    products = method != "L-BFGS-B"
    x0 = instance.x0.numpy().astype(np.float64)
    f = Counted(objective, instance.x0.dtype, products, finish.max_calls, finish.max_seconds)
    trace = Trace()

    def look(x: Array) -> None:
        value, g = f.value(x), f.grad(x)
        trace.add(f.calls, f.seconds(), value)
        if finish.reached(value, float(np.linalg.norm(g))):
            raise Enough("TARGET")

    def callback(intermediate_result: optimize.OptimizeResult) -> None:
        look(np.array(intermediate_result.x))

    hessp: Callable[[Array, Array], Array] | None = f.hessp if products else None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            look(x0)
            result = optimize.minimize(
                f.value,
                x0,
                jac=f.grad,
                hessp=hessp,
                method=method,
                callback=callback,
                options=options,
            )
            status = f"SCIPY: {result.message}"
        except Enough as reason:
            status = str(reason)
        except Exception as error:  # a method that breaks is a row in the table
            status = f"FAILED: {type(error).__name__}: {error}"
    return Outcome(status, trace, f.calls, f.seconds())

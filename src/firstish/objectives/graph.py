"""Points whose derivatives autograd computes on the graph of the value."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from firstish.errors import ProductError
from firstish.objectives import products
from firstish.objectives.backward import derivative
from firstish.objectives.choosing import ChoosingPoint
from firstish.objectives.layout import Layout
from firstish.objectives.loss import independent
from firstish.objectives.point import Depth, Meter, Point, Product
from firstish.objectives.watch import graph_eps, refuse_nondeterministic
from firstish.vectors import add, dot


@dataclass(slots=True)
class Evaluation:
    """One run of the loss.

    Args:
        loss: the scalar, with its graph if one was asked for.
        leaves: what to differentiate by.
        outputs: what the loss was computed from, for Gauss-Newton products.
        grads: the gradient, where the loss computed it itself.
        aux: what the loss returned beside its value.
        buffers: the module's buffers after the run.
    """

    loss: Tensor
    leaves: Sequence[Tensor]
    outputs: Tensor | None = None
    grads: Sequence[Tensor | None] | None = None
    aux: Any = None
    buffers: Sequence[Tensor] = ()


_SPARSE = (
    "{what} has a sparse gradient, which cannot form one vector. "
    "Use dense ones, for example `nn.Embedding(..., sparse=False)`."
)


_WRITES = (
    "{what} writes to the x that it is given, so that its value belongs to another point. Compute "
    "the loss of x as it is: `x.clamp(min=0)` instead of `x.clamp_(min=0)`, which changes x."
)


class GraphObjective(ABC):
    """What function, module and closure objectives share; see `FunctionObjective` for arguments."""

    root: nn.Module | None = None  # for the names in errors
    raised: Exception | None = None  # the last error of the loss itself
    flat_leaf = True  # whether autograd's leaf is the vector itself
    one_graph = False  # whether only the newest graph is valid; then `is_current` tells

    def __init__(
        self,
        layout: Layout,
        call: str,
        what: str,
        *,
        product: products.Mode,
        check: bool,
        weight_decay: float,
    ) -> None:
        if not 0 <= weight_decay < math.inf:
            raise ValueError(
                f"`{call}(weight_decay=...)` must be at least 0 and finite, got {weight_decay}."
            )
        self.layout = layout
        self.what = what  # how errors speak of the loss
        self.meter = Meter()
        self.product = products.ProductChoice(product, call)
        self.weight_decay = weight_decay
        self.eps = torch.finfo(layout.dtype).eps
        self.grad_scale = 0.0  # the largest gradient norm seen
        self._check = check
        self._looked = False

    def at(self, x: Tensor, depth: Depth = "product") -> GraphPoint:
        """The point x, not yet evaluated."""
        return GraphPoint(self, x, depth)

    @abstractmethod
    def evaluate(self, x: Tensor, graph: bool) -> Evaluation:
        """Run the loss at x."""

    def is_current(self, run: Evaluation) -> bool:
        """Whether the graph of that run can still be used."""
        return True

    def commit(self, buffers: Sequence[Tensor]) -> None:
        """Keep the buffers of an accepted point, such as BatchNorm's statistics."""

    def check_vector(self, x: Tensor) -> None:
        """Refuse a vector that is not one of this objective's."""
        self.layout.check_vector(x)

    def run(self, x: Tensor, graph: bool) -> Evaluation:
        """Evaluate and count the passes; the first time, look whether the loss can be trusted."""
        return self._counted(x, graph) if self._looked else self._first_run(x, graph)

    def _counted(self, x: Tensor, graph: bool) -> Evaluation:
        try:
            run = self.evaluate(x, graph)
        except Exception as error:
            self.raised = error
            raise
        self.meter.passes += 1 if run.grads is None else 2
        return run

    def _first_run(self, x: Tensor, graph: bool) -> Evaluation:
        given = x.clone()
        run = self._counted(x, graph)
        if not (torch.equal(x, given) or torch.equal(x.nan_to_num(), given.nan_to_num())):
            raise ValueError(_WRITES.format(what=self.what))
        self.eps = max(self.eps, self.noise(run))
        if not self._check:
            self._looked = True
            return run
        first = float(run.loss.detach())
        del run  # its graph goes before the next one is built
        run = self._counted(x, graph)
        second = float(run.loss.detach())
        if math.isfinite(first) and not abs(first - second) <= 10 * self.eps * abs(first):
            refuse_nondeterministic(
                lambda: self.evaluate(x, graph), first, second, self.what, self.root
            )
        self._looked = True
        return run

    def noise(self, run: Evaluation) -> float:
        """The unit roundoff of the arithmetic that run was made in, as far as it can be seen."""
        return graph_eps(run.loss)

    def confirm(self, point: GraphPoint, run: Evaluation, moved: Tensor, g: Tensor) -> None:
        """A chance to compare the gradient at the point, and g at x + moved, with the loss."""

    def value(self, run: Evaluation, x: Tensor) -> float:
        """f from a run of the loss: the loss plus weight_decay/2 |x|^2."""
        loss = run.loss.item()
        return loss + self.weight_decay / 2 * dot(x, x) if self.weight_decay else loss

    def gradient(
        self, run: Evaluation, x: Tensor, create_graph: bool, retain_graph: bool
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """The gradient of f as one vector, and leaf by leaf with its graph."""
        grads = run.grads
        if grads is None:
            if not run.loss.requires_grad:
                raise independent(self.what)
            try:
                grads = derivative(
                    (run.loss,), run.leaves, create_graph=create_graph, retain_graph=retain_graph
                )
            except RuntimeError as error:
                if "sparse" in str(error):
                    raise TypeError(_SPARSE.format(what=self.what)) from error
                raise
            self.meter.passes += 1
        anything = False
        for g in grads:
            if g is not None:
                anything = True
                if g.layout != torch.strided:
                    raise TypeError(_SPARSE.format(what=self.what))
        if not anything:  # it has a graph, but one that leads elsewhere
            raise ValueError(f"{self.what} does not depend on any of the parameters.")
        return self.flat(grads, x), grads

    def flat(self, parts: Sequence[Tensor | None], of: Tensor) -> Tensor:
        """A derivative leaf by leaf to one vector without a graph, that of the decay added."""
        if not self.flat_leaf:
            vector = self.layout.flatten([None if t is None else t.detach() for t in parts])
        elif parts[0] is None:
            vector = torch.zeros_like(of)
        else:
            vector = parts[0].detach() if parts[0].requires_grad else parts[0]
        return vector.add(of, alpha=self.weight_decay) if self.weight_decay else vector

    def parts(self, v: Tensor) -> Sequence[Tensor]:
        """A vector leaf by leaf."""
        return [v] if self.flat_leaf else self.layout.split(v)


class GraphPoint(ChoosingPoint):
    """A point of a `GraphObjective`."""

    _run: Evaluation | None = None
    _grads: Sequence[Tensor | None] | None = None  # with their graph
    _buffers: Sequence[Tensor] = ()  # as the run left them, until the point is accepted

    def __init__(self, objective: GraphObjective, x: Tensor, depth: Depth) -> None:
        self.x, self.meter, self.depth = x, objective.meter, depth  # all that Point's own does
        self.objective: GraphObjective = objective

    @property
    def eps(self) -> float:
        """Unit roundoff of the arithmetic f is computed in."""
        return self.objective.eps

    def at(self, x: Tensor, depth: Depth = "product") -> Point:
        """Another point of the same objective."""
        return self.objective.at(x, depth)

    def along(self, p: Tensor, alpha: float, depth: Depth = "product") -> Point:
        """The point x + alpha p."""
        return self.objective.at(add(self.x, p, alpha), depth)

    def accept(self) -> None:
        """Keep the side effects of this point's evaluation."""
        if self._buffers:
            self.objective.commit(self._buffers)
            self._buffers = ()

    def release(self) -> None:
        """Drop the graph."""
        self._run = self._grads = None

    def _value(self) -> float:
        self._run = self.objective.run(self.x, graph=self.depth != "value")
        self.aux = self._run.aux
        self._buffers = self._run.buffers
        value = self.objective.value(self._run, self.x)
        if self.depth == "value":
            self._run = None  # asked for more, it evaluates again
        return value

    def _graph(self) -> Evaluation:
        """The run with its graph; evaluated again if it is gone."""
        run = self._run
        if run is None or (self.objective.one_graph and not self.objective.is_current(run)):
            run = self._run = self.objective.run(self.x, graph=True)
        return run

    def _gradient(self) -> Tensor:
        choice = self.objective.product
        create = self.depth == "product" and choice.keeps_gradient_graph
        retain = self.depth == "product" and choice.mode == "gauss-newton"
        run = self._run
        if run is None or self.objective.one_graph:
            run = self._graph()
        try:
            g, grads = self.objective.gradient(run, self.x, create, retain)
        except RuntimeError as error:
            if not create:
                raise
            self._run = None
            g, grads = self.objective.gradient(self._graph(), self.x, False, False)
            choice.fall_back(error)  # the graph of the gradient was the trouble, not the gradient
            create = False
        self._grads = grads if create and run.grads is None else None
        if self._grads is None and not retain:
            self._run = None
        return g

    def _exact(self, v: Tensor) -> Product:
        run = self._run
        if run is None or self.objective.one_graph:
            run = self._graph_of_gradient()
        assert self._grads is not None
        Hv = products.double_backward(self._grads, run.leaves, self.objective.parts(v))
        return self._done(Hv, v, passes=2)

    def _gauss_newton(self, v: Tensor) -> Product:
        run = self._graph_of_gradient()
        if run.outputs is None:
            raise ProductError(
                "`product='gauss-newton'` needs a model that returns one tensor. "
                "Return one, or use `product='auto'`."
            )
        try:
            parts = self.objective.parts(v)
            Gv = products.gauss_newton(run.loss, run.outputs, run.leaves, parts)
        except (RuntimeError, NotImplementedError) as error:
            raise ProductError(
                "`product='gauss-newton'` is impossible: "
                f"{products.failing_operation(str(error))} cannot be differentiated twice. "
                "Use `product='difference'`."
            ) from error
        return self._done(Gv, v, passes=3)

    def _done(self, Hv: Sequence[Tensor | None], v: Tensor, passes: int) -> Product:
        """An exact formula, up to the rounding of the arithmetic; the graph has been used up."""
        self.meter.passes += passes
        self._run = self._grads = None
        eps = self.objective.eps
        relative_error = 0.0 if eps <= products.FLOAT64_EPS else 8 * eps
        return Product(self.objective.flat(Hv, v), relative_error)

    def _graph_of_gradient(self) -> Evaluation:
        """The run, with the gradient's graph too; both evaluated again if they are gone."""
        run = self._run
        if run is None or (self.objective.one_graph and not self.objective.is_current(run)):
            run = self._run = self.objective.run(self.x, graph=True)
            if run.grads is not None:
                raise RuntimeError("a closure that calls backward()")
            if self.objective.product.keeps_gradient_graph:
                _, self._grads = self.objective.gradient(run, self.x, True, False)
        return run

    def _gradient_at(self, x: Tensor) -> Tensor:
        run = self.objective.run(x, graph=True)
        g = self.objective.gradient(run, x, False, False)[0]
        if run.grads is not None:
            self.objective.confirm(self, run, x - self.x, g)
        return g

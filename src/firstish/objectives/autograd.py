"""Objectives and points whose derivatives are computed by autograd."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from firstish.errors import ProductError
from firstish.objectives import hvp
from firstish.objectives.base import Meter, Order, Point, Product
from firstish.objectives.checks import independent, wrong_loss
from firstish.objectives.flatten import Layout
from firstish.objectives.hooks import refuse_nondeterministic, warn_of_one_mask
from firstish.objectives.hvp import Mode, ProductSelector, failing_operation
from firstish.objectives.penalty import L2Penalty

_ENGINE: Any = getattr(torch.autograd.Variable, "_execution_engine", None)


@dataclass(slots=True)
class Evaluation:
    """One run of the loss.

    Args:
        loss: the scalar, with its graph if one was requested.
        leaves: what to differentiate with respect to.
        outputs: the model's outputs, for Gauss-Newton products.
        grads: the gradient, where the loss computed it itself.
        aux: what the loss returned besides its value.
        buffers: the module's buffers after the run.
    """

    loss: Tensor
    leaves: Sequence[Tensor]
    outputs: Tensor | None = None
    grads: Sequence[Tensor | None] | None = None
    aux: Any = None
    buffers: Sequence[Tensor] = ()


def loss_and_aux(returned: object, what: str) -> tuple[Tensor, Any]:
    """The loss and aux, from a loss function that returned `loss` or `(loss, aux)`."""
    loss, aux = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    if isinstance(loss, Tensor) and loss.numel() == 1 and loss.is_floating_point():
        return loss, None if aux is None else detached(aux)
    raise wrong_loss(loss, what)


def detached(aux: Any) -> Any:
    """A copy of aux with all tensors detached: aux outlives the graph of its evaluation.

    >>> import torch
    >>> detached({"w": [torch.ones((), requires_grad=True) * 2]})
    {'w': [tensor(2.)]}
    """
    if isinstance(aux, Tensor):
        return aux.detach()
    if type(aux) is dict:
        return {key: detached(value) for key, value in aux.items()}
    if isinstance(aux, tuple) and hasattr(aux, "_fields"):  # a namedtuple
        return type(aux)(*map(detached, aux))
    if type(aux) in (list, tuple):
        return type(aux)(map(detached, aux))
    return aux


def gradient(
    loss: Tensor, leaves: Sequence[Tensor], *, create_graph: bool, retain_graph: bool
) -> Sequence[Tensor | None]:
    """The gradient with respect to each leaf; None where the loss does not depend on it.

    The Python layer of `torch.autograd.grad` prepares for batched gradients, symbolic shapes,
    subclasses of tensors and compiled backward passes on other devices. Beside a small function
    that takes noticeable time. For plain tensors on the CPU the engine below it is called directly.
    The engine is not public: it is tried once, and not used if that fails.
    """
    if not create_graph and type(loss) is Tensor and loss.is_cpu and _engine_works():
        return _direct(loss, leaves, retain_graph)
    return torch.autograd.grad(
        loss,
        leaves,
        create_graph=create_graph,
        retain_graph=create_graph or retain_graph,
        allow_unused=True,
    )


def _direct(loss: Tensor, leaves: Sequence[Tensor], retain_graph: bool) -> Sequence[Tensor | None]:
    found: Sequence[Tensor | None] = _ENGINE.run_backward(
        (loss,),
        (torch.ones_like(loss),),
        retain_graph,
        False,  # create_graph
        tuple(leaves),
        True,  # allow_unreachable
        accumulate_grad=False,
    )
    return found


@cache  # and not at import: beside a GPU, a process forked after a backward pass can run none
def _engine_works() -> bool:
    """Whether this version of torch has the engine, and it returns gradients and keeps graphs."""
    with torch.inference_mode(False), torch.enable_grad():
        x, unused = (torch.tensor([3.0], device="cpu", requires_grad=True) for _ in range(2))
        loss = (x * x).sum()
        try:
            twice = [_direct(loss, (x, unused), retain_graph) for retain_graph in (True, False)]
        except Exception:
            return False
        g, none = twice[1]
        right = g is not None and torch.equal(g, 2 * x)
        return right and none is None and x.grad is None


class AutogradObjective(ABC):
    """Base class of the function, module and closure objectives.

    `FunctionObjective` documents the other arguments.

    Args:
        layout: how x is split into parameters.
        call: the call to name in errors.
        loss_name: what errors call the loss.
    """

    root: nn.Module | None = None  # for the names of modules in errors
    raised: Exception | None = None  # the last error of the loss itself
    flat_leaf = True  # the leaf of the graph is the vector x itself
    one_graph = False  # True if only the newest graph is valid; see `is_current`

    def __init__(
        self,
        layout: Layout,
        call: str,
        loss_name: str,
        *,
        product: Mode,
        check: bool,
        weight_decay: float,
    ) -> None:
        self.layout = layout
        self.loss_name = loss_name
        self.meter = Meter()
        self.product = ProductSelector(product, call)
        self.penalty = L2Penalty(weight_decay, call) if weight_decay != 0 else None
        self.eps = torch.finfo(layout.dtype).eps
        self._check = check
        self._checked = False

    def at(self, x: Tensor, order: Order = 2) -> AutogradPoint:
        """The point x, not yet evaluated."""
        return AutogradPoint(self, x, order)

    @abstractmethod
    def evaluate(self, x: Tensor, graph: bool) -> Evaluation:
        """Run the loss at x."""

    def is_current(self, run: Evaluation) -> bool:
        """True if the graph of the run is still valid."""
        return True

    def has_one_mask(self) -> bool:
        """True if the loss draws random numbers that are replayed for a whole run."""
        return False

    def commit(self, buffers: Sequence[Tensor]) -> None:
        """Write the buffers of an accepted point (BatchNorm's statistics) into the model."""

    def check_vector(self, x: Tensor, call: str) -> None:
        """Raise unless x has the size, dtype and device of this objective."""
        self.layout.check_vector(x, call)

    def run(self, x: Tensor, graph: bool) -> Evaluation:
        """Evaluate the loss and count the passes; the first run is checked."""
        return self._counted(x, graph) if self._checked else self._first_run(x, graph)

    def _counted(self, x: Tensor, graph: bool) -> Evaluation:
        try:
            run = self.evaluate(x, graph)
        except Exception as error:
            self.raised = error
            raise
        self.meter.passes += 1 if run.grads is None else 2
        return run

    def _first_run(self, x: Tensor, graph: bool) -> Evaluation:
        """Evaluate twice, and raise if the loss writes to x or the two values differ."""
        given = x.clone()
        run = self._counted(x, graph)
        if not (torch.equal(x, given) or torch.equal(x.nan_to_num(), given.nan_to_num())):
            raise ValueError(
                f"{self.loss_name} writes to its argument x, so that its value belongs to another "
                "point. Use operations that leave x unchanged: `x.clamp(min=0)` instead of "
                "`x.clamp_(min=0)`."
            )
        self.eps = max(self.eps, self.noise(run))
        if self._check:
            first = float(run.loss.detach())
            del run  # its graph goes before the next one is built
            if self.has_one_mask():
                warn_of_one_mask(lambda: self.evaluate(x, graph), self.root)
            run = self._counted(x, graph)
            self._require_equal(first, float(run.loss.detach()), x, graph)
        self._checked = True  # not before: an interrupted check is repeated
        return run

    def _require_equal(self, first: float, second: float, x: Tensor, graph: bool) -> None:
        """Raise if two values at x differ by more than rounding."""
        if math.isfinite(first) and not abs(first - second) <= 10 * self.eps * abs(first):
            refuse_nondeterministic(
                lambda: self.evaluate(x, graph), first, second, self.loss_name, self.root
            )

    def noise(self, run: Evaluation) -> float:
        """The unit roundoff of the arithmetic of a run, estimated from its graph."""
        return hvp.graph_eps(run.loss)

    def confirm(self, point: AutogradPoint, run: Evaluation, offset: Tensor, g: Tensor) -> None:
        """Compare the gradients at the point and at x + offset (g) with the change of the loss."""

    def value(self, run: Evaluation, x: Tensor) -> float:
        """f from a run of the loss: the loss plus the penalty."""
        loss = run.loss.item()
        return loss if self.penalty is None else loss + self.penalty.value(x)

    def gradient(
        self, run: Evaluation, x: Tensor, create_graph: bool, retain_graph: bool
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """The gradient of f as one vector, and that of the loss per leaf, with its graph."""
        grads = run.grads
        if grads is None:
            grads = self._differentiated(run, create_graph, retain_graph)
        found = [g for g in grads if g is not None]
        for g in found:
            if g.layout is not torch.strided:
                raise _sparse(self.loss_name)
        if not found:  # the graph has other leaves
            raise ValueError(
                f"{self.loss_name} does not depend on any of the parameters. Compute the loss from "
                "them; for those of a module, pass the module: `minimize(lambda model: "
                "loss_fn(model(inputs), targets), model)`."
            )
        return self.flat(grads, x), grads

    def _differentiated(
        self, run: Evaluation, create_graph: bool, retain_graph: bool
    ) -> Sequence[Tensor | None]:
        if not run.loss.requires_grad:
            raise independent(self.loss_name)
        try:
            grads = gradient(
                run.loss, run.leaves, create_graph=create_graph, retain_graph=retain_graph
            )
        except RuntimeError as error:
            if "sparse" in str(error):
                raise _sparse(self.loss_name) from error
            raise
        self.meter.passes += 1
        return grads

    def flat(self, parts: Sequence[Tensor | None], of: Tensor) -> Tensor:
        """The derivatives per leaf as one vector, detached, plus that of the penalty.

        `of` is x for a gradient and v for a product with v.
        """
        if not self.flat_leaf:
            vector = self.layout.flatten([None if t is None else t.detach() for t in parts])
        elif parts[0] is None:
            vector = torch.zeros_like(of)
        else:
            vector = parts[0].detach() if parts[0].requires_grad else parts[0]
        return vector if self.penalty is None else self.penalty.plus_derivative(vector, of)

    def parts(self, v: Tensor) -> Sequence[Tensor]:
        """A vector as one tensor per leaf."""
        return [v] if self.flat_leaf else self.layout.split(v)


class AutogradPoint(Point):
    """A point of an `AutogradObjective`."""

    undefined = (torch.linalg.LinAlgError,)  # type: ignore[attr-defined]

    _run: Evaluation | None = None
    _grads: Sequence[Tensor | None] | None = None  # with their graph
    _buffers: Sequence[Tensor] = ()  # after the run, until the point is accepted

    def __init__(self, objective: AutogradObjective, x: Tensor, order: Order) -> None:
        self.x, self.meter, self.order = x, objective.meter, order  # as Point.__init__
        self.objective = objective
        self.selector = objective.product

    @property
    def eps(self) -> float:
        """Unit roundoff of the arithmetic f is computed in."""
        return self.objective.eps

    def at(self, x: Tensor, order: Order = 2) -> Point:
        """Another point of the same objective."""
        return self.objective.at(x, order)

    def accept(self) -> None:
        """Commit the buffers of this point's evaluation."""
        if self._buffers:
            self.objective.commit(self._buffers)
            self._buffers = ()

    def release(self) -> None:
        """Free the graph."""
        self._run = self._grads = None

    def gradient_at(self, x: Tensor) -> Tensor:
        """The gradient at another x, without a point."""
        return self.gradient_inside(self._gradient_at, x)

    def _gradient_at(self, x: Tensor) -> Tensor:
        run = self.objective.run(x, graph=True)
        g = self.objective.gradient(run, x, False, False)[0]
        if run.grads is not None:
            self.objective.confirm(self, run, x - self.x, g)
        return g

    def exact_product(self, v: Tensor) -> Product:
        """Hv by double backward."""
        run = self._graph_of_gradient()
        assert self._grads is not None
        Hv = hvp.double_backward(self._grads, run.leaves, self.objective.parts(v))
        return self._finished(Hv, v, passes=2)

    def gauss_newton_product(self, v: Tensor) -> Product:
        """Gv by Gauss-Newton."""
        run = self._graph_of_gradient()
        if run.outputs is None:
            raise ProductError(
                "`product='gauss-newton'` needs a model that returns one tensor. "
                "Return one, or use `product='auto'`."
            )
        try:
            Gv = hvp.gauss_newton(run.loss, run.outputs, run.leaves, self.objective.parts(v))
        except (RuntimeError, NotImplementedError) as error:
            raise ProductError(
                f"`product='gauss-newton'` is not supported: {failing_operation(str(error))} "
                "cannot be differentiated twice. Use `product='difference'`."
            ) from error
        return self._finished(Gv, v, passes=3)

    def _value(self) -> float:
        self._run = self.objective.run(self.x, graph=self.order != 0)
        self.aux = self._run.aux
        self._buffers = self._run.buffers
        value = self.objective.value(self._run, self.x)
        if self.order == 0:
            self._run = None  # it has no graph; derivatives evaluate again
        return value

    def _gradient(self) -> Tensor:
        selector = self.objective.product
        create = self.order == 2 and selector.needs_gradient_graph
        retain = self.order == 2 and selector.mode == "gauss-newton"
        run = self._graph()
        try:
            g, grads = self.objective.gradient(run, self.x, create, retain)
        except RuntimeError as error:
            if not create:
                raise
            self._run = None
            g, grads = self.objective.gradient(self._graph(), self.x, False, False)
            selector.fall_back(error)  # the graph of the gradient failed, not the gradient
            create = False
        self._grads = grads if create and run.grads is None else None
        if self._grads is None and not retain:
            self._run = None
        return g

    def _finished(self, Hv: Sequence[Tensor | None], v: Tensor, passes: int) -> Product:
        """The product as one vector; counts the passes and frees the graph."""
        self.meter.passes += passes
        self._run = self._grads = None
        return Product.by_exact_formula(self.objective.flat(Hv, v), self.objective.eps)

    def _graph(self) -> Evaluation:
        """The run with its graph; evaluated again if the graph was freed or is no longer valid."""
        run = self._run
        if run is None or (self.objective.one_graph and not self.objective.is_current(run)):
            run = self._run = self.objective.run(self.x, graph=True)
            self._grads = None
        return run

    def _graph_of_gradient(self) -> Evaluation:
        """The run with its graph, and the gradient with its graph if products need it."""
        run, had = self._graph(), self._grads
        if had is None:
            if run.grads is not None:
                raise RuntimeError("a closure that calls backward()")
            if self.objective.product.needs_gradient_graph:
                _, self._grads = self.objective.gradient(run, self.x, True, False)
        return run


def _sparse(loss_name: str) -> TypeError:
    return TypeError(
        f"{loss_name} has a sparse gradient, which is not supported. "
        "Use dense ones, for example `nn.Embedding(..., sparse=False)`."
    )

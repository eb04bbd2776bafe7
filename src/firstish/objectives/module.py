"""f as the loss of a module on fixed data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from firstish.objectives.graph import Evaluation, GraphObjective
from firstish.objectives.layout import Layout
from firstish.objectives.loss import loss_and_aux
from firstish.objectives.products import Mode
from firstish.objectives.random_state import Replay


class ModuleObjective(GraphObjective):
    """f(x) = loss_fn(model(inputs), targets) + weight_decay/2 |x|^2, x the trainable parameters.

    The model's own parameters are read at the start and written at the end; its buffers are
    updated once per accepted point. Tied parameters count once, frozen ones are constants.

    Args:
        model: the module. Its mode (train or eval) is left alone; dropout uses one mask per
            objective.
        loss_fn: takes the outputs and the targets; the outputs alone without targets; the model
            itself without inputs (for losses that call it several times, such as
            physics-informed ones). Returns the loss, or `(loss, aux)`.
        inputs: a tensor, or a tuple of arguments for the model.
        targets: what the loss compares with.
        weight_decay: lambda in the formula above.
        product: how Hessian-vector products are made: "double-backward", "difference",
            "gauss-newton" (for losses convex in the outputs; never finds negative curvature), or
            "auto", which uses double backward if it works and a difference confirms it.
        check: compare two evaluations at the first point, and refuse a loss that differs.

    Examples:
        >>> model, loss_fn = nn.Linear(2, 1, bias=False), nn.functional.mse_loss
        >>> objective = ModuleObjective(model, loss_fn, torch.eye(2), torch.ones(2, 1))
        >>> objective.at(torch.zeros(2)).value
        1.0
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., object],
        inputs: Any = None,
        targets: Any = None,
        *,
        weight_decay: float = 0.0,
        product: Mode = "auto",
        check: bool = True,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"`ModuleObjective(model=...)` must be an nn.Module, got {model!r}.")
        if product == "gauss-newton" and inputs is None:
            raise ValueError("`product='gauss-newton'` needs the model's inputs: pass `inputs`.")
        named = {n: p for n, p in model.named_parameters() if p.requires_grad}
        layout = Layout(list(named.values()), "ModuleObjective(model)")
        super().__init__(
            layout,
            "ModuleObjective",
            "the loss",
            product=product,
            check=check,
            weight_decay=weight_decay,
        )
        self.model = self.root = model
        self._loss = _Loss(model, loss_fn)
        self._names = [f"model.{name}" for name in named]
        self._parameters = list(named.values())
        self._arguments = (inputs, targets)
        self._random = Replay()

    def initial(self) -> Tensor:
        """The model's parameters as one vector."""
        return self.layout.flatten([p.detach() for p in self._parameters])

    def load(self, x: Tensor) -> None:
        """Write the vector into the model's parameters."""
        self.layout.write(x, self._parameters)

    def evaluate(self, x: Tensor, graph: bool) -> Evaluation:
        """Run the model at x on clones of its buffers."""
        leaf = x.detach().requires_grad_(graph)
        buffers = {f"model.{n}": b.clone() for n, b in self.model.named_buffers()}
        returned, outputs = self._random(self._at, leaf, buffers)
        loss, aux = loss_and_aux(returned, self.what)
        return Evaluation(
            loss,
            (leaf,),
            outputs=outputs if isinstance(outputs, Tensor) else None,
            aux=aux,
            buffers=list(buffers.values()),
        )

    def _at(self, leaf: Tensor, buffers: dict[str, Tensor]) -> tuple[object, object]:
        swapped = dict(zip(self._names, self.layout.split(leaf), strict=True))
        swapped.update(buffers)
        result: tuple[object, object] = functional_call(self._loss, swapped, self._arguments)
        for name in buffers:
            buffers[name] = swapped[name]  # where the model has replaced one
        return result

    @torch.no_grad()
    def commit(self, buffers: Sequence[Tensor]) -> None:
        """Keep the buffers of an accepted point."""
        for mine, new in zip(self.model.buffers(), buffers, strict=True):
            mine.copy_(new)


class _Loss(nn.Module):
    """The loss as a module, so that one functional_call swaps all that it depends on."""

    def __init__(self, model: nn.Module, loss_fn: Callable[..., object]) -> None:
        super().__init__()
        self.model = model
        self.call = [loss_fn]  # in a list, so that a loss module's state is not taken for ours

    def forward(self, inputs: Any, targets: Any) -> tuple[object, object]:
        (loss_fn,) = self.call
        if inputs is None:
            return loss_fn(self.model), None
        outputs = self.model(*inputs) if isinstance(inputs, tuple) else self.model(inputs)
        return (loss_fn(outputs) if targets is None else loss_fn(outputs, targets)), outputs

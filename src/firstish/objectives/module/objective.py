"""f as the loss of a module on fixed data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from firstish._validate import check_arguments
from firstish.interface.keywords import OF_OBJECTIVES, arguments_of, unknown_keyword
from firstish.objectives.autograd import AutogradObjective, Evaluation, loss_and_aux
from firstish.objectives.flatten import tensors_in
from firstish.objectives.global_state import Replay
from firstish.objectives.hvp import Mode
from firstish.objectives.module.functional import FunctionalLoss


class ModuleObjective(AutogradObjective):
    """f(x) = loss_fn(model(inputs), targets) + weight_decay/2 |x|^2, x the trainable parameters.

    The model's own parameters are read at the start, and written before each callback and at the
    end; its buffers are updated once per accepted point. Tied parameters count once, frozen ones
    are constants.

    Args:
        model: the module. Its mode (train or eval) does not change; dropout uses one mask per
            objective.
        loss_fn: takes the outputs and the targets; without targets the outputs only; without
            inputs the model itself (for losses that call it several times, such as
            physics-informed ones). Returns the loss, or `(loss, aux)`.
        inputs: a tensor, or a tuple of arguments for the model.
        targets: the second argument of the loss.
        weight_decay: as in the formula above.
        product: how Hessian-vector products are computed: "double-backward", "difference",
            "gauss-newton" (for losses convex in the outputs; never finds negative curvature), or
            "auto", which uses double backward if it works and a difference confirms it.
        check: evaluate twice at the first point, and raise if the two losses differ.
        unknown: none: another keyword is answered with the one to use.

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
        **unknown: object,
    ) -> None:
        for name in unknown:
            arguments = arguments_of(ModuleObjective)
            raise unknown_keyword("ModuleObjective", name, arguments, OF_OBJECTIVES)
        if product == "gauss-newton" and inputs is None:
            raise ValueError("`product='gauss-newton'` needs the model's inputs: pass `inputs`.")
        _refuse_loader(inputs)
        _require_tensors("inputs", inputs)
        _require_tensors("targets", targets)
        self._function = FunctionalLoss(model, loss_fn, "ModuleObjective")
        _check_arguments(loss_fn, inputs is not None, targets is not None)
        super().__init__(
            self._function.layout,
            "ModuleObjective",
            "the loss",
            product=product,
            check=check,
            weight_decay=weight_decay,
        )
        self.model = self.root = self._function.model
        self._arguments = (inputs, targets)
        self._loss_fn = loss_fn
        self._random = Replay()

    def __repr__(self) -> str:
        """Model, loss, shapes of the data, penalty, number of parameters and their dtype."""
        loss = getattr(self._loss_fn, "__name__", type(self._loss_fn).__name__)
        said = [type(self.model).__name__, loss]
        for name, given in zip(("inputs", "targets"), self._arguments, strict=True):
            said += [f"{name} {tuple(t.shape)}" for t in tensors_in(given)]
        if self.penalty is not None:
            said.append(f"weight_decay={self.penalty.weight_decay:g}")
        dtype = str(self.layout.dtype).removeprefix("torch.")
        return f"ModuleObjective({', '.join(said)}): {self.layout.total} parameters in {dtype}"

    def is_of(self, module: nn.Module) -> bool:
        """True if this is the objective of `module`."""
        return self._function.is_of(module)

    def initial(self) -> Tensor:
        """The model's parameters as one vector."""
        return self._function.initial()

    def load(self, x: Tensor) -> None:
        """Write the vector into the model's parameters."""
        self._function.load(x)

    def has_one_mask(self) -> bool:
        """True if the loss draws random numbers, which are the same in every evaluation."""
        return bool(self._random.draws)

    def evaluate(self, x: Tensor, graph: bool) -> Evaluation:
        """Run the model at x on clones of its buffers."""
        leaf = x.detach().requires_grad_(graph)
        buffers = self._function.buffers()
        returned, outputs = self._random(self._function, leaf, *self._arguments, buffers)
        loss, aux = loss_and_aux(returned, self.loss_name)
        return Evaluation(
            loss,
            (leaf,),
            outputs=outputs if isinstance(outputs, Tensor) else None,
            aux=aux,
            buffers=list(buffers.values()),
        )

    def commit(self, buffers: Sequence[Tensor]) -> None:
        """Write the buffers of an accepted point into the model, all of them."""
        try:
            self._write(buffers)
        except BaseException:  # a Ctrl-C in the middle of it
            self._write(buffers)
            raise

    @torch.no_grad()
    def _write(self, buffers: Sequence[Tensor]) -> None:
        for mine, new in zip(self.model.buffers(), buffers, strict=True):
            mine.copy_(new)


def _check_arguments(loss_fn: Callable[..., object], inputs: bool, targets: bool) -> None:
    """Raise unless the loss accepts what it will be called with."""
    arguments = ["outputs", "targets"] if targets else ["outputs"]
    if not inputs:
        arguments = ["model"]
    check_arguments(
        loss_fn,
        arguments,
        "ModuleObjective(model, loss_fn, inputs, targets)",
        "loss_fn",
        "It gets the outputs and the targets; without targets the outputs alone, and without "
        "inputs the model.",
    )


def _refuse_loader(inputs: Any) -> None:
    if isinstance(inputs, DataLoader | Dataset):
        kind = type(inputs).__name__
        raise TypeError(
            f"`ModuleObjective(inputs=...)` needs all rows as a tensor, got a {kind}. For a "
            f"{kind} use `FiniteSum(model, loss_fn, data)`, which sums over its rows."
        )


def _require_tensors(name: str, given: Any) -> None:
    """Raise for a NumPy array or a list of numbers."""
    first = given
    while isinstance(first, list) and first:
        first = first[0]
    if isinstance(first, np.ndarray | np.generic) or (
        isinstance(given, list) and isinstance(first, int | float)
    ):
        raise TypeError(
            f"`ModuleObjective({name}=...)` needs a tensor, got {type(given).__name__}. Pass "
            f"`torch.as_tensor({name})`, in the dtype of the model."
        )

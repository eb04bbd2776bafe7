"""f as a callable on a tensor, or on a structure of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from firstish._validate import check_arguments
from firstish.objectives.autograd import AutogradObjective, Evaluation, loss_and_aux
from firstish.objectives.checks import numpy_loss, raised_by_numpy
from firstish.objectives.flatten import Structure
from firstish.objectives.global_state import Replay
from firstish.objectives.hvp import Mode


class FunctionObjective(AutogradObjective):
    """A callable on a tensor, or on nested lists, tuples and dicts of tensors, like `example`.

    Args:
        fun: returns the loss as a tensor, or `(loss, aux)`.
        example: the structure, shapes, dtype and device of the argument of `fun`: whatever
            `minimize` takes as x0.
        product: how Hessian-vector products are computed: "double-backward", "difference", or
            "auto", which uses double backward if it works and a difference confirms it.
        check: evaluate twice at the first point, and raise if the two losses differ.
        weight_decay: adds weight_decay/2 |x|^2.

    Examples:
        >>> import torch
        >>> objective = FunctionObjective(lambda x: (x**4).sum(), torch.ones(3))
        >>> point = objective.at(torch.full((3,), 2.0))
        >>> point.value, point.grad.tolist()
        (48.0, [32.0, 32.0, 32.0])
    """

    def __init__(
        self,
        fun: Callable[..., object],
        example: Any,
        *,
        product: Mode = "auto",
        check: bool = True,
        weight_decay: float = 0.0,
    ) -> None:
        if product == "gauss-newton":
            raise ValueError(
                "`product='gauss-newton'` needs a separate model and loss: use `ModuleObjective`."
            )
        if not callable(fun):
            raise TypeError(f"`FunctionObjective(fun=...)` must be callable, got {fun!r}.")
        check_arguments(
            fun, ["x"], "FunctionObjective(fun, example)", "fun", "Write a function of x alone."
        )
        form = example if isinstance(example, Structure) else Structure(example)
        super().__init__(
            form.layout,
            "FunctionObjective",
            "fun",
            product=product,
            check=check,
            weight_decay=weight_decay,
        )
        self._fun = fun if form.is_vector else lambda x: fun(form.tensors(x))
        self._random = Replay()

    def has_one_mask(self) -> bool:
        """True if the loss draws random numbers, which are the same in every evaluation."""
        return bool(self._random.draws)

    def evaluate(self, x: Tensor, graph: bool) -> Evaluation:
        """Run the function at x, with the random state at the objective's construction."""
        leaf = x.detach().requires_grad_(graph)
        try:
            returned = self._random(self._fun, leaf)
        except (RuntimeError, TypeError) as error:
            if not raised_by_numpy(error):
                raise
            raise numpy_loss(f"fun mixes NumPy with a tensor ({error})") from error
        loss, aux = loss_and_aux(returned, self.loss_name)
        return Evaluation(loss, (leaf,), aux=aux)

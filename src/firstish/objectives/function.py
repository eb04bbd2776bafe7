"""f as a callable on a tensor."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from firstish.objectives.autograd import AutogradObjective, Evaluation, loss_and_aux
from firstish.objectives.flatten import Layout
from firstish.objectives.hvp import Mode
from firstish.objectives.rng import Replay


class FunctionObjective(AutogradObjective):
    """A callable on a tensor shaped like `example`.

    Args:
        fun: returns the loss as a tensor, or `(loss, aux)`.
        example: a tensor of the shape, dtype and device of x.
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
        fun: Callable[[Tensor], object],
        example: Tensor,
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
        layout = Layout([example], "x0")
        super().__init__(
            layout,
            "FunctionObjective",
            "fun",
            product=product,
            check=check,
            weight_decay=weight_decay,
        )
        shape = example.shape
        self._fun = fun if len(shape) == 1 else lambda x: fun(x.view(shape))
        self._random = Replay()

    def evaluate(self, x: Tensor, graph: bool) -> Evaluation:
        """Run the function at x, with the random state at the objective's construction."""
        leaf = x.detach().requires_grad_(graph)
        loss, aux = loss_and_aux(self._random(self._fun, leaf), self.loss_name)
        return Evaluation(loss, (leaf,), aux=aux)

"""f as a callable on a tensor, or on a structure of tensors; `fun` and `x0` as users give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from firstish._validate import check_arguments, described
from firstish.objectives.autograd import AutogradObjective, Evaluation, loss_and_aux
from firstish.objectives.base import Objective
from firstish.objectives.checks import numpy_loss, raised_by_numpy
from firstish.objectives.finite_sum.base import RowSum
from firstish.objectives.flatten import Structure, empty
from firstish.objectives.global_state import Replay
from firstish.objectives.hvp import Mode
from firstish.objectives.module.objective import ModuleObjective


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
            raise TypeError(f"`FunctionObjective(fun=...)` must be callable, got {described(fun)}.")
        check_arguments(
            fun, ["x"], "FunctionObjective(fun, example)", "fun", "Write a function of x alone."
        )
        form = (
            example
            if isinstance(example, Structure)
            else Structure(example, "FunctionObjective(fun, example)")
        )
        super().__init__(
            form.layout,
            "FunctionObjective",
            "fun",
            product=product,
            check=check,
            weight_decay=weight_decay,
        )
        self._fun = fun if form.is_vector else lambda x: fun(form.tensors(x))
        self._kind = type(form.tensors(form.start)).__name__  # of the argument of fun
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
            if raised_by_numpy(error):
                raise numpy_loss(f"fun mixes NumPy with a tensor ({error})") from error
            if str(error) == f"{self._kind!r} object is not callable":
                raise TypeError(
                    f"fun calls its argument as a function, but it is a {self._kind}, like x0. For "
                    "the parameters of a module pass the module itself: `minimize(lambda model: "
                    "loss_fn(model(inputs), targets), model)`."
                ) from error
            raise
        loss, aux = loss_and_aux(returned, self.loss_name)
        return Evaluation(loss, (leaf,), aux=aux)


def objective_of(
    fun: Callable[..., object] | Objective,
    x0: Any,
    args: Any,
    product: Mode | None,
    call: str = "minimize(fun, x0)",
) -> tuple[Objective, Structure]:
    """The objective, and the form of x0 with the starting point as a vector.

    `call` is what errors name, with x0 as its second argument.
    """
    if isinstance(fun, Objective):
        _refuse_beside_objective(call, args=args, product=product)
        form = Structure(_initial(fun, x0, call)) if isinstance(x0, nn.Module) else _form(x0, call)
        check = getattr(fun, "check_vector", None)
        if check is not None:
            check(form.start, call)
        return fun, form
    if not callable(fun):
        raise TypeError(f"`{call}`: fun must be callable, got {described(fun)}.")
    mode: Mode = "auto" if product is None else product
    given = args if isinstance(args, tuple) else (args,)
    _check_fun(fun, isinstance(x0, nn.Module), len(given), call)
    loss = (lambda x: fun(x, *given)) if given else fun
    if isinstance(x0, nn.Module):
        objective = ModuleObjective(x0, loss, product=mode)
        return objective, Structure(objective.initial())
    form = _form(x0, call)
    return FunctionObjective(loss, form, product=mode), form


def _check_fun(fun: Callable[..., object], of_module: bool, given: int, call: str) -> None:
    """Raise unless fun accepts the point or the module, and as many further arguments."""
    first, example = "x", "`lambda x: (x**2).sum()`"
    if of_module:
        first, example = "model", "`lambda model: mse_loss(model(inputs), targets)`"
    check_arguments(
        fun,
        [first, *(f"args[{k}]" for k in range(given))],
        call,
        "fun",
        f"Write a function of {first}, such as {example}; further arguments go into `args`.",
    )


def _form(x0: Any, call: str) -> Structure:
    form = Structure(x0, call)
    if form.layout.total == 0:
        raise empty(call)
    return form


def _initial(objective: Objective, module: nn.Module, call: str) -> Tensor:
    """The parameters of the module of an objective."""
    if not isinstance(objective, ModuleObjective | RowSum) or not objective.is_of(module):
        raise TypeError(
            f"`{call}` got a module that is not the module of this objective. Use "
            f"`{call.split('(')[0]}(ModuleObjective(model, ...), model)`, or a function of the "
            "module as fun."
        )
    return objective.initial()


def _refuse_beside_objective(call: str, **given: Any) -> None:
    for name, value in given.items():
        if value not in ((), None):
            raise TypeError(
                f"`{call.split('(')[0]}({name}=...)` has no meaning with an objective: pass it to "
                "the objective itself."
            )

"""A loss over rows as a sum and a denominator, so that chunks add up exactly.

The mean of chunk means is wrong if chunks have different weights: an uneven last chunk, class
weights, ignored targets. So `objective.py` adds up sums and denominators before it divides.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from firstish._validate import described
from firstish.objectives.autograd import loss_and_aux
from firstish.objectives.checks import check_loss

LossFunction = Callable[..., object]


class Summed:
    """Marks a loss function that returns `(sum over the rows, denominator)`.

    Use it for your own losses whose rows have different weights. The loss is the sum over all rows
    divided by the sum of the denominators.

    Args:
        fn: takes outputs and targets.

    Examples:
        >>> import torch
        >>> def masked(outputs, targets):
        ...     keep = targets >= 0
        ...     return ((outputs - targets)[keep] ** 2).sum(), keep.sum()
        >>> total, count = Summed(masked)(torch.ones(3), torch.tensor([0.0, -1.0, 3.0]))
        >>> total.item(), count.item()
        (5.0, 2)
    """

    def __init__(self, fn: LossFunction) -> None:
        if not callable(fn):
            raise TypeError(f"`Summed(fn)` must be given a callable, got {described(fn)}.")
        self.fn = fn

    def __call__(self, *args: Any) -> Any:
        """The result of the function."""
        return self.fn(*args)


class Sum(NamedTuple):
    """A chunk's part of f."""

    total: Tensor  # with its graph
    denominator: float


class SummedLoss:
    """A loss function split into sum and denominator.

    For torch's own losses, modules and functions, also inside `functools.partial`, the `reduction`
    gives the denominator. Any other function is assumed to be the mean over its rows, with equal
    weights; the first evaluation checks that.

    Args:
        loss_fn: the user's loss function.
        call: the call to name in errors.
    """

    def __init__(self, loss_fn: LossFunction, call: str) -> None:
        check_loss(loss_fn, call)
        self.call = call
        self.original = loss_fn
        self._unreduced, self._settings, reduction = _without_reduction(loss_fn)
        if reduction == "none":
            raise ValueError(
                f"`{call}(loss_fn=...)` has `reduction='none'`, but f is one number. "
                "Use 'mean' or 'sum'."
            )
        if reduction not in (None, "mean", "sum", "batchmean"):
            raise ValueError(f"`{call}(loss_fn=...)` has the unknown `reduction={reduction!r}`.")
        self.is_sum = reduction == "sum"  # then f is a sum too
        self.assumes_mean = self._unreduced is None and not isinstance(loss_fn, Summed)
        self._reduction = reduction
        self._indexed = _torch_name(loss_fn) in ("cross_entropy", "nll_loss")
        self.check_labels = True  # set to False after the first pass over the data

    def __call__(self, outputs: Any, targets_and_rows: tuple[Any, int]) -> Sum:
        """The sum over the rows of a chunk and its denominator."""
        targets, rows = targets_and_rows
        if self.check_labels:
            self._check_range(outputs, targets)
        arguments = (outputs,) if targets is None else (outputs, targets)
        if isinstance(self.original, Summed):
            returned = self.original(*arguments)
            if not (isinstance(returned, tuple) and len(returned) == 2):
                raise TypeError(
                    "The function in `Summed(...)` must return (sum, denominator), "
                    f"got {type(returned).__name__}."
                )
            total, _ = loss_and_aux(returned[0], "The function in `Summed(...)`")
            return Sum(total, float(returned[1]))
        if self.assumes_mean:
            mean, _ = loss_and_aux(self.original(*arguments), f"`{self.call}(loss_fn=...)`")
            return Sum(mean * rows, float(rows))
        assert self._unreduced is not None
        parts = self._unreduced(*arguments)
        if self.is_sum:
            return Sum(_total(parts), 1.0)
        if self._reduction == "batchmean":
            return Sum(_total(parts), float(rows))
        if self._indexed and not targets.is_floating_point():
            return Sum(_total(parts), self._weight_of(targets))
        return Sum(_total(parts), float(parts.numel()))

    def _weight_of(self, targets: Tensor) -> float:
        """The denominator of cross_entropy and nll_loss: the weights of the targets not ignored."""
        weight, ignore = self._settings.get("weight"), self._settings.get("ignore_index", -100)
        kept = targets[targets != ignore]
        return float(kept.numel() if weight is None else _total(weight[kept]))

    def _check_range(self, outputs: Any, targets: Any) -> None:
        """Raise if a label is out of range; on a GPU torch itself would crash."""
        if not self._indexed or not isinstance(targets, Tensor) or targets.is_floating_point():
            return
        classes = outputs.shape[1] if outputs.dim() > 1 else outputs.shape[0]
        bad = (targets != self._settings.get("ignore_index", -100)) & (
            (targets < 0) | (targets >= classes)
        )
        if bad.any():
            raise ValueError(
                f"`{self.call}(data=...)` has the label {int(targets[bad][0])}, but the model "
                f"has {classes} outputs: labels must be 0 to {classes - 1}."
            )


def _total(parts: Tensor) -> Tensor:
    """The sum in float64, except on MPS, which has none."""
    return parts.sum(dtype=None if parts.device.type == "mps" else torch.float64)


def _torch_name(loss_fn: LossFunction) -> str:
    """The name of torch's function, if it is one of those that take class indices; else ""."""
    if isinstance(loss_fn, partial):
        return _torch_name(loss_fn.func)
    if isinstance(loss_fn, nn.CrossEntropyLoss) or loss_fn is F.cross_entropy:
        return "cross_entropy"
    if isinstance(loss_fn, nn.NLLLoss) or loss_fn is F.nll_loss:
        return "nll_loss"
    return ""


def _without_reduction(
    loss_fn: LossFunction,
) -> tuple[Callable[..., Tensor] | None, dict[str, Any], str | None]:
    """The loss without its reduction, its settings and its reduction; None if it is not torch's."""
    if isinstance(loss_fn, nn.Module) and type(loss_fn).__module__ == "torch.nn.modules.loss":
        reduction = getattr(loss_fn, "reduction", None)
        if not isinstance(reduction, str):
            return None, {}, None
        unreduced: Any = copy.copy(loss_fn)
        unreduced.reduction = "none"
        names = ("weight", "ignore_index")
        return unreduced, {n: getattr(loss_fn, n) for n in names if hasattr(loss_fn, n)}, reduction
    function: Any = loss_fn.func if isinstance(loss_fn, partial) else loss_fn
    if getattr(function, "__module__", "") != "torch.nn.functional":
        return None, {}, None
    settings = dict(loss_fn.keywords) if isinstance(loss_fn, partial) else {}
    parameter = inspect.signature(function).parameters.get("reduction")
    if parameter is None:
        return None, {}, None
    reduction = settings.pop("reduction", parameter.default)
    return partial(function, **settings, reduction="none"), settings, reduction

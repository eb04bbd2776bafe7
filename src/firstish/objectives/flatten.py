"""Parameters as one flat vector and back, and nested structures of tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Layout:
    """The shapes, dtype and device of the parameters, fixed at construction.

    Args:
        parameters: the tensors that make up the vector, in order.
        owner: the call to name in errors.
    """

    def __init__(self, parameters: Sequence[Tensor], owner: str) -> None:
        if not parameters:
            raise ValueError(
                f"`{owner}` got no trainable parameters. "
                "Pass at least one with `requires_grad=True`."
            )
        if any(map(is_sharded, parameters)):
            raise TypeError(
                f"`{owner}` got sharded parameters (DTensor), which are not supported here. "
                "Use `firstish.ShardedSum(model, loss_fn, data)`."
            )
        self.shapes = [p.shape for p in parameters]
        self.sizes = [p.numel() for p in parameters]
        self.total = sum(self.sizes)
        self.dtype = _only({p.dtype for p in parameters}, "dtypes", owner)
        self.device = _only({p.device for p in parameters}, "devices", owner)
        if not self.dtype.is_floating_point:
            raise TypeError(
                f"`{owner}` needs real floating-point parameters, got {self.dtype}. "
                "Convert them, for example with `.double()`."
            )

    def check_vector(self, x: Tensor) -> None:
        """Raise unless x has the size, dtype and device of this layout."""
        if x.numel() != self.total or x.dtype != self.dtype or x.device != self.device:
            raise ValueError(
                f"`minimize(fun, x0)` got an x0 of {x.numel()} numbers ({x.dtype}, {x.device}), "
                f"but the objective has {self.total} ({self.dtype}, {self.device})."
            )

    def flatten(self, tensors: Sequence[Tensor | None]) -> Tensor:
        """The tensors as one new vector; None, the gradient of an unused parameter, gives zeros."""
        parts = [
            torch.zeros(size, dtype=self.dtype, device=self.device) if t is None else t.reshape(-1)
            for t, size in zip(tensors, self.sizes, strict=True)
        ]
        return torch.cat(parts)

    def split(self, x: Tensor) -> list[Tensor]:
        """Views of x with the parameters' shapes.

        A single `split`, as each slice would allocate a full zero vector in the backward pass.
        """
        parts = torch.split(x, self.sizes)
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    @torch.no_grad()
    def write(self, x: Tensor, parameters: Sequence[Tensor]) -> None:
        """Copy x into the parameters.

        `copy_` under no_grad, never `.data`: a graph that still refers to the old values then
        raises, instead of silently computing the gradient at the new ones.
        """
        for parameter, part in zip(parameters, self.split(x), strict=True):
            parameter.copy_(part)
        if any(torch.is_autocast_enabled(d) for d in {"cpu", self.device.type}):
            torch.clear_autocast_cache()  # it holds casts of the old values


def is_sharded(p: Tensor) -> bool:
    """True if p is a DTensor."""
    return hasattr(p, "device_mesh")


def _only(values: set[T], what: str, owner: str) -> T:
    if len(values) > 1:
        found = ", ".join(sorted(map(str, values)))
        raise ValueError(
            f"`{owner}` got parameters of several {what} ({found}). "
            "They form one vector: move or convert them to one."
        )
    return next(iter(values))


def tensors_in(tree: Any) -> list[Tensor]:
    """All tensors of a tensor, or of nested tuples, lists and dicts."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (tuple, list)):
        return [t for part in tree for t in tensors_in(part)]
    return []


def map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """The same structure with the function applied to each tensor.

    >>> map_tensors(torch.neg, {"a": (torch.ones(2), "b")})
    {'a': (tensor([-1., -1.]), 'b')}
    """
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict | tuple | list):
        return map_parts(lambda part: map_tensors(function, part), tree)
    return tree


def map_parts(function: Callable[[Any], Any], tree: Any) -> Any:
    """A dict, tuple or list of the same type with the function applied to each of its parts.

    >>> map_parts(str, {"a": 1, "b": 2}), map_parts(str, (1, 2))
    ({'a': '1', 'b': '2'}, ('1', '2'))
    """
    if isinstance(tree, dict):
        mapped = copy.copy(tree)  # an OrderedDict stays one
        mapped.update({name: function(part) for name, part in tree.items()})
        return mapped
    parts = [function(part) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)

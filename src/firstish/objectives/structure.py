"""Whatever a user holds as x0, as one flat vector and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from firstish.objectives.flatten import Layout, map_parts

_KINDS = (
    "a number, a list of numbers, a NumPy array, a tensor, a module, or a list, tuple or dict of "
    "tensors"
)


EMPTY = "`minimize(fun, x0)` got an empty x0: there is nothing to minimise over."


class Structure:
    """The form of an x0: a number, an array, a tensor, or nested lists, tuples and dicts of them.

    A list of numbers is one leaf, as NumPy reads it; a list that holds a tensor, an array or a dict
    is a structure. Numbers and integers are taken in the dtype of the tensors and arrays beside
    them, or else in float64.

    Args:
        x0: the starting point.

    Examples:
        >>> import torch
        >>> form = Structure({"w": torch.ones(2), "b": 3.0})
        >>> form.start
        tensor([1., 1., 3.])
        >>> form.tensors(torch.zeros(3))
        {'w': tensor([0., 0.]), 'b': tensor(0.)}
        >>> form.restored(torch.zeros(3))
        {'w': tensor([0., 0.]), 'b': 0.0}
    """

    def __init__(self, x0: Any) -> None:
        leaves: list[_Leaf] = []
        self._tree = _numbered(list(x0) if isinstance(x0, Iterator) else x0, "x0", leaves)
        if not leaves:
            raise ValueError(EMPTY)
        firm = [leaf.tensor for leaf in leaves if leaf.firm]
        like = firm[0] if firm else torch.empty((), dtype=torch.float64)
        tensors = [leaf.tensor if leaf.firm else leaf.tensor.to(like) for leaf in leaves]
        self._restore = [leaf.restore for leaf in leaves]
        self.layout = Layout(tensors, "x0")
        self.is_vector = self._tree == 0 and tensors[0].dim() == 1  # it may be a sharded one
        self.start = tensors[0].clone() if self.is_vector else self.layout.flatten(tensors)

    def tensors(self, x: Tensor) -> Any:
        """The argument of `fun`: views of x in this structure, each leaf a tensor."""
        if self.is_vector:
            return x
        parts = self.layout.split(x)
        return _filled(self._tree, lambda leaf: parts[leaf])

    def restored(self, x: Tensor) -> Any:
        """x as x0 was given: tensors as tensors, arrays and lists as arrays, numbers as floats."""
        if self.is_vector:
            return self._restore[0](x)
        parts = self.layout.split(x)
        return _filled(self._tree, lambda leaf: self._restore[leaf](parts[leaf]))

    def vector_of(self, tree: Any, name: str, none: float | None = None) -> Tensor:
        """The vector of a tree shaped like x0, such as bounds.

        A number stands for all entries of a leaf or of a part. `name` is what errors call the tree;
        None stands for the number `none`, if there is one.

        >>> from firstish.objectives.structure import Structure
        >>> Structure({"w": [1.0, 2.0], "b": 3.0}).vector_of({"w": 0, "b": 5}, "lower").tolist()
        [0.0, 0.0, 5.0]
        """
        parts: list[Tensor | None] = [None] * len(self._restore)

        def fill(mine: Any, theirs: Any, place: str) -> None:
            theirs = none if theirs is None else theirs
            if isinstance(mine, int):
                parts[mine] = self._expanded(mine, _with_number(theirs, none), place)
            elif isinstance(theirs, Real):
                for key in _keys(mine):
                    fill(mine[key], theirs, place)
            elif not isinstance(theirs, type(mine)) or _keys(mine) != _keys(theirs):
                raise ValueError(f"`{place}` must have the structure of x0, got {theirs!r}.")
            else:
                for key in _keys(mine):
                    fill(mine[key], theirs[key], f"{place}[{key!r}]")

        fill(self._tree, tree, name)
        return self.layout.flatten(parts)

    def _expanded(self, leaf: int, value: Any, place: str) -> Tensor:
        shape = self.layout.shapes[leaf]
        try:
            given = torch.as_tensor(value, dtype=self.layout.dtype, device=self.layout.device)
            return given.detach().expand(shape)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"`{place}` must be a number, or numbers of shape {tuple(shape)} as in x0, got "
                f"{value!r}."
            ) from error


def _with_number(tree: Any, none: float | None) -> Any:
    """The number in place of each None in nested lists."""
    if isinstance(tree, list | tuple):
        return [_with_number(part, none) for part in tree]
    return none if tree is None else tree


class _Leaf(NamedTuple):
    tensor: Tensor
    firm: bool  # True if the dtype and device are the user's choice
    restore: Callable[[Tensor], Any]


def _numbered(tree: Any, place: str, leaves: list[_Leaf]) -> Any:
    """The tree with the numbers 0, 1, ... for its leaves, which are appended to the list."""
    if isinstance(tree, dict | list | tuple) and not _is_numbers(tree):
        places = iter([f"{place}[{key!r}]" for key in _keys(tree)])
        return map_parts(lambda part: _numbered(part, next(places), leaves), tree)
    leaves.append(_leaf(tree, place))
    return len(leaves) - 1


def _filled(tree: Any, leaf: Callable[[int], Any]) -> Any:
    if isinstance(tree, int):
        return leaf(tree)
    return map_parts(lambda part: _filled(part, leaf), tree)


def _keys(tree: Any) -> list[Any]:
    return list(tree) if isinstance(tree, dict) else list(range(len(tree)))


def _is_numbers(tree: Any) -> bool:
    """True for a number, and for lists of numbers: one leaf, as NumPy reads them."""
    if isinstance(tree, list | tuple):
        return bool(tree) and all(map(_is_numbers, tree))
    return isinstance(tree, Real)


def _leaf(given: Any, place: str) -> _Leaf:
    if isinstance(given, Tensor):
        return _Leaf(given.detach(), True, lambda x: x)
    if isinstance(given, Real):
        return _Leaf(torch.tensor(float(given), dtype=torch.float64), False, lambda x: x.item())
    array = _array(given)
    if array is None:
        raise TypeError(
            f"`minimize(fun, x0)` takes {_KINDS}; `{place}` is {type(given).__name__}: {given!r}."
        )
    firm = array.dtype.kind == "f"
    kind = array.dtype if array.dtype in (np.float16, np.float32) else np.float64
    return _Leaf(torch.from_numpy(np.array(array, dtype=kind)), firm, lambda x: x.cpu().numpy())


def _array(given: Any) -> np.ndarray[Any, Any] | None:
    """A list of numbers, or what NumPy reads as an array of real numbers; else None."""
    if not (hasattr(given, "__array__") or _is_numbers(given)):
        return None
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        return None
    return array if array.dtype.kind in "fiub" else None

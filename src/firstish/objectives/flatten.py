"""Parameters, or whatever a user holds as x0, as one flat vector and back; nested structures."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from firstish._validate import described

T = TypeVar("T")

_KINDS = (
    "a number, a list of numbers, a NumPy array, a tensor, a module, or a list, tuple or dict of "
    "tensors"
)


class Layout:
    """The shapes, dtype and device of the parameters, fixed at construction.

    Args:
        parameters: the tensors that make up the vector, in order.
        owner: the call to name in errors.
    """

    def __init__(self, parameters: Sequence[Tensor], owner: str) -> None:
        if not parameters:
            raise ValueError(
                f"`{owner}` got no trainable parameters. Pass at least one with "
                "`requires_grad=True`; convert integers first, for example with `.double()`."
            )
        if any(map(is_sharded, parameters)):
            raise TypeError(
                f"`{owner}` got sharded parameters (DTensor), which are not supported here. "
                "Use `firstish.ShardedSum(model, loss_fn, data)`."
            )
        self.shapes = [p.shape for p in parameters]
        self.sizes = [p.numel() for p in parameters]
        self.total = sum(self.sizes)
        dtypes = {p.dtype for p in parameters}
        for dtype in dtypes:
            if not dtype.is_floating_point:
                raise _not_real(dtype, owner)
        self.dtype = _only(dtypes, "dtypes", owner)
        self.device = _only({p.device for p in parameters}, "devices", owner)

    def check_vector(self, x: Tensor, call: str) -> None:
        """Raise unless x has the size, dtype and device of this layout."""
        check_form(x, self.total, self.dtype, self.device, call)

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


def _not_real(dtype: torch.dtype, owner: str) -> TypeError:
    remedy = "Convert them, for example with `.double()`."
    if dtype.is_complex:
        remedy = "Pass `torch.view_as_real(z)`, and call `torch.view_as_complex` in the loss."
    return TypeError(f"`{owner}` needs real floating-point parameters, got {dtype}. {remedy}")


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


def check_form(x: Tensor, size: int, dtype: torch.dtype, device: torch.device, call: str) -> None:
    """Raise unless x has this size, dtype and device; `call` is the one to name."""
    if x.numel() != size or x.dtype != dtype or x.device != device:
        raise ValueError(
            f"`{call}` got a point of {x.numel()} numbers ({x.dtype}, {x.device}), but the "
            f"objective is a function of {size} ({dtype}, {device})."
        )


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


class Structure:
    """The form of an x0: a number, an array, a tensor, or nested lists, tuples and dicts of them.

    A list of numbers is one leaf, as NumPy reads it; a list that holds a tensor, an array or a dict
    is a structure. Numbers and integers are taken in the dtype of the tensors and arrays beside
    them, or else in float64.

    Args:
        x0: the starting point.
        call: the call to name in errors, with x0 as its second argument.

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

    def __init__(self, x0: Any, call: str = "minimize(fun, x0)") -> None:
        leaves: list[_Leaf] = []
        self._name = _second(call)
        given = list(x0) if isinstance(x0, Iterator) else x0
        self._tree = _numbered(given, self._name, call, leaves)
        if not leaves:
            raise empty(call)
        firm = [leaf.tensor for leaf in leaves if leaf.firm]
        like = firm[0] if firm else torch.empty((), dtype=torch.float64)
        tensors = [leaf.tensor if leaf.firm else leaf.tensor.to(like) for leaf in leaves]
        self._restore = [leaf.restore for leaf in leaves]
        self._places = [leaf.place for leaf in leaves]
        self.layout = Layout(tensors, call)
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
                raise ValueError(
                    f"`{place}` must have the structure of {self._name}, got {theirs!r}."
                )
            else:
                for key in _keys(mine):
                    fill(mine[key], theirs[key], f"{place}[{key!r}]")

        fill(self._tree, tree, name)
        return self.layout.flatten(parts)

    def entry(self, i: int) -> str:
        """What errors call the entry i of the vector.

        >>> Structure({"w": [[1.0, 2.0]], "b": 3.0}).entry(1), Structure([1.0, 2.0]).entry(1)
        ("x0['w'][0, 1]", 'entry 1 of x')
        """
        if self.is_vector:
            return f"entry {i} of x"
        for place, shape, size in zip(
            self._places, self.layout.shapes, self.layout.sizes, strict=True
        ):
            if i < size:
                at = [int(k) for k in np.unravel_index(i, tuple(shape))] if len(shape) else ""
                return f"{place}{at}"
            i -= size
        raise IndexError(i)

    def _expanded(self, leaf: int, value: Any, place: str) -> Tensor:
        shape = self.layout.shapes[leaf]
        try:
            if isinstance(value, np.ndarray) and not value.flags.writeable:
                value = value.copy()  # torch would warn
            given = torch.as_tensor(value, dtype=self.layout.dtype, device=self.layout.device)
            return given.detach().expand(shape)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"`{place}` must be a number, or numbers of shape {tuple(shape)} as in "
                f"{self._name}, got {value!r}."
            ) from error


def empty(call: str) -> ValueError:
    """The error for an x0 without numbers."""
    return ValueError(f"`{call}` got an empty {_second(call)}. Pass at least one number.")


def _second(call: str) -> str:
    """The second argument of a call.

    >>> _second("hvp(fun, x, v)")
    'x'
    """
    return call.rstrip(")").split(", ")[1]


def _with_number(tree: Any, none: float | None) -> Any:
    """The number in place of each None in nested lists."""
    if isinstance(tree, list | tuple):
        return [_with_number(part, none) for part in tree]
    return none if tree is None else tree


class _Leaf(NamedTuple):
    place: str  # its name in x0
    tensor: Tensor
    firm: bool  # True if the dtype and device are the user's choice
    restore: Callable[[Tensor], Any]


def _numbered(tree: Any, place: str, call: str, leaves: list[_Leaf]) -> Any:
    """The tree with the numbers 0, 1, ... for its leaves, which are appended to the list."""
    if isinstance(tree, dict | list | tuple) and not _is_numbers(tree):
        places = iter([f"{place}[{key!r}]" for key in _keys(tree)])
        return map_parts(lambda part: _numbered(part, next(places), call, leaves), tree)
    leaves.append(_leaf(tree, place, call))
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


def _leaf(given: Any, place: str, call: str) -> _Leaf:
    if isinstance(given, Tensor):
        return _Leaf(place, given.detach(), True, lambda x: x)
    if isinstance(given, Real):
        number = torch.tensor(float(given), dtype=torch.float64)
        return _Leaf(place, number, False, lambda x: x.item())
    array = _array(given)
    if array is None:
        raise TypeError(f"`{call}` takes {_KINDS}; `{place}` is {described(given)}.")
    firm = array.dtype.kind == "f"
    kind = array.dtype if array.dtype in (np.float16, np.float32) else np.float64
    numbers = torch.from_numpy(np.array(array, dtype=kind))
    return _Leaf(place, numbers, firm, lambda x: x.cpu().numpy())


def _array(given: Any) -> np.ndarray[Any, Any] | None:
    """A list of numbers, or what NumPy reads as an array of real numbers; else None."""
    if not (hasattr(given, "__array__") or _is_numbers(given)):
        return None
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        return None
    return array if array.dtype.kind in "fiub" else None

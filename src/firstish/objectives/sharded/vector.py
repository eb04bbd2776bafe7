"""A vector spread over processes that behaves as the whole vector does.

Two other ways were tried. A 1-D DTensor with parts of unequal length takes `torch.dot(a, b).item()`
to be this rank's dot alone, without a word. A reducer that the loop switches on would not reach a
method that takes its dots with torch, such as L-BFGS, and costs a look at every dot of every run.
A subclass costs those who do not use it nothing, and can refuse what it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from firstish.distributed import Group


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """How a vector lies on the ranks.

    Args:
        group: the ranks.
        own: how many leading entries of this rank's part are its own to count. Entries that every
            rank holds come last, and rank 0 counts them.
        total: entries of the whole vector, each counted once.
    """

    group: Group
    own: int
    total: int

    def __call__(self, part: Tensor) -> Shard:
        """This rank's part as a vector."""
        shard = part.detach().as_subclass(Shard)
        shard.spread = self
        return shard


class Shard(Tensor):
    """This rank's part of a vector that is spread over the ranks of a group.

    Elementwise operations work on the part. `dot`, `sum`, `max`, `min` and `equal` are those of the
    whole vector, the same number on every rank, and `numel` counts the whole; every rank must call
    them. Shape and length are the part's. An operation that is neither is refused: its result for
    a part need not be part of a result.
    """

    spread: Spread

    def local(self) -> Tensor:
        """The part as a plain tensor that shares its memory."""
        return self.as_subclass(Tensor)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # What is saved is the part.
        return self.local().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Every operation of torch on such a vector comes through here."""
        kwargs = kwargs or {}
        name = func.__name__
        with torch._C.DisableTorchFunctionSubclass():
            whole = _WHOLE.get(name)
            if whole is not None:
                return whole(*args, **kwargs)
            if name in _READS:
                return func(*args, **kwargs)
            if not (name in _LOCALS or _is_elementwise(name) or _is_all(name, args)):
                raise TypeError(
                    f"`{name}` of a vector that is spread over processes is not known. Use "
                    "elementwise operations, `dot`, `sum`, `max`, `min` and `equal`; "
                    "`.local()` is this rank's part as a plain tensor."
                )
            result = func(*args, **kwargs)
            if type(result) is not Tensor or result.dim() != 1:
                return result
            return _spread_of(args, kwargs)(result)


def _spread_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Spread:
    first = args[0] if args and isinstance(args[0], (list, tuple)) else ()
    found = (a for a in (*args, *first, *kwargs.values()) if isinstance(a, Shard))
    return next(found).spread


# What only reads, or says where the tensor is and what it is made of.
_READ = (
    "__get__ __set__ __delete__ __repr__ __format__ __len__ __hash__ size dim tolist numpy cpu "
    "as_subclass is_floating_point is_complex is_contiguous requires_grad_ data_ptr "
    "untyped_storage storage_offset stride get_device"
)
# Elementwise, but not tagged so by torch.
_LOCAL = (
    "__rsub__ __rdiv__ __rtruediv__ __rpow__ __eq__ __ne__ to double float clone detach contiguous "
    "type_as view view_as reshape reshape_as flatten zeros_like ones_like empty_like full_like "
    "copy_ fill_ zero_"
)
_READS, _LOCALS = frozenset(_READ.split()), frozenset(_LOCAL.split())


@lru_cache
def _is_elementwise(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    return any(torch.Tag.pointwise in getattr(packet, o).tags for o in packet.overloads())


def _is_all(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a selection leaves nothing out, as when torch's L-BFGS gathers one parameter."""
    if name == "cat":
        return len(args[0]) == 1
    if name == "__getitem__" and isinstance(args[1], slice):
        total: int = args[0].spread.total
        return args[1].indices(total) == (0, total, 1)
    return False


def _own(v: Any) -> Tensor:
    if not isinstance(v, Shard):
        raise TypeError(
            "A vector that is spread over processes met one that is not: both must be of the same "
            f"objective, got {type(v).__name__}."
        )
    return v.local()[: v.spread.own]


def _dot(a: Any, b: Any) -> Tensor:
    part = torch.dot(_own(a), _own(b))
    return (a if isinstance(a, Shard) else b).spread.group.all_sum(part)


def _sum(v: Shard, *, dtype: torch.dtype | None = None) -> Tensor:
    return v.spread.group.all_sum(_own(v).sum(dtype=dtype))


def _largest(v: Shard) -> Tensor:
    own = _own(v)
    part = own.max() if len(own) else torch.full_like(own.sum(), -torch.inf)
    return v.spread.group.all_max(part)


def _smallest(v: Shard) -> Tensor:
    return -_largest(v.spread(-v.local()))


def _equal(a: Any, b: Any) -> bool:
    differs = torch.tensor(float(not torch.equal(_own(a), _own(b))), device=a.device)
    return not a.spread.group.all_sum(differs).item()


_WHOLE: dict[str, Callable[..., Any]] = {
    "dot": _dot,
    "sum": _sum,
    "max": _largest,
    "min": _smallest,
    "equal": _equal,
    "numel": lambda v: v.spread.total,
}

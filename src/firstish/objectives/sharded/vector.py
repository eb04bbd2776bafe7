"""A vector sharded over processes that behaves like the whole vector.

Two alternatives do not work. With a 1-D DTensor of uneven parts, `torch.dot(a, b).item()` silently
is the dot of this rank's parts. A reduction in our own `dot` misses methods that call torch's, such
as L-BFGS, and slows down every other run. A tensor subclass costs other runs nothing, and raises
for operations that it does not support.
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
class Sharding:
    """How a vector is sharded over the ranks.

    Args:
        group: the ranks.
        own: the number of leading entries of this rank's part that its sums include. Replicated
            entries come last, and only rank 0 includes them.
        total: the number of entries of the whole vector, each counted once.
    """

    group: Group
    own: int
    total: int

    def __call__(self, part: Tensor) -> Shard:
        """The vector of which this rank holds `part`."""
        shard = part.detach().as_subclass(Shard)
        shard.sharding = self
        return shard


class Shard(Tensor):
    """This rank's part of a vector that is sharded over the ranks of a group.

    Elementwise operations apply to the part, as does `addmv`. `dot`, `mv`, `sum`, `max`, `min`,
    `equal` and `numel` are those of the whole vector, the same on every rank, and must be called on
    every rank. `mv` and `addmv` take a plain matrix, whose rows are parts of vectors. Shape and
    length are those of the part. Other operations raise, because their result on a part need not be
    a part of the result.
    """

    sharding: Sharding

    def local(self) -> Tensor:
        """The part as a plain tensor that shares its memory."""
        return self.as_subclass(Tensor)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Only the part is pickled.
        return self.local().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Apply an operation of torch to sharded vectors."""
        kwargs = kwargs or {}
        name = func.__name__
        with torch._C.DisableTorchFunctionSubclass():
            whole = _WHOLE.get(name)
            if whole is not None:
                return whole(*args, **kwargs)
            if name in _READS:
                return func(*args, **kwargs)
            if not (name in _LOCALS or _is_elementwise(name) or _is_identity(name, args)):
                raise TypeError(
                    f"`{name}` of a vector that is sharded over processes is not supported. Use "
                    "elementwise operations, `dot`, `sum`, `max`, `min` and `equal`; "
                    "`.local()` is this rank's part as a plain tensor."
                )
            result = func(*args, **kwargs)
            if type(result) is not Tensor or result.dim() != 1:
                return result
            return _sharding_of(args, kwargs)(result)


def _sharding_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sharding:
    first = args[0] if args and isinstance(args[0], (list, tuple)) else ()
    found = (a for a in (*args, *first, *kwargs.values()) if isinstance(a, Shard))
    return next(found).sharding


# Operations that only read the part or its metadata.
_READ = (
    "__get__ __set__ __delete__ __repr__ __format__ __len__ __hash__ size dim tolist numpy cpu "
    "as_subclass is_floating_point is_complex is_contiguous requires_grad_ data_ptr "
    "untyped_storage storage_offset stride get_device"
)
# Elementwise operations that torch does not tag as such.
_LOCAL = (
    "__rsub__ __rdiv__ __rtruediv__ __rpow__ __eq__ __ne__ to double float clone detach contiguous "
    "type_as view view_as reshape reshape_as flatten zeros_like ones_like empty_like full_like "
    "copy_ fill_ zero_ addmv"
)
_READS, _LOCALS = frozenset(_READ.split()), frozenset(_LOCAL.split())


@lru_cache
def _is_elementwise(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    return any(torch.Tag.pointwise in getattr(packet, o).tags for o in packet.overloads())


def _is_identity(name: str, args: tuple[Any, ...]) -> bool:
    """True for `cat` of one tensor and for slices of all entries, which torch's L-BFGS makes."""
    if name == "cat":
        return len(args[0]) == 1
    if name == "__getitem__" and isinstance(args[1], slice):
        total: int = args[0].sharding.total
        return args[1].indices(total) == (0, total, 1)
    return False


def _own(v: Any) -> Tensor:
    if not isinstance(v, Shard):
        raise TypeError(
            "Operations of a vector that is sharded over processes need another one of the same "
            f"objective, got {type(v).__name__}."
        )
    return v.local()[: v.sharding.own]


def _dot(a: Any, b: Any) -> Tensor:
    part = torch.dot(_own(a), _own(b))
    return (a if isinstance(a, Shard) else b).sharding.group.all_sum(part)


def _mv(rows: Tensor, v: Shard) -> Tensor:
    """<row, v> of each row, of which this rank holds its part, in one message."""
    part = torch.mv(rows[:, : v.sharding.own], _own(v))
    return v.sharding.group.all_sum(part.double())


def _sum(v: Shard, *, dtype: torch.dtype | None = None) -> Tensor:
    return v.sharding.group.all_sum(_own(v).sum(dtype=dtype))


def _largest(v: Shard) -> Tensor:
    own = _own(v)
    part = own.max() if len(own) else torch.full_like(own.sum(), -torch.inf)
    return v.sharding.group.all_max(part)


def _smallest(v: Shard) -> Tensor:
    return -_largest(v.sharding(-v.local()))


def _equal(a: Any, b: Any) -> bool:
    differs = torch.tensor(float(not torch.equal(_own(a), _own(b))), device=a.device)
    return not a.sharding.group.all_sum(differs).item()


_WHOLE: dict[str, Callable[..., Any]] = {
    "dot": _dot,
    "mv": _mv,
    "sum": _sum,
    "max": _largest,
    "min": _smallest,
    "equal": _equal,
    "numel": lambda v: v.sharding.total,
}

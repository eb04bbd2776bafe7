"""The forms in which users give bounds."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from numbers import Real
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from firstish.bounds.box import Box
from firstish.interface.keywords import did_you_mean

Pairs = list[tuple[Any, Any]]


class Form(Protocol):
    """The form of x0: `objectives.flatten.Structure`."""

    start: Tensor
    is_vector: bool

    def entry(self, i: int) -> str:
        """What errors call the entry i of the vector."""

    def vector_of(self, tree: Any, name: str, none: float | None = None) -> Tensor:
        """The vector of a tree shaped like x0, with the number `none` for None."""


def box_of(bounds: Any, form: Form, call: str) -> Box | None:
    """The box of a user's bounds; None if none of them is finite.

    Args:
        bounds: a tuple `(lower, upper)`, SciPy's `Bounds`, or pairs, one for each entry of x, in a
            list or an array. None, and -inf or inf, where there is no bound.
        form: the form of x0.
        call: the call to name in errors.
    """
    pairs = pairs_of(bounds)
    flat = _flat(bounds, form.start)
    if flat is not None:
        box = flat
    elif pairs is None:
        lower, upper = ends_of(bounds, f"{call}(bounds=...)", _FORMS)
        if form.is_vector and form.start.numel() == 2:
            _refuse_ambiguous(bounds, f"{call}(bounds={bounds!r})")
        box = Box(
            form.vector_of(lower, f"{call}(bounds=...) lower", -math.inf),
            form.vector_of(upper, f"{call}(bounds=...) upper", math.inf),
        )
    else:
        box = _box_of_pairs(pairs, form.start, call)
    _check(box, form, call)
    finite = torch.isfinite(box.lower).any() or torch.isfinite(box.upper).any()
    return box if finite else None


def pairs_of(bounds: Any) -> Pairs | None:
    """The pairs of bounds given as pairs in a list, an array or an iterator; None for others."""
    if getattr(bounds, "ndim", 0) == 2 and bounds.shape[1] == 2:
        return [tuple(pair) for pair in bounds.tolist()]
    if isinstance(bounds, Iterator):
        bounds = list(bounds)
    if isinstance(bounds, tuple) and len(bounds) == 2:
        return None
    if isinstance(bounds, list | tuple) and bounds and all(map(_is_pair, bounds)):
        return [tuple(pair) for pair in bounds]
    return None


def _is_scipys(bounds: Any) -> bool:
    return hasattr(bounds, "lb") and hasattr(bounds, "ub")


def _flat(bounds: Any, x: Tensor) -> Box | None:
    """The box of SciPy's `Bounds` with a number for each entry of the vector x, or for all."""
    if not _is_scipys(bounds):
        return None
    ends = [np.array(end, dtype=np.float64) for end in (bounds.lb, bounds.ub)]
    if any(end.ndim > 1 or end.size not in (1, x.numel()) for end in ends):
        return None
    lower, upper = (torch.from_numpy(np.broadcast_to(end, x.numel()).copy()).to(x) for end in ends)
    return Box(lower, upper)


def _number(end: np.ndarray[Any, Any]) -> Any:
    return end.item() if end.size == 1 else end


def _is_pair(thing: Any) -> bool:
    return isinstance(thing, list | tuple) and len(thing) == 2 and all(map(_is_end, thing))


def _is_end(thing: Any) -> bool:
    return thing is None or isinstance(thing, Real)


def _box_of_pairs(pairs: Pairs, x: Tensor, call: str) -> Box:
    if len(pairs) != x.numel():
        raise ValueError(
            f"`{call}(bounds=...)` has {len(pairs)} pairs, but x has {x.numel()} entries. Pass "
            "one pair for each entry."
        )
    lower = [-math.inf if low is None else float(low) for low, _ in pairs]
    upper = [math.inf if high is None else float(high) for _, high in pairs]
    return Box(x.new_tensor(lower), x.new_tensor(upper))


_FORMS = (
    "a tuple `(lower, upper)`, SciPy's `Bounds`, a list of pairs, one for each entry of x, or, if "
    "x0 is a module or a dict, a dict of tuples `(lower, upper)` by name"
)
OF_PARAMETER = (
    "a tuple `(lower, upper)`, each a number, None or shaped like the parameter, or SciPy's "
    "`Bounds`"
)


def ends_of(bounds: Any, what: str, forms: str = OF_PARAMETER) -> tuple[Any, Any]:
    """The lower and the upper bounds of a tuple of them, or of SciPy's `Bounds`.

    Args:
        bounds: what the user gave.
        what: what errors call it.
        forms: what may be given there.
    """
    if _is_scipys(bounds):
        # Copies, because SciPy makes views of one number for all entries.
        lower, upper = (np.array(end) for end in (bounds.lb, bounds.ub))
        return (_number(lower), _number(upper))
    if isinstance(bounds, tuple) and len(bounds) == 2:
        return bounds
    raise ValueError(f"`{what}` must be {forms}; got {bounds!r}.")


def _refuse_ambiguous(bounds: Any, what: str, in_list: bool = True) -> None:
    """Raise for two pairs in a tuple: (lower, upper), or one for each of two entries?

    `in_list` if a list of pairs may be given there.
    """
    if isinstance(bounds, tuple) and all(isinstance(b, tuple) and _is_pair(b) for b in bounds):
        a, b = bounds
        ends = [a[0], b[0]], [a[1], b[1]]
        pairs = f"a list, `[{a!r}, {b!r}]`" if in_list else f"`{ends!r}`"
        raise ValueError(
            f"`{what}` may mean a pair for each entry or (lower, upper). "
            f"For (lower, upper) pass lists, `({list(a)!r}, {list(b)!r})`; for pairs {pairs}."
        )


def by_name(
    bounds: Any, names: Sequence[Any], call: str, missing: str, frozen: Collection[str] = ()
) -> Any:
    """Bounds of some parameters by name, as a tuple of dicts of all; other bounds as they are.

    `missing` is what the error says of a name that is not among them; `frozen` are the names of
    parameters that are not trained.

    >>> by_name({"k": (0, 1)}, ["k", "w"], "minimize", "x0 has no key")
    ({'k': 0, 'w': None}, {'k': 1, 'w': None})
    """
    if isinstance(bounds, dict):
        ends = {}
        for name, given in bounds.items():
            ends[name] = ends_of(given, f"{call}(bounds={{{name!r}: ...}})")
            _refuse_ambiguous(given, f"{call}(bounds={{{name!r}: {given!r}}})", in_list=False)
        bounds = {n: e[0] for n, e in ends.items()}, {n: e[1] for n, e in ends.items()}
    if not (isinstance(bounds, tuple) and any(isinstance(end, dict) for end in bounds)):
        return bounds
    sides = []
    for end in bounds:
        for name in end if isinstance(end, dict) else ():
            _check_name(name, names, call, missing, frozen)
        sides.append({n: end.get(n) if isinstance(end, dict) else end for n in names})
    return tuple(sides)


def _check_name(
    name: Any, names: Sequence[Any], call: str, missing: str, frozen: Collection[str]
) -> None:
    if name in frozen:
        raise ValueError(
            f"`{call}(bounds=...)`: {name!r} is frozen (requires_grad=False), so bounds have no "
            "effect on it. Leave them out, or make it trainable."
        )
    if name not in names:
        raise ValueError(
            f"`{call}(bounds=...)`: {missing} {name!r}.{did_you_mean(str(name), map(str, names))}"
        )


def outside(box: Box, form: Form) -> str | None:
    """A few words on the first entry of x0 that is outside of the box; None if none is.

    An entry that its bounds fix may be anywhere.
    """
    x = form.start
    wrong = ((box.project(x) != x) & (box.lower != box.upper)).nonzero()
    if not len(wrong) or x.isnan().any():
        return None
    i = int(wrong[0, 0])
    low, high = float(box.lower[i]), float(box.upper[i])
    return f"{form.entry(i)} is {float(x[i]):g}, its bounds are {low:g} and {high:g}"


def _check(box: Box, form: Form, call: str) -> None:
    for side, ends in (("lower", box.lower), ("upper", box.upper)):
        if ends.isnan().any():
            i = int(ends.isnan().nonzero()[0, 0])
            raise ValueError(
                f"`{call}(bounds=...)` has a NaN, the {side} bound of {form.entry(i)}. Pass a "
                "number, or None where there is no bound."
            )
    wrong = box.lower > box.upper
    if wrong.any():
        i = int(wrong.nonzero()[0, 0])
        raise ValueError(
            f"`{call}(bounds=...)` has the bounds {float(box.lower[i])} and "
            f"{float(box.upper[i])} for {form.entry(i)}: the lower one must not be above the upper "
            "one."
        )
    if (box.lower == math.inf).any() or (box.upper == -math.inf).any():
        raise ValueError(
            f"`{call}(bounds=...)` has a lower bound of inf or an upper bound of -inf, which "
            "excludes every number. Pass None where there is no bound."
        )

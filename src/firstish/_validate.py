"""Checks of settings and functions; an error names the call, the value and what is expected."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from types import FunctionType


def described(value: object) -> str:
    """A value in an error: its type, and its shape or else the value itself.

    >>> import torch
    >>> described(torch.ones(50, 3)), described("a")
    ('Tensor of shape (50, 3)', "str: 'a'")
    """
    shape = getattr(value, "shape", None)
    text = f": {value!r}" if shape is None else f" of shape {tuple(shape)}"
    return f"{type(value).__name__}{text}"


def check_number(call: str, name: str, value: object) -> None:
    """Raise unless the value is a real number, of Python, NumPy or torch."""
    if isinstance(value, bool | str) or not (isinstance(value, Real) or hasattr(value, "item")):
        raise TypeError(f"`{call}({name}=...)` must be a number, got {value!r}.")


def check_positive(call: str, name: str, value: float) -> None:
    """Raise unless 0 < value < inf."""
    check_number(call, name, value)
    if not 0 < value < math.inf:
        raise ValueError(f"`{call}({name}=...)` must be positive and finite, got {value}.")


def check_nonnegative(call: str, name: str, value: float) -> None:
    """Raise unless 0 <= value < inf."""
    check_number(call, name, value)
    if not 0 <= value < math.inf:
        raise ValueError(f"`{call}({name}=...)` must be at least 0 and finite, got {value}.")


def check_below_one(call: str, name: str, value: float, *, zero: bool = True) -> None:
    """Raise unless 0 <= value < 1; with `zero=False`, unless 0 < value < 1."""
    check_number(call, name, value)
    if not (0 <= value < 1 if zero else 0 < value < 1):
        raise ValueError(
            f"`{call}({name}=...)` must lie in {'[' if zero else '('}0, 1), got {value}."
        )


def check_count(call: str, name: str, value: int, *, least: int = 1) -> None:
    """Raise unless the value is an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):  # an int, also of NumPy
        raise TypeError(f"`{call}({name}=...)` must be an int, got {value!r}.")
    if value < least:
        raise ValueError(f"`{call}({name}=...)` must be at least {least}, got {value}.")


def check_arguments(
    fun: Callable[..., object], arguments: Sequence[str], call: str, name: str, remedy: str
) -> None:
    """Raise unless `fun` accepts these positional arguments, as far as its signature is known.

    `name` is what errors call it, and `remedy` a sentence.
    """
    code = fun.__code__ if isinstance(fun, FunctionType) else None
    if code is not None and code.co_argcount == len(arguments) and not code.co_kwonlyargcount:
        return  # quicker than its signature
    try:
        signature = inspect.signature(fun)
    except (TypeError, ValueError):  # some built-in functions have none
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        raise TypeError(
            f"`{call}` calls `{name}({', '.join(arguments)})`, but it is defined as "
            f"`{name}({', '.join(signature.parameters)})`. {remedy}"
        ) from None

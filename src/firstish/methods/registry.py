"""The names of methods that users type: `minimize(method="lazy")`, and everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from firstish.interface.keywords import did_you_mean
from firstish.methods.base import AnyMethod
from firstish.methods.lazy_step import LazyStep
from firstish.methods.plane_step import PlaneStep
from firstish.methods.scaled_gradient import ScaledGradient

NAMES: dict[str, Callable[..., AnyMethod]] = {"lazy": LazyStep, "plane": PlaneStep}
"""Classes by name. Every other name is an alias, a cycle such as "CGMR" (`scaling.py`)
or a rule such as "DY" (`rules.py`)."""

_LBFGS = partial(LazyStep, memory=10, self_scaled=False)
ALIASES: dict[str, Callable[..., AnyMethod]] = {
    "bfgs": LazyStep,
    "ssbfgs": LazyStep,
    "self-scaled-bfgs": LazyStep,
    "lbfgs": _LBFGS,
    "l-bfgs": _LBFGS,
}
"""Names by which users of other libraries look for the same."""

DEFAULT = "lazy"


def make(name: str, **settings: Any) -> AnyMethod:
    """The method of that name, in any case of letters.

    >>> make("plane", memory=2).memory, make("MRCG").scaling, make("L-BFGS").memory
    (2, 'MRCG', 10)
    """
    kind = {**NAMES, **ALIASES}.get(name.lower())
    return ScaledGradient(scaling=name, **settings) if kind is None else kind(**settings)


def _similar(given: str) -> str:
    return did_you_mean(given, [*NAMES, *ALIASES, "CG", "MR", "GM", "CGMR", "MRCG"])


def method_of(given: AnyMethod | str | None, call: str, word: str = "method") -> AnyMethod:
    """A method from its name, from itself, or the default; `word` is what the call names it by.

    >>> method_of("plane", "minimize").memory, method_of("MRCG", "minimize").scaling
    (3, 'MRCG')
    """
    given = DEFAULT if given is None else given
    if isinstance(given, str):
        try:
            return make(given)
        except ValueError:
            raise ValueError(
                f"`{call}({word}={given!r})` is unknown.{_similar(given)} "
                f"Use {', '.join(map(repr, NAMES))}, "
                "'bfgs', 'lbfgs', a cycle of 'CG', 'MR' and 'GM' such as 'CGMR', one of 'ASD', "
                "'DY' and 'SDC', or "
                "a method such as `LazyStep(memory=20)`; `firstish.baselines` has the competitors."
            ) from None
    is_method = all(hasattr(given, name) for name in ("init", "step", "order"))
    if isinstance(given, type) or not is_method:
        raise TypeError(
            f"`{call}({word}=...)` must be a name such as 'lazy' or 'CGMR', or a method such as "
            f"`ScaledGradient(scaling='CGMR')`, got {given!r}."
        )
    return given

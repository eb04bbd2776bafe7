"""What settings may be, said at construction: the call, the value and the range."""

from __future__ import annotations

import math


def positive(call: str, name: str, value: float) -> None:
    """Raise unless 0 < value < infinity."""
    if not 0 < value < math.inf:
        raise ValueError(f"`{call}({name}=...)` must be positive and finite, got {value}.")


def below_one(call: str, name: str, value: float, *, zero: bool) -> None:
    """Raise unless value lies in [0, 1), or in (0, 1) if `zero` is false."""
    if not 0 <= value < 1 or (value == 0 and not zero):
        bracket = "[" if zero else "("
        raise ValueError(f"`{call}({name}=...)` must lie in {bracket}0, 1), got {value}.")


def count(call: str, name: str, value: int, *, least: int) -> None:
    """Raise unless value is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"`{call}({name}=...)` must be an int, got {value!r}.")
    if value < least:
        raise ValueError(f"`{call}({name}=...)` must be at least {least}, got {value}.")


def constants(call: str, mu: float, lipschitz: float, *, strongly: bool) -> None:
    """Raise unless 0 <= mu <= lipschitz and lipschitz > 0; mu > 0 if `strongly` convex."""
    positive(f"{call}.from_constants", "lipschitz", lipschitz)
    if not 0 <= mu <= lipschitz or (strongly and mu == 0):
        bracket = "(" if strongly else "["
        raise ValueError(
            f"`{call}.from_constants(mu=...)` must lie in {bracket}0, lipschitz], "
            f"lipschitz={lipschitz}, got {mu}."
        )

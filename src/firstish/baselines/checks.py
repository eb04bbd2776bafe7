"""Checks of the strong convexity and Lipschitz constants."""

from __future__ import annotations

from firstish._validate import check_positive


def constants(call: str, mu: float, lipschitz: float, *, strongly: bool) -> None:
    """Raise unless 0 <= mu <= lipschitz and lipschitz > 0; if `strongly`, mu must be positive."""
    check_positive(f"{call}.from_constants", "lipschitz", lipschitz)
    if not 0 <= mu <= lipschitz or (strongly and mu == 0):
        bracket = "(" if strongly else "["
        raise ValueError(
            f"`{call}.from_constants(mu=...)` must lie in {bracket}0, lipschitz], "
            f"lipschitz={lipschitz}, got {mu}."
        )

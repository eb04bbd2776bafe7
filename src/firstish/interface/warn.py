"""Warnings that point at the user's line."""

from __future__ import annotations

import inspect
import warnings

_NOT_THE_USER = {"firstish", "torch", "contextlib"}  # torch wraps `Optimizer.step`


def warn(message: str) -> None:
    """Warn at the innermost line of the call stack that is neither ours nor torch's."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and _package(frame.f_globals.get("__name__")) in _NOT_THE_USER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def _package(module: object) -> str:
    return str(module).partition(".")[0]

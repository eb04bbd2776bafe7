"""Exceptions that callers may want to catch."""

from __future__ import annotations


class NonFiniteError(ValueError):
    """f, its gradient or a Hessian-vector product is infinite or not a number."""


class NondeterministicError(ValueError):
    """The loss differs between two evaluations at the same point."""


class ProductError(RuntimeError):
    """The requested kind of Hessian-vector product could not be computed."""


class RankError(ConnectionError):
    """Another process of the group was lost, or did not answer in time."""

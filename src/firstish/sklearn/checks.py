"""Checks of settings, samples and weights, made in `fit` as scikit-learn requires."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from firstish.methods.registry import method_of
from firstish.objectives.global_state import alone
from firstish.objectives.linear.sparse import check_indices
from firstish.sklearn.variables import Array


def check_number(call: str, name: str, value: object, *, zero: bool) -> None:
    """Raise unless the value is a positive number; 0 is allowed with `zero`."""
    number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    if not number or math.isnan(value) or value < 0 or (value == 0 and not zero):  # type: ignore[arg-type, operator]
        what = "at least 0" if zero else "above 0"
        raise ValueError(f"`{call}({name}=...)` must be a number {what}, got {value!r}.")


def check_settings(estimator: Any) -> None:
    """Raise unless tol, max_iter, method and the flags are valid."""
    call = type(estimator).__name__
    check_number(call, "tol", estimator.tol, zero=True)
    most = estimator.max_iter
    if isinstance(most, bool) or not isinstance(most, Integral) or most < 1:
        raise ValueError(f"`{call}(max_iter=...)` must be an integer of at least 1, got {most!r}.")
    for name in ("fit_intercept", "warm_start", "precondition", "positive"):
        flag = getattr(estimator, name, False)
        if not isinstance(flag, bool | np.bool_):
            raise ValueError(f"`{call}({name}=...)` must be True or False, got {flag!r}.")
    method_of(estimator.method, call)


def checked_data(estimator: Any, call: str, X: Any, *y: ArrayLike, **settings: Any) -> Any:
    """X, or X and y, as scikit-learn's estimators take them; raises if they are not valid.

    scikit-learn's checks change the filters of `warnings`, which all threads share, so that one
    thread makes them at a time.
    """
    if hasattr(X, "tocsr"):  # a damaged matrix, before scikit-learn's checks use its indices
        check_indices(X, f"{type(estimator).__name__}.{call}(X)")
    with alone():
        return validate_data(
            estimator, X, *y, accept_sparse="csr", dtype=np.float64, reset=bool(y), **settings
        )


def check_labels(y: ArrayLike) -> None:
    """Raise unless y has labels of classes."""
    with alone():
        check_classification_targets(y)


def checked_weights(X: Any, given: ArrayLike | None) -> Array | None:
    """The weights as an array, or None; raises if they are not valid."""
    if given is None:
        return None
    with alone():
        weights: Array = _check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)
    return weights

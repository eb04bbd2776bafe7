"""Settings and weights of the estimators, checked when they are fitted, as scikit-learn asks."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import _check_sample_weight

from firstish.methods.registry import method_of
from firstish.objectives.linear.sparse import refuse_damaged
from firstish.sklearn.variables import Array


def above(call: str, name: str, value: object, least: float, *, itself: bool = False) -> None:
    """Raise unless the value is a number above `least`, or at least that."""
    number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    if not number or math.isnan(value) or value < least or (value == least and not itself):  # type: ignore[arg-type, operator]
        what = f"at least {least:g}" if itself else f"above {least:g}"
        raise ValueError(f"`{call}({name}=...)` must be a number {what}, got {value!r}.")


def settings(estimator: Any) -> None:
    """Raise unless what all estimators share is as it must be."""
    call = type(estimator).__name__
    above(call, "tol", estimator.tol, 0.0, itself=True)
    most = estimator.max_iter
    if isinstance(most, bool) or not isinstance(most, Integral) or most < 1:
        raise ValueError(f"`{call}(max_iter=...)` must be an integer of at least 1, got {most!r}.")
    method_of(estimator.method, call)


def samples(estimator: Any, X: Any, call: str) -> None:
    """Raise if X is a damaged sparse matrix: scikit-learn's checks would follow its indices."""
    if hasattr(X, "tocsr"):
        refuse_damaged(X, f"{type(estimator).__name__}.{call}(X)")


def sample_weights(X: Any, given: ArrayLike | None) -> Array | None:
    """The weights as an array, checked; None if there are none."""
    if given is None:
        return None
    weights: Array = _check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)
    return weights

"""Linear regression with a ridge penalty: scikit-learn's objective, parameters and attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from firstish.bounds.box import Box
from firstish.methods.base import AnyMethod
from firstish.objectives.linear.families import LeastSquares
from firstish.sklearn.checks import check_number, check_settings, checked_data, checked_weights
from firstish.sklearn.fitting import Task, as_tensor, fit
from firstish.sklearn.variables import Array


class ScaledRidge(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Linear regression by a method that sets its own step; scikit-learn's objective of Ridge.

        sum_i s_i (<a_i, w> + b - y_i)^2 + alpha |w|^2

    s_i is the weight of the sample; b is not penalised. X is neither centred nor scaled in the
    objective; see `ScaledLogisticRegression` for the change of variables.

    Args:
        alpha: the strength of the penalty, at least 0.
        fit_intercept: True to fit b.
        tol: stop when no entry of the gradient is larger in magnitude than this fraction of the
            largest at w = 0 with the best b, so that the units of y do not matter.
        max_iter: the largest number of iterations.
        warm_start: True to start from the coefficients of the last fit.
        method: "lazy" by default; "CGMR" or any other method of `firstish.minimize`.
        precondition: True to run the method in the changed variables.
        positive: True to allow no negative coefficients; b may be negative. The variables are
            then changed by centring and scaling alone, which keep these bounds.

    Attributes:
        coef_: (features,), or (targets, features) if y has several targets.
        intercept_: a number, or (targets,) if y has two axes; 0.0 without `fit_intercept`.
        n_iter_: the number of iterations.
        n_features_in_: the number of columns of X.
        feature_names_in_: their names, if X had any.

    Examples:
        >>> X = np.array([[0.0], [1.0], [2.0]])
        >>> model = ScaledRidge(alpha=0.0, tol=1e-10).fit(X, [1.0, 3.0, 5.0])
        >>> model.coef_.round(6).tolist(), round(model.intercept_, 6)
        ([2.0], 1.0)
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        tol: float = 1e-8,
        max_iter: int = 1000,
        warm_start: bool = False,
        method: AnyMethod | str | None = None,
        precondition: bool = True,
        positive: bool = False,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.method = method
        self.precondition = precondition
        self.positive = positive

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> ScaledRidge:
        """Fit the coefficients.

        Args:
            X: (samples, features), an array or a sparse matrix.
            y: a number for each sample, or several, (samples, targets).
            sample_weight: at least 0, one for each sample; 1 by default.
        """
        check_number("ScaledRidge", "alpha", self.alpha, zero=True)
        check_settings(self)
        X, y = checked_data(self, "fit", X, y, order="C", multi_output=True, y_numeric=True)
        y = np.ascontiguousarray(y, dtype=np.float64)
        weights = checked_weights(X, sample_weight)
        task = Task(
            A=X,
            targets=as_tensor(y),
            family=LeastSquares(),
            weights=weights,
            penalty=float(self.alpha),
            intercept=self.fit_intercept,
        )
        mean = np.average(y, axis=0, weights=weights) if self.fit_intercept else np.zeros_like(y[0])
        rows = 1 if y.ndim == 1 else y.shape[1]
        start = np.zeros((rows, X.shape[1] + self.fit_intercept))
        if self.fit_intercept:
            start[:, -1] = mean
        before = self._last_fit(start.shape) if self.warm_start else None
        found = fit(
            task,
            start if before is None else before,
            method=self.method,
            tol=self.tol * _largest_gradient(X, y - mean, weights),
            max_iter=self.max_iter,
            precondition=self.precondition,
            box=_positive(start, X.shape[1]) if self.positive else None,
        )
        found.warn(self)
        values = found.x.numpy().reshape(start.shape)
        coef = values[:, : X.shape[1]].copy()
        self.coef_ = coef if rows > 1 else coef[0]  # the shapes of scikit-learn's Ridge
        intercept = values[:, -1].copy() if y.ndim == 2 else float(values[0, -1])
        self.intercept_ = intercept if self.fit_intercept else 0.0
        self.n_iter_ = found.iterations
        return self

    def predict(self, X: Any) -> Array:
        """The predicted numbers: (samples,), or (samples, targets) if y had several targets."""
        check_is_fitted(self)
        X = checked_data(self, "predict", X)
        predicted: Array = X @ self.coef_.T + self.intercept_
        return predicted

    def _last_fit(self, shape: tuple[int, int]) -> Array | None:
        """The rows of the last fit, if they have this shape."""
        if not hasattr(self, "coef_"):
            return None
        coef = np.atleast_2d(self.coef_)
        intercept = np.broadcast_to(np.reshape(self.intercept_, (-1, 1)), (len(coef), 1))
        rows = np.hstack([coef, intercept][: 1 + self.fit_intercept])
        return rows if rows.shape == shape else None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _largest_gradient(X: Any, residual: Array, weights: Array | None) -> float:
    """The largest entry, in magnitude, of the gradient by w of half the mean square, at w = 0."""
    if weights is None:
        return float(np.abs(X.T @ residual).max()) / len(residual)
    weighted = (residual.T * weights).T
    return float(np.abs(X.T @ weighted).max()) / float(weights.sum())


def _positive(start: Array, features: int) -> Box:
    """Coefficients of at least 0, and any intercept."""
    lower = np.zeros_like(start)
    lower[:, features:] = -np.inf
    return Box(as_tensor(lower.reshape(-1)), as_tensor(np.full(lower.size, np.inf)))

"""Logistic regression with scikit-learn's objective, parameters and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import check_is_fitted

from firstish.methods.base import AnyMethod
from firstish.objectives.linear.families import Family, Logistic, Multinomial
from firstish.sklearn.checks import (
    check_labels,
    check_number,
    check_settings,
    checked_data,
    checked_weights,
)
from firstish.sklearn.fitting import Task, fit
from firstish.sklearn.variables import Array

LEAST_PRIOR = 1e-6  # for a class whose samples all have weight 0


class ScaledLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression by a method that sets its own step; scikit-learn's objective.

        C sum_i s_i loss(<a_i, w> + b, y_i) + 1/2 |w|^2

    The loss is log(1 + e^-z) for two classes, and softmax cross-entropy with a row of weights per
    class for more. s_i is the weight of the sample times that of its class; b is not penalised. X
    is neither centred nor scaled in the objective. A change of variables (`precondition`) makes the
    Hessian nearly the identity and leaves the objective unchanged. Fits are deterministic, in
    float64.

    Args:
        C: inverse strength of the penalty; `np.inf` for none.
        fit_intercept: True to fit b.
        class_weight: a mapping from classes to weights, "balanced", or None for 1.
        tol: stop when no entry of the gradient of the mean loss is larger in magnitude, as
            scikit-learn's lbfgs does.
        max_iter: the largest number of iterations.
        warm_start: True to start from the coefficients of the last fit.
        method: "lazy" by default; "CGMR" or any other method of `firstish.minimize`.
        precondition: True to run the method in the changed variables.

    Attributes:
        coef_: (1, features) for two classes, else (classes, features).
        intercept_: (1,) or (classes,); zeros without an intercept.
        classes_: the labels, sorted.
        n_iter_: the number of iterations, (1,).
        n_features_in_: the number of columns of X.
        feature_names_in_: their names, if X had any.

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = ScaledLogisticRegression(tol=1e-8).fit(X, y)
        >>> model.coef_.shape, round(model.score(X, y), 3)
        ((3, 4), 0.973)
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        tol: float = 1e-4,
        max_iter: int = 1000,
        warm_start: bool = False,
        method: AnyMethod | str | None = None,
        precondition: bool = True,
    ) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.method = method
        self.precondition = precondition

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> ScaledLogisticRegression:
        """Fit the coefficients.

        Args:
            X: (samples, features), an array or a sparse matrix.
            y: a label for each sample.
            sample_weight: at least 0, one for each sample; 1 by default.
        """
        check_number("ScaledLogisticRegression", "C", self.C, zero=False)
        check_settings(self)
        X, y = checked_data(self, "fit", X, y, order="C")
        check_labels(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                "`ScaledLogisticRegression.fit(X, y)` needs samples of at least 2 classes, got "
                f"one class, {classes[0]}."
            )
        before = self._last_fit(classes, X.shape[1]) if self.warm_start else None
        weights = self._weights(X, y, classes, labels, sample_weight)
        task = Task(
            A=X,
            targets=torch.from_numpy(labels.astype(np.int64)),
            family=_family(len(classes)),
            weights=weights,
            penalty=1 / self.C,
            intercept=self.fit_intercept,
        )
        priors = np.bincount(labels, weights)
        start = _start(priors / priors.sum(), X.shape[1], self.fit_intercept)
        found = fit(
            task,
            start if before is None else before,
            method=self.method,
            tol=self.tol,
            max_iter=self.max_iter,
            precondition=self.precondition,
        )
        found.warn(self)
        rows = found.x.numpy().reshape(start.shape)
        self.classes_ = classes
        self.coef_ = rows[:, : X.shape[1]].copy()
        self.intercept_ = rows[:, -1].copy() if self.fit_intercept else np.zeros(len(rows))
        if len(rows) > 1:
            # Adding a number to all changes no probability; scikit-learn's have mean 0.
            self.intercept_ -= self.intercept_.mean()
        self.n_iter_ = np.array([found.iterations], dtype=np.int32)
        return self

    def decision_function(self, X: Any) -> Array:
        """The scores: (samples,), positive for `classes_[1]`, or (samples, classes)."""
        check_is_fitted(self)
        X = checked_data(self, "decision_function", X)
        z: Array = X @ self.coef_.T + self.intercept_
        return z[:, 0] if z.shape[1] == 1 else z

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each sample."""
        z = self.decision_function(X)
        index = (z > 0).astype(np.intp) if z.ndim == 1 else z.argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[index]
        return predicted

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithms of the probabilities, (samples, classes)."""
        z = torch.from_numpy(self.decision_function(X))
        if z.ndim == 1:
            both = torch.stack([-z, z], dim=1)
            return torch.nn.functional.logsigmoid(both).numpy()
        return torch.log_softmax(z, dim=1).numpy()

    def predict_proba(self, X: Any) -> Array:
        """The probabilities, (samples, classes)."""
        probabilities: Array = np.exp(self.predict_log_proba(X))
        return probabilities

    def _last_fit(self, classes: NDArray[Any], features: int) -> Array | None:
        """The rows of the last fit, if it had the same classes and number of features."""
        known = getattr(self, "classes_", None)
        if known is None or not np.array_equal(known, classes) or self.coef_.shape[1] != features:
            return None
        return np.hstack([self.coef_, self.intercept_[:, None]][: 1 + self.fit_intercept])

    def _weights(
        self,
        X: Any,
        y: Any,
        classes: NDArray[Any],
        labels: NDArray[np.intp],
        given: ArrayLike | None,
    ) -> Array | None:
        """The weight of each sample times that of its class; None if all are 1."""
        weights = checked_weights(X, given)
        if self.class_weight is None:
            return weights
        balanced = {} if weights is None else {"sample_weight": weights}
        each: Array = compute_class_weight(self.class_weight, classes=classes, y=y, **balanced)
        return each[labels] if weights is None else weights * each[labels]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _family(classes: int) -> Family:
    return Logistic() if classes == 2 else Multinomial(classes=classes)


def _start(priors: Array, features: int, intercept: bool) -> Array:
    """Rows with w = 0 and the best b for it."""
    rows = 1 if len(priors) == 2 else len(priors)
    start = np.zeros((rows, features + intercept))
    if intercept:
        logs = np.log(np.maximum(priors, LEAST_PRIOR))
        start[:, -1] = logs[1] - logs[0] if rows == 1 else logs - logs.mean()
    return start

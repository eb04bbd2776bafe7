"""A stand-in for the objective of benchopt/benchmark_logreg_l2, in its documented shape."""

# ruff: noqa: RUF012 - benchopt reads these class attributes as they are

import numpy as np
from benchopt import BaseObjective


class Objective(BaseObjective):
    """sum_i log(1 + exp(-y_i (x_i' w + c))) + lmbd/2 |w|^2, y in {-1, 1}; beta is w, then c."""

    name = "L2 Logistic Regression"
    min_benchopt_version = "1.7"
    parameters = {"lmbd": [1.0, 0.01], "fit_intercept": [False]}

    def set_data(self, X, y):
        if set(np.unique(y)) != {-1, 1}:
            raise ValueError(f"y must be -1 and 1, got {np.unique(y)}.")
        self.X, self.y = X, y

    def evaluate_result(self, beta):
        w, c = (beta[:-1], beta[-1]) if self.fit_intercept else (beta, 0.0)
        losses = np.logaddexp(0, -self.y * (self.X @ w + c))
        return {"value": float(losses.sum() + self.lmbd / 2 * w @ w)}

    def get_one_result(self):
        return {"beta": np.zeros(self.X.shape[1] + self.fit_intercept)}

    def get_objective(self):
        return {
            "X": self.X,
            "y": self.y,
            "lmbd": self.lmbd,
            "fit_intercept": self.fit_intercept,
        }

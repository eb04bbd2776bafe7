"""SciPy's L-BFGS-B, to compare with; its start is the same."""

# ruff: noqa: RUF012 - benchopt reads these class attributes as they are

import numpy as np
import scipy.optimize
from benchopt import BaseSolver


class Solver(BaseSolver):
    name = "scipy-lbfgs"
    requirements = ["scipy"]
    sampling_strategy = "callback"

    def set_objective(self, X, y, lmbd, fit_intercept=False):
        self.X, self.y, self.lmbd, self.fit_intercept = X, y, lmbd, fit_intercept

    def _f_and_g(self, beta):
        w, c = (beta[:-1], beta[-1]) if self.fit_intercept else (beta, 0.0)
        m = -self.y * (self.X @ w + c)
        slopes = -self.y / (1 + np.exp(-m))
        g = self.X.T @ slopes + self.lmbd * w
        g = np.append(g, slopes.sum()) if self.fit_intercept else g
        return np.logaddexp(0, m).sum() + self.lmbd / 2 * w @ w, g

    def run(self, callback):
        self.beta = np.zeros(self.X.shape[1] + self.fit_intercept)
        if not callback():
            return

        def after(xk):
            self.beta = xk.copy()
            if not callback():
                raise StopIteration

        scipy.optimize.minimize(
            self._f_and_g,
            self.beta,
            jac=True,
            method="L-BFGS-B",
            callback=after,
            options={"maxiter": 10**6, "maxfun": 10**7, "ftol": 0, "gtol": 0},
        )

    def get_result(self):
        return {"beta": self.beta}

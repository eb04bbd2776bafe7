"""firstish in the L2-logistic benchmark of benchopt: this file goes into its `solvers` folder."""

# ruff: noqa: RUF012 - benchopt reads these class attributes as they are

import scipy.sparse
import torch
from benchopt import BaseSolver

import firstish

STEPPERS = {
    "cgmr": firstish.ScaledGradient(scaling="CGMR", sigma=0.0),
    "cg": firstish.ScaledGradient(scaling="CG", sigma=0.0),
    "plane": firstish.PlaneStep(sigma=0.0),
    "lazy": firstish.LazyStep(),
}


class Solver(BaseSolver):
    name = "firstish"
    requirements = ["pip::firstish"]
    parameters = {"stepper": ["cgmr", "plane", "lazy"]}
    # benchopt looks at the iterate after each iteration, and stops its clock for it.
    sampling_strategy = "callback"

    def set_objective(self, X, y, lmbd, fit_intercept=False):
        # The benchmark sums over the rows where LinearModel takes the mean: the same minimiser.
        self.model = firstish.LinearModel(
            _tensor(X),
            torch.as_tensor(y),
            firstish.families.Logistic(),
            weight_decay=lmbd / X.shape[0],
            intercept=bool(fit_intercept),
            penalise_intercept=False,
        )
        self.x = self.model.initial()

    def run(self, callback):
        self.x = self.model.initial()
        if not callback():
            return

        def after(progress):
            self.x = progress.x
            return not callback()

        firstish.minimize(
            self.model,
            self.x,
            method=STEPPERS[self.stepper],
            gtol=0.0,
            max_oracle_calls=None,
            callback=after,
        )

    def get_result(self):
        return {"beta": self.x.numpy()}


def _tensor(X):
    if not scipy.sparse.issparse(X):
        return torch.as_tensor(X)
    X = X.tocsr()
    parts = (torch.as_tensor(part) for part in (X.indptr, X.indices, X.data))
    return torch.sparse_csr_tensor(*parts, size=X.shape, check_invariants=True)

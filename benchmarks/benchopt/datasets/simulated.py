"""A stand-in for the public benchmark's simulated data: labels that a linear model nearly gives."""

# ruff: noqa: RUF012 - benchopt reads these class attributes as they are

import numpy as np
import scipy.sparse
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "Simulated"
    parameters = {
        "n_samples, n_features": [(1000, 10), (200, 500)],
        "density": [1.0],
    }

    def get_data(self):
        rng = np.random.default_rng(42)
        shape = (self.n_samples, self.n_features)
        X = rng.normal(size=shape)
        if self.density < 1:
            X = scipy.sparse.csr_array(X * (rng.random(shape) < self.density))
        noise = rng.logistic(size=self.n_samples)
        y = np.where(X @ rng.normal(size=self.n_features) + noise > 0, 1, -1)
        return {"X": X, "y": y}

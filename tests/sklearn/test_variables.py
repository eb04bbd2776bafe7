"""The change of variables is linear with its transposed, and makes the Hessian the identity."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from firstish import LinearModel, families
from firstish.sklearn.substituted import Substituted
from firstish.sklearn.variables import cost, diagonal, whitened


def numbers(rows, sparse, n=60, d=4):
    rng = np.random.RandomState(rows)
    A = rng.randn(n, d) * [1, 10, 0.1, 3] + 2
    if sparse:
        A[rng.rand(n, d) < 0.5] = 0
    weights = rng.rand(n)
    curvatures = 0.2 + 0.05 * rng.rand(n, rows)  # all above half their mean, so none is left out
    return (sp.csr_matrix(A) if sparse else A), weights / weights.sum(), curvatures


def dense(function, size):
    return torch.stack([function(e) for e in torch.eye(size)], dim=1)


EVERY = pytest.mark.parametrize("make", [diagonal, whitened])
ROWS = pytest.mark.parametrize("rows", [1, 3])
INTERCEPT = pytest.mark.parametrize("intercept", [True, False])
SPARSE = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


@EVERY
@ROWS
@INTERCEPT
@pytest.mark.parametrize("sum_zero", [False, True])
def test_the_transposed_is_that_of_the_map(make, rows, intercept, sum_zero):
    A, weights, curvatures = numbers(rows, False)
    T = make(A, weights, curvatures, 0.1, intercept)
    T = type(T)(T.R, T.mean, T.scale, sum_zero)
    size = rows * (4 + intercept)
    M = dense(T.forward, size)
    torch.testing.assert_close(dense(T.transposed, size), M.T)
    if sum_zero:
        torch.testing.assert_close(M.view(rows, -1, size).sum(0), torch.zeros(size // rows, size))
    else:
        assert torch.linalg.matrix_rank(M) == size


@ROWS
@INTERCEPT
@SPARSE
def test_the_whitened_hessian_is_the_identity(rows, intercept, sparse):
    A, weights, curvatures = numbers(rows, sparse)
    T = whitened(A, weights, curvatures, 0.1, intercept)
    plain = A.toarray() if sparse else A
    Z = np.hstack([plain, np.ones((60, 1))][: 1 + intercept])
    penalty = np.diag([0.1] * 4 + [0.0] * intercept)
    blocks = [(Z.T * (weights * curvatures[:, k])) @ Z + penalty for k in range(rows)]
    H = torch.block_diag(*map(torch.from_numpy, blocks))
    M = dense(T.forward, len(H))
    torch.testing.assert_close(M.T @ H @ M, torch.eye(len(H)), rtol=1e-9, atol=1e-9)


@INTERCEPT
@SPARSE
def test_the_diagonal_makes_the_diagonal_one(intercept, sparse):
    A, weights, curvatures = numbers(1, sparse)
    curvatures[:] = 0.25
    T = diagonal(A, weights, curvatures, 0.1, intercept)
    plain = A.toarray() if sparse else A
    Z = np.hstack([plain, np.ones((60, 1))][: 1 + intercept])
    H = torch.from_numpy((Z.T * (weights * 0.25)) @ Z + np.diag([0.1] * 4 + [0.0] * intercept))
    M = dense(T.forward, len(H))
    torch.testing.assert_close((M.T @ H @ M).diagonal(), torch.ones(len(H)))


def test_newtons_step_is_the_gradient_step_in_the_new_variables():
    A, weights, _ = numbers(1, False)
    model = LinearModel(
        torch.from_numpy(A),
        torch.from_numpy(A @ [1.0, 2.0, 3.0, 4.0] + 5),
        families.LeastSquares(),
        sample_weight=torch.from_numpy(weights),
        intercept=True,
        penalise_intercept=False,
    )
    T = whitened(A, weights, np.ones((60, 1)), 0.0, True)
    point = Substituted(model.at(model.initial()), T).at(model.initial())
    found = point.along(point.grad, -1.0).inner.x
    torch.testing.assert_close(found, torch.tensor([1.0, 2, 3, 4, 5]), rtol=1e-6, atol=1e-6)


def test_samples_of_little_curvature_are_omitted_and_d_is_rescaled():
    A, weights, curvatures = numbers(1, False)
    curvatures[::2] = 0.05  # less than half the mean
    few, weighed = A[1::2], weights[1::2] * curvatures[1::2, 0]
    total = float(weights @ curvatures[:, 0])
    T = whitened(A, weights, curvatures, 0.1, True)
    exact = whitened(few, weighed / weighed.sum(), np.full((30, 1), total), 0.1, True)
    torch.testing.assert_close(T.R, exact.R)
    torch.testing.assert_close(T.mean, exact.mean)


def test_nothing_is_made_of_samples_without_curvature():
    A, weights, curvatures = numbers(1, False)
    assert whitened(A, weights, 0 * curvatures, 0.1, True) is None
    T = diagonal(A, weights, 0 * curvatures, 0.1, True)
    assert bool(T.R.isfinite().all())
    assert bool(T.scale.isfinite().all())


def test_the_cost_grows_with_the_columns_until_it_is_infinite():
    costs = [cost(np.zeros((50, d)), 1) for d in (10, 100, 1000)]
    assert costs == sorted(costs)
    wide = sp.csr_matrix(([1.0], ([0], [0])), shape=(10, 100_000))
    assert cost(wide, 1) == np.inf

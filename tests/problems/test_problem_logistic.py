"""Logistic regression against NumPy, SciPy and scikit-learn; its constants against its Hessian."""

import numpy as np
import pytest
import scipy.optimize
import torch
from scipy.special import logsumexp
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from tolerances import summed

import firstish
from firstish.problems import Options, get
from firstish.problems.logistic import (
    logistic_regression,
    softmax_regression,
    squared_norm,
    with_bias,
)


def softmax_value(x, A, labels, classes, weight_decay):
    """The formula in plain NumPy."""
    weights = np.vstack([x.reshape(classes - 1, -1), np.zeros(A.shape[1])])
    scores = A @ weights.T
    losses = logsumexp(scores, axis=1) - scores[np.arange(len(labels)), labels]
    return np.mean(losses) + weight_decay / 2 * np.sum(x**2)


def binary_value(x, A, signs, weight_decay):
    return np.mean(np.logaddexp(0, -signs * (A @ x))) + weight_decay / 2 * np.sum(x**2)


@pytest.fixture
def several():
    """Thirty items of four classes."""
    rng = np.random.RandomState(1)
    A = with_bias(rng.randn(30, 4), 1, torch.float64)
    labels = rng.randint(0, 4, 30)
    labels[:4] = range(4)
    return A, labels


@pytest.fixture
def two():
    """Forty items of two classes, not separable."""
    rng = np.random.RandomState(2)
    A = with_bias(rng.randn(40, 5), 1, torch.float64)
    signs = np.where(A[:, 0].numpy() + rng.randn(40) > 0, 1.0, -1.0)
    return A, signs


def softmax(several, weight_decay=1e-2):
    A, labels = several
    return softmax_regression(A, torch.from_numpy(labels), 4, weight_decay)


def binary(two, weight_decay=1e-2):
    A, signs = two
    return logistic_regression(A, torch.from_numpy(signs), weight_decay)


def dense_hessian(instance, x):
    columns = [instance.objective.at(x).hvp(e).vector for e in torch.eye(len(x), dtype=x.dtype)]
    return torch.stack(columns).numpy()


def random_points(size):
    rng = np.random.RandomState(3)
    return [torch.from_numpy(scale * rng.randn(size)) for scale in (0.0, 0.1, 1.0, 10.0)]


def test_bias_is_the_last_column():
    A = with_bias(np.array([[0, 51], [255, 102]], np.uint8), 255, torch.float64)
    np.testing.assert_allclose(A, [[0, 0.2, 1], [1, 0.4, 1]], rtol=summed(1))


@pytest.mark.parametrize("shape", [(20, 6), (6, 20)])
def test_squared_norm(shape):
    A = np.random.RandomState(0).randn(*shape)
    assert squared_norm(torch.from_numpy(A)) == pytest.approx(np.linalg.norm(A, 2) ** 2, rel=1e-12)
    single = torch.from_numpy(A).float()
    wanted = np.linalg.norm(single.double().numpy(), 2) ** 2
    assert squared_norm(single) == pytest.approx(wanted, rel=1e-12)  # not in float32


@pytest.mark.parametrize("scale", [0.0, 1.0, 300.0])
def test_softmax_value(several, scale):
    instance = softmax(several)
    x = scale * np.random.RandomState(4).randn(15)
    wanted = softmax_value(x, several[0].numpy(), several[1], 4, 1e-2)
    assert instance.objective.at(torch.from_numpy(x)).value == pytest.approx(wanted, rel=1e-13)


def test_softmax_counts_the_items_of_the_last_class(several):
    """The erratum: the printed sum would leave them out."""
    A, labels = several
    last = np.flatnonzero(labels == 3)
    only = softmax_regression(A[last], torch.from_numpy(labels[last]), 4, 0.0)
    assert only.objective.at(only.x0).value == pytest.approx(np.log(4))


@pytest.mark.parametrize("scale", [0.0, 1.0, 300.0])
def test_binary_value(two, scale):
    instance = binary(two)
    x = scale * np.random.RandomState(4).randn(6)
    A = two[0].numpy()
    wanted = binary_value(x, A, two[1], 1e-2)
    lost = max(1, np.mean(np.abs(A) @ np.abs(x)) / wanted)  # in the margins
    tolerance = summed(sum(A.shape), cancellation=lost)
    assert instance.objective.at(torch.from_numpy(x)).value == pytest.approx(wanted, rel=tolerance)


def test_binary_loss_has_no_jump():
    """torch's softplus is the identity above 20, and 2e-9 too low there."""
    instance = logistic_regression(torch.ones(1, 1), -torch.ones(1), 0.0)
    for z in (19.5, 20.5, 30.0):
        value = instance.objective.at(torch.tensor([z])).value
        assert value == pytest.approx(np.logaddexp(0, z), rel=summed(1))


def test_two_classes_are_a_softmax_over_two(two):
    A, signs = two
    labels = torch.from_numpy(np.where(signs > 0, 0, 1))
    general, special = softmax_regression(A, labels, 2, 1e-2), binary(two)
    entries = summed(A.numel())  # |A|^2 is a sum of squares at most so long
    assert general.lipschitz == pytest.approx(special.lipschitz, rel=entries)
    for x in random_points(6):
        assert general.objective.at(x).value == pytest.approx(special.objective.at(x).value)


@pytest.mark.parametrize("which", ["softmax", "binary"])
def test_gradient_is_the_change_of_the_value(several, two, which):
    if which == "softmax":
        instance = softmax(several)

        def value(x):
            return softmax_value(x, several[0].numpy(), several[1], 4, 1e-2)
    else:
        instance = binary(two)

        def value(x):
            return binary_value(x, two[0].numpy(), two[1], 1e-2)

    for x in random_points(len(instance.x0)):
        wanted = scipy.optimize.approx_fprime(x.numpy(), value, 1e-7)
        np.testing.assert_allclose(instance.objective.at(x).grad, wanted, atol=2e-6)


@pytest.mark.parametrize("which", ["softmax", "binary"])
def test_curvature_lies_between_mu_and_lipschitz(several, two, which):
    instance = softmax(several) if which == "softmax" else binary(two)
    assert instance.mu == 1e-2
    for x in random_points(len(instance.x0)):
        eigenvalues = np.linalg.eigvalsh(dense_hessian(instance, x))
        assert eigenvalues[0] >= instance.mu * (1 - 1e-9)
        assert eigenvalues[-1] <= instance.lipschitz * (1 + 1e-12)


def test_lipschitz_is_attained_at_zero_by_two_classes(two):
    instance = binary(two)
    largest = np.linalg.eigvalsh(dense_hessian(instance, instance.x0))[-1]
    assert largest == pytest.approx(instance.lipschitz, rel=1e-12)


def test_lipschitz_is_the_papers(several):
    A = several[0].numpy()
    wanted = 3 / (4 * 30) * np.linalg.norm(A, 2) ** 2 + 1e-2
    assert softmax(several).lipschitz == pytest.approx(wanted, rel=1e-12)


def test_binary_optimum_is_scikit_learns(two):
    A, signs = two
    instance = binary(two)
    model = LogisticRegression(
        C=1 / (len(signs) * 1e-2), fit_intercept=False, tol=1e-12, solver="newton-cholesky"
    ).fit(A.numpy(), signs)
    result = firstish.minimize(
        instance.objective, instance.x0, method=firstish.ScaledGradient(sigma=0.0), gtol=1e-10
    )
    assert result.success
    np.testing.assert_allclose(result.x, model.coef_[0], rtol=1e-7)


def test_softmax_optimum_is_scipys(several):
    A, labels = several
    instance = softmax(several)
    found = scipy.optimize.minimize(
        softmax_value,
        np.zeros(15),
        args=(A.numpy(), labels, 4, 1e-2),
        method="BFGS",
        options={"gtol": 1e-7, "maxiter": 500, "xrtol": 0},
    )
    result = firstish.minimize(
        instance.objective, instance.x0, method=firstish.ScaledGradient(sigma=0.0), gtol=1e-8
    )
    assert result.success
    assert result.value == pytest.approx(found.fun, rel=1e-9)
    np.testing.assert_allclose(result.x, found.x, atol=1e-4)


def test_digits_logistic_is_the_formula():
    bunch = load_digits()
    rows = 200
    instance = get("digits-logistic").load(Options(subset=rows))
    A = np.hstack([bunch.data[:rows] / 16, np.ones((rows, 1))])
    x = np.random.RandomState(5).randn(9 * 65)
    wanted = softmax_value(x, A, bunch.target[:rows], 10, 1e-3)
    assert instance.objective.at(torch.from_numpy(x)).value == pytest.approx(wanted, rel=1e-13)
    assert instance.objective.at(instance.x0).value == pytest.approx(np.log(10), rel=summed(rows))
    wanted = 9 / (4 * rows) * np.linalg.norm(A, 2) ** 2 + 1e-3
    assert instance.lipschitz == pytest.approx(wanted, rel=1e-12)
    assert instance.mu == get("digits-logistic").mu == 1e-3


def test_digits_logistic_takes_unit_steps_to_its_tolerance():
    problem = get("digits-logistic")
    instance = problem.load()
    method = firstish.ScaledGradient(scaling=problem.scaling, sigma=problem.sigma)
    result = firstish.minimize(
        instance.objective,
        instance.x0,
        method=method,
        gtol=problem.gtol,
        max_oracle_calls=problem.budget,
    )
    assert result.success
    assert all(row.step_size == 1 for row in result.history[:-1])

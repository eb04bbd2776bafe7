"""Value, gradient and product against the dense Hessian of torch.autograd.functional."""

import numpy as np
import pytest
import torch
from hypothesis import given
from testbed import make, problems, seeds

from firstish import FunctionObjective, ModuleObjective
from firstish.linalg import dot


@pytest.mark.parametrize(
    ("product", "accuracy"), [("double-backward", 1e-12), ("auto", 1e-12), ("difference", 1e-5)]
)
@given(problem=problems(), seed=seeds)
def test_gradient_and_product_equal_the_dense_ones(product, accuracy, problem, seed):
    point = problem.point(product=product)
    v = torch.from_numpy(np.random.default_rng(seed).standard_normal(problem.x.numel()))
    g, H = problem.dense()
    size = np.linalg.norm(H, 2) * float(v.norm()) + np.linalg.norm(g)
    assert point.value == float(problem.fun(problem.x))
    np.testing.assert_allclose(point.grad.numpy(), g, rtol=0, atol=1e-13 * size)
    Hv = point.hvp(v).vector.numpy()
    np.testing.assert_allclose(Hv, H @ v.numpy(), rtol=0, atol=accuracy * size)
    assert point.curvature(v) == pytest.approx(v.numpy() @ H @ v.numpy(), abs=accuracy * 1e2 * size)


@given(problems())
def test_the_angle_is_that_of_g_and_the_dense_Hg(problem):
    angle = problem.point().angle()
    g, H = problem.dense()
    Hg = H @ g
    size = np.linalg.norm(H, 2)
    assert angle.grad_norm == pytest.approx(np.linalg.norm(g), rel=1e-12)
    assert angle.local_lipschitz == pytest.approx(
        np.linalg.norm(Hg) / np.linalg.norm(g), abs=1e-12 * size
    )
    assert angle.rayleigh == pytest.approx(g @ Hg / (g @ g), abs=1e-12 * size)
    assert angle.error == 0


@given(problems(("gelu net", "softmax")))
def test_weight_decay_adds_to_value_gradient_and_product(problem):
    objective = FunctionObjective(problem.fun, problem.x, weight_decay=0.3)
    point, plain = objective.at(problem.x), problem.point()
    v = torch.linspace(-1, 1, problem.x.numel())
    assert point.value == pytest.approx(plain.value + 0.15 * dot(problem.x, problem.x), rel=1e-14)
    torch.testing.assert_close(point.grad, plain.grad + 0.3 * problem.x)
    torch.testing.assert_close(point.hvp(v).vector, plain.hvp(v).vector + 0.3 * v)


def test_a_module_has_the_dense_hessian_of_its_parameters():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
    inputs, targets = torch.randn(7, 3), torch.randn(7, 1)
    objective = ModuleObjective(model, torch.nn.functional.mse_loss, inputs, targets)
    x = objective.initial()

    def by_hand(x):
        W, b, w, c = torch.split(x, [12, 4, 4, 1])
        hidden = torch.nn.functional.gelu(inputs @ W.view(4, 3).T + b)
        return ((hidden @ w[:, None] + c - targets) ** 2).mean()

    H = torch.autograd.functional.hessian(by_hand, x)
    v = torch.linspace(-1, 1, x.numel())
    point = objective.at(x)
    assert point.value == pytest.approx(float(by_hand(x)), rel=1e-14)
    torch.testing.assert_close(point.grad, torch.autograd.functional.jacobian(by_hand, x))
    torch.testing.assert_close(point.hvp(v).vector, H @ v)


def test_the_dense_reference_knows_a_hessian_found_by_hand():
    problem = make("convex quadratic", 3)
    _, H = problem.dense()
    d = problem.x.numel()
    basis = np.eye(d)
    f = lambda x: float(problem.fun(torch.from_numpy(x)))  # noqa: E731
    for i in range(d):
        for j in range(d):  # a quadratic's second difference is exact
            e = basis[i] + basis[j]
            second = f(e) - f(basis[i]) - f(basis[j]) + f(np.zeros(d))
            assert H[i, j] == pytest.approx(second, abs=1e-12)

"""Curvature at a point, against the dense Hessian, from functions, modules and objectives."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn.functional import mse_loss

import firstish
from firstish import FiniteSum, FunctionObjective, ModuleObjective, NumpyObjective

N = 12


def valley(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


X = torch.linspace(-1.0, 1.5, N, dtype=torch.float64)
V = torch.linspace(1.0, -0.5, N, dtype=torch.float64)
H = hessian(valley, X)


def test_a_product_of_a_function_is_that_of_the_dense_hessian():
    Hv = firstish.hvp(valley, X, V)
    torch.testing.assert_close(Hv, H @ V, rtol=1e-12, atol=1e-10)
    assert isinstance(firstish.hvp(valley, X.numpy(), V.numpy()), np.ndarray)


def test_a_product_has_the_form_of_x():
    def fun(p):
        return valley(torch.cat([p["a"], p["b"].reshape(-1)]))

    parts = [{"a": t[:4], "b": t[4:].view(2, 4)} for t in (X, V)]
    Hv = firstish.hvp(fun, *parts)
    assert Hv["b"].shape == (2, 4)
    flat = torch.cat([Hv["a"], Hv["b"].reshape(-1)])
    torch.testing.assert_close(flat, H @ V, rtol=1e-12, atol=1e-10)


def test_a_v_of_another_form_is_refused():
    with pytest.raises(ValueError, match=r"`hvp\(v=...\)` must be.*shape \(12,\) as in x, got"):
        firstish.hvp(valley, X, torch.ones(3))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda f, x: firstish.hvp(f, x, V), r"hvp\(fun, x, v\)"),
        (firstish.curvature, r"curvature\(fun, x, v\)"),
        (firstish.largest_eigenvalue, r"largest_eigenvalue\(fun, x\)"),
    ],
)
def test_errors_name_the_call_that_was_made(call, name):
    with pytest.raises(TypeError, match=rf"`{name}` takes a number, .*; `x\['b'\]` is str"):
        call(valley, {"a": X, "b": "c"})
    with pytest.raises(ValueError, match=rf"`{name}` got an empty x\. Pass"):
        call(valley, [])
    with pytest.raises(TypeError, match=rf"`{name}` calls `fun\(x\)`, but .* `fun\(\)`"):
        call(lambda: 1.0, X)
    with pytest.raises(TypeError, match=rf"`{name}`: fun must be callable, got int: 3"):
        call(3, X)
    objective = FunctionObjective(valley, X)
    with pytest.raises(ValueError, match=rf"`{name}` got a point of 3 numbers .* function of {N} "):
        call(objective, torch.ones(3))
    with pytest.raises(TypeError, match=rf"`{name}` got a module that is not .*\(ModuleObjective"):
        call(objective, nn.Linear(2, 1))
    with pytest.raises(
        TypeError, match=r"`FunctionObjective\(fun, example\)` takes .*`example` is"
    ):
        FunctionObjective(valley, None)


def test_curvature_is_the_rayleigh_quotient_along_v_or_the_gradient():
    expected = (V @ H @ V / (V @ V)).item()
    assert firstish.curvature(valley, X, V) == pytest.approx(expected, rel=1e-12)
    assert firstish.curvature(valley, X, 1e3 * V) == pytest.approx(expected, rel=1e-12)
    g = torch.func.grad(valley)(X)
    expected = (g @ H @ g / (g @ g)).item()
    assert firstish.curvature(valley, X) == pytest.approx(expected, rel=1e-12)


def test_curvature_along_nothing_is_refused():
    with pytest.raises(ValueError, match="the gradient at x is zero"):
        firstish.curvature(lambda x: (x**2).sum(), np.zeros(2))
    with pytest.raises(ValueError, match="v is zero"):
        firstish.curvature(lambda x: (x**2).sum(), np.ones(2), np.zeros(2))


def test_the_largest_eigenvalue_is_that_of_the_dense_hessian():
    values, vectors = torch.linalg.eigh(H)
    pair = firstish.largest_eigenvalue(valley, X, tol=1e-8)
    assert pair.value == pytest.approx(values[-1].item(), rel=1e-12)  # the error is squared
    assert abs(pair.vector @ vectors[:, -1]).item() == pytest.approx(1, abs=1e-6)
    assert pair.error <= 1e-8 * pair.value
    residual = H @ pair.vector - pair.value * pair.vector
    assert residual.norm().item() <= 2e-8 * pair.value
    assert pair.products <= N


def test_it_is_the_largest_and_not_the_largest_in_absolute_value():
    scales = torch.tensor([-100.0, 1.0, 2.0], dtype=torch.float64)
    pair = firstish.largest_eigenvalue(lambda x: (scales * x**2).sum() / 2, np.ones(3))
    assert pair.value == pytest.approx(2, rel=1e-6)
    assert isinstance(pair.vector, np.ndarray)


def test_a_cap_on_the_products_is_kept_and_the_error_tells():
    capped = firstish.largest_eigenvalue(valley, X, tol=1e-12, max_products=3)
    assert capped.products == 3
    assert capped.error > 1e-6
    assert capped.value <= torch.linalg.eigvalsh(H)[-1].item()


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_a_multiple_of_the_identity_takes_one_product(shift):
    pair = firstish.largest_eigenvalue(lambda x: shift * (x**2).sum() / 2, np.ones(5))
    assert pair.value == pytest.approx(shift, abs=1e-12)
    assert pair.products == 1


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def dense(model, inputs, targets):
    names = [name for name, _ in model.named_parameters()]
    shapes = [p.shape for p in model.parameters()]
    sizes = [p.numel() for p in model.parameters()]

    def loss(x):
        parts = [part.view(s) for part, s in zip(x.split(sizes), shapes, strict=True)]
        return mse_loss(
            functional_call(model, dict(zip(names, parts, strict=True)), inputs), targets
        )

    x = nn.utils.parameters_to_vector(model.parameters()).detach()
    return hessian(loss, x)


def test_a_module_with_its_loss_by_three_doors(model):
    inputs = torch.linspace(-1, 1, 30, dtype=torch.float64).view(10, 3)
    targets = inputs.prod(dim=1, keepdim=True)
    H = dense(model, inputs, targets)
    largest = torch.linalg.eigvalsh(H)[-1].item()
    v = torch.linspace(-1, 1, len(H), dtype=torch.float64)
    doors = [
        lambda m: mse_loss(m(inputs), targets),
        ModuleObjective(model, mse_loss, inputs, targets),
        FiniteSum(model, mse_loss, (inputs, targets), chunk_size=4),
    ]
    before = [p.clone() for p in model.parameters()]
    for fun in doors:
        torch.testing.assert_close(firstish.hvp(fun, model, v), H @ v, rtol=1e-9, atol=1e-12)
        pair = firstish.largest_eigenvalue(fun, model, tol=1e-7)
        assert pair.value == pytest.approx(largest, rel=1e-9)
        assert pair.vector.shape == v.shape
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_a_numpy_objective_by_differences():
    A = np.diag([1.0, 10.0, 100.0])
    objective = NumpyObjective(lambda x: 0.5 * x @ A @ x, lambda x: A @ x)
    root = math.sqrt(np.finfo(np.float64).eps)
    pair = firstish.largest_eigenvalue(objective, np.ones(3))
    assert pair.value == pytest.approx(100, rel=100 * root)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match=r"`largest_eigenvalue\(tol=...\)` must be positive"):
        firstish.largest_eigenvalue(valley, X, tol=0.0)
    with pytest.raises(ValueError, match=r"`largest_eigenvalue\(max_products=...\)`"):
        firstish.largest_eigenvalue(valley, X, max_products=0)

"""The noise mode itself: what it moves, by how much, and what it leaves alone."""

import copy

import numpy as np
import pytest
import torch
from noise import Noise
from tolerances import COARSE, bounded, rounded_otherwise, summed

x = torch.sin(torch.arange(1.0, 41.0, dtype=torch.float64))
A = torch.cos(torch.arange(1.0, 1601.0, dtype=torch.float64)).view(40, 40)
S = A @ A.T
ROUNDED = {
    "sum": lambda: x.sum(),
    "dot": lambda: x @ x,
    "matrix product": lambda: A @ x,
    "exp": lambda: x.exp(),
    "power": lambda: x**3,
    "product": lambda: 0.1 * x,
    "sum of two": lambda: x + A[0],
    "in place": lambda: x.clone().mul_(0.1),
    "float32": lambda: x.float().exp(),
    "two results": lambda: torch.linalg.eigh(S)[0],
    "list": lambda: torch._foreach_mul([x, x], 0.1)[1],
}
EXACT = {
    "copy": lambda: x.clone(),
    "deep copy": lambda: copy.deepcopy(x),
    "view": lambda: A.T[3:5],
    "choice": lambda: torch.where(x > 0, x, 0.0).clamp(max=0.5),
    "sign": lambda: -x.abs(),
    "power of two": lambda: 8 * x / 2,
    "whole numbers": lambda: torch.arange(9.0) @ torch.arange(9.0) / 4,
    "close difference": lambda: x - x * 1.0,
    "zero": lambda: (0 * x).exp() + (0 * A) @ x,
    "lost term": lambda: torch.add(x, A[0], alpha=1e-30),
    "draw": lambda: torch.randn(5, generator=torch.Generator().manual_seed(0)),
    "not finite": lambda: (x / 0).sum() + float("nan"),
}


def under(seed, function):
    with Noise(seed):
        return function()


def ulps(a, b):
    size = torch.maximum(a.abs(), b.abs())
    return float(((a - b).abs() / (torch.nextafter(size, 2 * size) - size)).max())


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_results_move_by_an_ulp(name, request):
    if request.config.getoption("--noise") is not None:
        pytest.skip("noise upon noise")
    plain, moved = ROUNDED[name](), [under(seed, ROUNDED[name]) for seed in range(8)]
    assert any(not torch.equal(plain, other) for other in moved)
    assert max(ulps(plain, other) for other in moved) <= 1


@pytest.mark.parametrize("name", EXACT)
def test_exact_results_stay(name):
    for seed in range(8):
        torch.testing.assert_close(
            under(seed, EXACT[name]), EXACT[name](), rtol=0, atol=0, equal_nan=True
        )


def test_the_same_operation_gives_the_same_bits():
    for function in ROUNDED.values():
        assert torch.equal(under(3, function), under(3, function))


def test_gradients_and_products_move_too(request):
    if request.config.getoption("--noise") is not None:
        pytest.skip("noise upon noise")

    def product():
        leaf = x.clone().requires_grad_()
        (g,) = torch.autograd.grad((leaf**3).sum(), leaf, create_graph=True)
        return torch.autograd.grad(g @ A[0], leaf)[0]

    plain, moved = product(), under(0, product)
    assert not torch.equal(plain, moved)
    torch.testing.assert_close(moved, plain, rtol=summed(5), atol=0)


def test_powers_of_two_factor_out():
    for function in (torch.sum, lambda v: A @ v, lambda v: 0.1 * v):
        for c in (-1.0, 2.0**-30, 2.0**40):
            assert torch.equal(under(1, lambda: function(c * x)), c * under(1, lambda: function(x)))  # noqa: B023


def bounds_of(factor):
    """The bounds of 40 steps x -> 1 + factor (x - 1) from 1, its fixed point."""

    def run(f):
        values = [np.ones(1)]
        for _ in range(40):
            values.append(f(values[-1]))
        return [(None, (value,)) for value in values]

    return bounded(run, [lambda v: factor * v - factor + 1])


def test_tolerances_grow_with_the_errors_of_the_recursion():
    """Errors halve or double from step to step; the fixed point is 1."""
    calm, wild = ([bounds[0] for *_, bounds in bounds_of(factor)] for factor in (0.5, 2.0))
    assert len(calm) == 41
    assert calm[-1] < 100 * summed(5)
    assert len(wild) < 35  # 2^27 ulps of 1e-16, a hundredfold, are 1e-6
    assert 0.1 * COARSE < wild[-1] <= COARSE


def test_a_function_rounded_otherwise_is_nearly_the_function():
    moved = rounded_otherwise(np.exp, 0)(np.linspace(1, 2, 20))
    np.testing.assert_allclose(moved, np.exp(np.linspace(1, 2, 20)), rtol=summed(2))

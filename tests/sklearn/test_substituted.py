"""f(x + T u) is that function, by autograd on the composition, at the price of f."""

import pytest
import torch
from linear_cases import SETTINGS, make

from firstish import FunctionObjective, LazyStep, PlaneStep, ScaledGradient, baselines, minimize
from firstish.loop import Limits, Run
from firstish.sklearn.substituted import Substituted


class Matrix:
    """T as a matrix."""

    def __init__(self, size):
        generator = torch.Generator().manual_seed(7)
        self.T = torch.eye(size) + 0.3 * torch.randn(size, size, generator=generator)

    def forward(self, u):
        return self.T @ u

    def transposed(self, g):
        return self.T.T @ g


def both(case="logistic", setting="all", order=2):
    """A linear model in other variables, and autograd's f of the same variables."""
    made = make(case, SETTINGS[setting])
    T = Matrix(made.size)
    x = torch.linspace(-0.5, 0.5, made.size)
    f = made.generic._fun
    composed = FunctionObjective(
        lambda u: f(x + T.T @ u), torch.zeros(made.size), product="double-backward", check=False
    )
    return Substituted(made.linear.at(x, order), T), composed, made


@pytest.mark.parametrize("case", ["logistic", "multinomial", "squares"])
def test_value_gradient_product_and_curvature_are_autograds(case):
    mine, theirs, made = both(case)
    generator = torch.Generator().manual_seed(8)
    u, v = torch.randn(2, made.size, generator=generator)
    for at in (torch.zeros_like(u), u):
        a, b = mine.at(at), theirs.at(at)
        assert a.value == pytest.approx(b.value, rel=1e-13)
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(a.hvp(v).vector, b.hvp(v).vector, rtol=1e-10, atol=1e-11)
        assert mine.at(at).curvature(v) == pytest.approx(b.curvature(v), rel=1e-11)
        a, b = a.along(v, 0.3), b.along(v, 0.3)
        assert a.value == pytest.approx(b.value, rel=1e-13)
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(a.x, at + 0.3 * v)
        torch.testing.assert_close(a.inner.x, mine.origin.x + mine.substitution.forward(a.x))


METHODS = [LazyStep(), PlaneStep(), ScaledGradient(), baselines.LBFGS()]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_methods_take_the_steps_they_take_on_autograds_f(method):
    mine, theirs, made = both("logistic", "decay", method.order)
    zero = torch.zeros(made.size)
    a, b = (minimize(f, zero, method=method, gtol=0.0, max_iterations=6) for f in (mine, theirs))
    assert a.iterations == 6
    torch.testing.assert_close(a.x, b.x, rtol=1e-8, atol=1e-9)
    assert a.oracle_calls == b.oracle_calls


def test_the_origin_is_not_evaluated_again():
    mine, _, made = both(order=1)
    origin = mine.origin
    _ = origin.value, origin.grad
    spent = origin.meter.copy()
    point = mine.at(mine.initial(), 1)
    _ = point.value, point.grad
    assert origin.meter.since(spent).passes == 0
    assert origin.meter.since(spent).oracle_calls == 0
    assert mine.at(torch.ones(made.size), 1).value != origin.value


def test_an_iteration_makes_the_passes_of_f():
    mine, _, made = both(order=1)
    plain = minimize(made.linear, torch.zeros(made.size), method=LazyStep(), max_iterations=6)
    other = minimize(mine, mine.initial(), method=LazyStep(), max_iterations=6)
    steps = [
        [b.passes - a.passes for a, b in zip(run.history[1:], run.history[2:], strict=False)]
        for run in (plain, other)
    ]
    assert steps[0] == steps[1] == [2.0] * len(steps[0])


def test_a_run_goes_on_from_a_snapshot_to_the_bit():
    mine, _, _ = both(order=1)
    whole = Run(mine, mine.initial(), LazyStep())
    for _ in range(3):
        whole.advance(Limits())
    again = Run(mine, mine.initial(), LazyStep(), resume=whole.snapshot())
    for run in (whole, again):
        for _ in range(3):
            run.advance(Limits())
    assert torch.equal(whole.point.inner.x, again.point.inner.x)
    assert whole.point.value == again.point.value


def test_the_error_of_a_product_is_seen_from_the_new_variables():
    made = make("logistic", SETTINGS["decay"], torch.float32)
    T = Matrix(made.size)
    T.T = 10 * T.T.float()
    v = torch.linspace(-1, 1, made.size, dtype=torch.float32)
    product = Substituted(made.linear.at(torch.zeros_like(v)), T).at(torch.zeros_like(v)).hvp(v)
    u = T.forward(v)
    inner = made.linear.at(torch.zeros_like(v)).hvp(u)
    wanted = inner.relative_error * inner.vector.norm() * u.norm() / v.norm() ** 2
    assert product.relative_error == 0
    assert product.absolute_error == pytest.approx(float(wanted), rel=1e-5)

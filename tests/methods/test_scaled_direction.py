"""Any direction, scaled: the user's own too."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from testbed import problems, run

from firstish import (
    AdamDirection,
    MomentumDirection,
    NonMonotone,
    PlaneStep,
    ScaledDirection,
    ScaledGradient,
    minimize,
)


@dataclass(frozen=True)
class Nothing:
    steps: int = 0


@dataclass(frozen=True)
class Towards:
    """-factor g, whatever the factor: the scale undoes it."""

    factor: float = 1.0

    def init(self, point):
        return Nothing()

    def direction(self, point, state):
        return -self.factor * point.grad, Nothing(state.steps + 1)


@given(problems())
def test_the_gradient_as_a_direction_is_the_cg_scaling(problem):
    options = {"gtol": 1e-8, "max_iterations": 8}
    ours, xs = run(problem.fun, problem.x, method=ScaledDirection(direction=Towards()), **options)
    theirs, ys = run(problem.fun, problem.x, method=ScaledGradient(scaling="CG"), **options)
    assert ours.iterations == theirs.iterations
    for x, y, row in zip(xs, ys, theirs.history, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6)
        if row.grad_norm < 1e-3:
            break


@pytest.mark.parametrize("factor", [1e-30, 2.0**40])
def test_the_length_of_the_direction_does_not_matter(factor):
    fun = lambda x: (torch.tensor([1.0, 7.0]) * x**2).sum() + torch.cos(x).sum()  # noqa: E731
    one, two = (
        minimize(fun, torch.ones(2), method=ScaledDirection(direction=Towards(c)), gtol=1e-8)
        for c in (1.0, factor)
    )
    torch.testing.assert_close(one.x, two.x, rtol=1e-10, atol=1e-10)
    assert one.iterations == two.iterations


def test_a_direction_that_climbs_is_replaced_by_the_gradient_for_that_step():
    fun = lambda x: (torch.tensor([1.0, 7.0]) * x**2).sum()  # noqa: E731
    method = ScaledDirection(direction=Towards(-1.0))
    result = minimize(fun, torch.ones(2), method=method, gtol=1e-8)
    assert result.success
    assert {row.scaling for row in result.history[:-1]} == {"gradient"}


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_a_direction_of_no_use_is_replaced_too(value):
    result = minimize(
        lambda x: (x**2).sum(), torch.ones(2), method=ScaledDirection(direction=Towards(value))
    )
    assert result.success


def test_every_step_of_scaled_adam_is_a_unit_step_on_softmax_regression():
    torch.manual_seed(0)
    A, labels = torch.randn(60, 5), torch.arange(60) % 3

    def fun(x):
        logits = A @ x.view(5, 3)
        return torch.nn.functional.cross_entropy(logits, labels) + 0.005 * (x @ x)

    for direction in (AdamDirection(), MomentumDirection()):
        method = ScaledDirection(direction=direction)
        result = minimize(fun, torch.zeros(15), method=method, gtol=1e-6)
        assert result.success
        assert {row.step_size for row in result.history[:-1]} == {1.0}
        assert result.oracle_calls == 2 + 4 * result.iterations


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ScaledDirection(direction="adam"), TypeError, r"direction=...\)`.*got 'adam'"),
        (lambda: ScaledDirection(direction=AdamDirection), TypeError, r"`AdamDirection\(\)`"),
        (lambda: ScaledDirection(sigma=-1.0), ValueError, r"`ScaledDirection\(sigma=...\)`"),
        (lambda: PlaneStep(s_nc=0.0), ValueError, r"`PlaneStep\(s_nc=...\)`.*got 0.0"),
        (lambda: PlaneStep(s_lpc=2e6), ValueError, r"`PlaneStep\(s_lpc=...\)`.*got 2000000"),
        (lambda: ScaledDirection(line_search=NonMonotone()), TypeError, r"Use a plain `Armijo"),
        (lambda: AdamDirection(betas=(0.9, 1.0)), ValueError, r"betas=...\)`.*got 1.0"),
        (lambda: AdamDirection(betas=(0.9,)), ValueError, r"must be two numbers"),
        (lambda: AdamDirection(eps=0.0), ValueError, r"`AdamDirection\(eps=...\)`"),
        (lambda: MomentumDirection(momentum=1.0), ValueError, r"momentum=...\)`.*got 1.0"),
    ],
)
def test_bad_settings_are_refused_at_construction(make, error, message):
    with pytest.raises(error, match=message):
        make()

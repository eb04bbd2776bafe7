"""A gradient that is wrong in one entry is found where a line search fails, and named."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize as scipy_minimize
from scipy.optimize import rosen, rosen_der

import firstish
from firstish import NumpyObjective
from firstish.bounds.box import Box
from firstish.objectives.gradient_check import wrong_entry

START = np.array([-1.2, 1.0, 0.8, -0.7, 0.9, 1.1, -0.7])
WRONG = {
    "half": lambda g: g / 2,
    "sign": lambda g: -g,
    "zero": lambda g: 0.0,
    "more": lambda g: 3 * g,
}


def wrong_at(entry, change):
    def jac(x):
        g = rosen_der(x)
        g[entry] = change(g[entry])
        return g

    return jac


def point(jac, x=START, fun=rosen):
    calls = []

    def counted(x):
        calls.append(x)
        return fun(x)

    here = NumpyObjective(counted, jac).at(torch.tensor(x, dtype=torch.float64))
    _ = here.grad
    return here, calls


@pytest.mark.parametrize("entry", range(len(START)))
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_entry_is_found_and_named(entry, name):
    here, calls = point(wrong_at(entry, WRONG[name]))
    found = wrong_entry(here)
    true = rosen_der(START)[entry]
    assert found.entry == entry
    assert found.gradient == WRONG[name](true)
    assert found.difference == pytest.approx(true, rel=1e-6)
    assert len(calls) <= 1 + 2 + 4 + 2 * math.ceil(math.log2(len(START)))


@pytest.mark.parametrize("x", [START, np.ones(7), np.full(7, 1 + 1e-9), 1e6 * START])
def test_a_right_gradient_is_not_suspected(x):
    here, calls = point(rosen_der, x)
    assert wrong_entry(here) is None
    assert len(calls) <= 1 + 6


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_a_kink_is_not_a_wrong_gradient(slope):
    here, _ = point(lambda x: slope * np.ones(2), np.zeros(2), lambda x: np.maximum(x, 0).sum())
    assert wrong_entry(here) is None


def test_f_is_not_evaluated_outside_of_the_bounds():
    here, calls = point(wrong_at(3, WRONG["half"]))
    lower = torch.full((7,), -torch.inf, dtype=torch.float64)
    lower[0], lower[5] = START[0], START[5]
    here.box = Box(lower, torch.full_like(lower, torch.inf))
    assert wrong_entry(here).entry == 3
    assert all((x >= lower.numpy()).all() for x in calls)


def test_a_gradient_by_differences_is_not_checked():
    objective = NumpyObjective(rosen, wrong_at(0, WRONG["half"]), jac_error=1e-8)
    assert wrong_entry(objective.at(torch.tensor(START))) is None


@pytest.mark.parametrize("method", ["lazy", "CGMR"])
def test_the_advice_of_a_run_names_the_entry(method):
    objective = NumpyObjective(rosen, wrong_at(1, WRONG["sign"]))
    result = firstish.minimize(objective, START, method=method)
    assert not result.success
    assert "The gradient contradicts f here: its entry 1 is " in result.message
    ours = scipy_minimize(
        rosen,
        START[:2],
        jac=wrong_at(0, WRONG["half"]),
        method=firstish.scipy_method,
        options={"stepper": method, "max_oracle_calls": 1000},
    )
    assert "The gradient contradicts f here: its entry 0 is " in ours.message


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1, 2.0])
def test_an_error_that_curvature_hides_is_found_by_shorter_differences(factor):
    """At the bottom of the valley |g| is 0.2 and the curvature 1000."""
    x = np.array([0.9923, 0.9852])
    for entry in range(2):
        here, _ = point(wrong_at(entry, lambda g: factor * g), x)
        assert wrong_entry(here).entry == entry


def test_a_jac_off_by_a_tenth_is_named_where_no_step_helps_any_more():
    """The wrong entry makes the whole gradient 0.1 in size at the true minimum of f."""
    x0, offset = np.zeros(2), np.array([0.0, 0.1])
    objective = NumpyObjective(lambda x: 1 + x @ x, lambda x: 2 * x + offset)
    result = firstish.minimize(objective, x0, max_oracle_calls=1000)
    assert not result.success
    assert "contradicts f here: its entry 1 is " in result.message


def test_an_entry_of_zero_is_named_though_the_run_converges():
    objective = NumpyObjective(rosen, wrong_at(1, WRONG["zero"]))
    with pytest.warns(UserWarning, match="entry 1 of x, but `jac` returns exactly 0 there"):
        firstish.minimize(objective, START, max_oracle_calls=1000)


def test_a_wrong_backward_is_found_too():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x**2).sum()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 2 * x * torch.tensor([1.0, -1.0])

    objective = firstish.FunctionObjective(Square.apply, torch.ones(2), product="difference")
    result = firstish.minimize(objective, torch.tensor([0.1, 2.0]))
    assert "its entry 1 is -4, but differences of f give 4" in result.message


def test_a_point_in_float32_is_checked_in_float32():
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float32)
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float32)  # other dtypes would raise
    here = firstish.FunctionObjective(lambda x: weights @ x**2, x).at(x)
    assert wrong_entry(here) is None
    assert here.at(x, 0).value == here.value


def test_a_loss_lost_in_the_rounding_of_its_terms_does_not_contradict_its_gradient():
    """A cross entropy near 0 is computed from numbers of size 1, whose rounding is its error."""
    model, inputs, labels = fitted(torch.float32)
    objective = firstish.ModuleObjective(model, torch.nn.functional.cross_entropy, inputs, labels)
    seen = []
    x = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    for scale in (1.0, 1.2, 1.5, 2.0, 3.0):
        here = objective.at(scale * x)
        seen.append(here.value)
        assert wrong_entry(here) is None
    assert min(seen) < 1e-7 < max(seen) < 1e-4


def test_a_loss_of_zero_is_not_a_wrong_gradient():
    here, _ = point(lambda x: np.full(2, 1e-30), np.zeros(2), lambda x: 0.0)
    assert wrong_entry(here) is None
    here, _ = point(lambda x: np.full(2, 1e-3), np.zeros(2), lambda x: 0.0)
    assert wrong_entry(here).gradient == 1e-3  # f shows that it is 0


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_a_wrong_entry_is_found_in_any_unit(unit):
    here, _ = point(
        lambda x: unit * wrong_at(2, WRONG["sign"])(x), fun=lambda x: float(unit * rosen(x))
    )
    assert wrong_entry(here).entry == 2


def fitted(dtype):
    """A network that has learnt three classes, up to a loss of 1e-5."""
    torch.manual_seed(0)
    inputs = torch.randn(60, 8, dtype=torch.float64)
    labels = (inputs @ torch.randn(8, 3, dtype=torch.float64)).argmax(1)
    layers = torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)
    model = torch.nn.Sequential(*layers).to(dtype)
    loss = firstish.ModuleObjective(
        model, torch.nn.functional.cross_entropy, inputs.to(dtype), labels
    )
    firstish.minimize(loss, model, gtol=1e-5)
    return model, inputs.to(dtype), labels

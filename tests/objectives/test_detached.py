"""A part of f that autograd does not know of is noticed, and nothing else is taken for one."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import minimize as scipy_minimize

import firstish
from firstish import FunctionObjective, minimize, scipy_method


def item(x):
    return x[0].item() ** 2 + (x[1] - 1) ** 2


def exponential(x):
    return math.exp(x[0].item()) + (x[1] - 1) ** 2


def numpy_part(x):
    return torch.as_tensor(np.sum(x[:1].detach().numpy() ** 2)) + (x[1] - 1) ** 2


@pytest.mark.parametrize("fun", [item, exponential, numpy_part])
def test_a_detached_part_is_named(fun):
    with pytest.warns(UserWarning, match="entry 0 of x, but its gradient there is exactly 0"):
        minimize(fun, [5.0, 4.0])


def test_the_entry_is_found_among_many():
    def fun(x):
        return ((x - 1) ** 2)[1:].sum() + 3 * x[0].item()

    with pytest.warns(UserWarning, match="entry 0 of x"):
        minimize(fun, torch.zeros(100, dtype=torch.float64))


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: (x[1] - 1) ** 2,  # it does not depend on x[0]
        lambda x: x[0] ** 2 + (x[1] - 1) ** 2,  # stationary in x[0] from the start
        lambda x: x[0] ** 3 + (x[1] - 1) ** 2,
        lambda x: x[0].abs() + (x[1] - 1) ** 2,  # a kink: torch's derivative there is 0
        lambda x: torch.relu(x[0]) + (x[1] - 1) ** 2,
        lambda x: 1e6 * (1 + 1e-3 * x[0] ** 2) + (x[1] - 1) ** 2,
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_no_detached_part_is_left_alone(fun, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        minimize(fun, torch.tensor([0.0, 4.0], dtype=dtype), gtol=1e-3)


def test_f_is_not_evaluated_outside_of_the_bounds():
    def fun(x):
        assert 0 <= x[0].item() <= 1
        return 0 * x[0] + (x[1] - 1) ** 2

    minimize(fun, [1.0, 4.0], bounds=([0, None], [1, None]))


def test_an_objective_of_ones_own_is_checked_too_and_the_counts_stay():
    objective = FunctionObjective(item, torch.zeros(2, dtype=torch.float64))
    x0 = torch.tensor([5.0, 4.0], dtype=torch.float64)
    with pytest.warns(UserWarning, match="entry 0"):
        result = firstish.minimize(objective, x0)
    assert result.oracle_calls == result.history[-1].oracle_calls
    assert result.passes == result.history[-1].passes


@pytest.mark.parametrize("fun", [lambda x: torch.round(x).sum(), lambda x: 3.0 + 0 * x.sum()])
def test_a_constant_function_is_no_silent_success(fun):
    with pytest.warns(UserWarning, match="integer-valued or piecewise constant"):
        minimize(fun, [0.3, 4.1])


@pytest.mark.parametrize("options", [{}, {"finite_diff_method": "3-point"}])
def test_finite_differences_of_steps_are_no_silent_success(options):
    with pytest.warns(UserWarning, match=r"larger differences \(`eps=`"):
        scipy_minimize(
            lambda x: np.floor(10 * x).sum(), [0.35], method=scipy_method, options=options
        )


@pytest.mark.parametrize("fun", [lambda x: (x**2).sum(), lambda x: 1 + (x**2).sum()])
def test_differences_that_cancel_at_a_minimum_are_right(fun):
    options = {"finite_diff_method": "3-point"}
    assert scipy_minimize(fun, np.zeros(3), method=scipy_method, options=options).success

"""What an iteration costs: value 1, gradient 1, product 2, each trial 1, nothing twice."""

import itertools
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from testbed import BOUNDED, CONVEX, make, problems, run

import firstish
from firstish import Armijo, FunctionObjective, ScaledGradient, Status
from firstish.scaling import Curvature

# The paper's method is what these tests are about, not the default one.
minimize = partial(firstish.minimize, method="CGMR")


def prices(result):
    calls = [row.oracle_calls for row in result.history]
    return [b - a for a, b in itertools.pairwise(calls)]


@pytest.mark.parametrize("kind", CONVEX)
@pytest.mark.parametrize("product", ["auto", "double-backward", "difference"])
def test_a_unit_step_iteration_costs_exactly_four(kind, product):
    problem = make(kind, 1)
    method = ScaledGradient(sigma=0)
    result, _ = run(problem.fun, problem.x, product=product, method=method, max_iterations=8)
    assert [row.step_size for row in result.history[:-1]] == [1.0] * 8
    assert result.history[0].oracle_calls == 2
    assert prices(result) == [4.0] * 8
    assert result.oracle_calls == result.history[-1].oracle_calls == 2 + 4 * 8


@settings(max_examples=40)
@given(problems(BOUNDED))
def test_every_trial_more_costs_one_more(problem):
    result, _ = run(problem.fun, problem.x, gtol=1e-4, max_iterations=30)
    assert prices(result) == [3.0 + row.trials for row in result.history[:-1]]


def test_backtracks_cost_one_each():
    # Newton's step on softplus from afar overshoots: -log would be infinite there.
    fun = lambda x: (x - torch.log(x)).sum()  # noqa: E731
    result, _ = run(fun, torch.tensor([9.0]), gtol=1e-10)
    first = result.history[0]
    assert result.success
    assert first.trials > 2
    assert first.step_size == 0.5 ** (first.trials - 1)
    assert prices(result)[0] == 3 + first.trials


def test_forward_trials_cost_one_each():
    fun = lambda x: -torch.cos(x).sum()  # noqa: E731
    result, _ = run(fun, torch.tensor([3.0]), gtol=1e-10)
    first = result.history[0]
    assert (first.curvature, first.step_size > 1) == (Curvature.NC, True)
    assert prices(result)[0] == 3 + first.trials


def test_the_function_runs_once_per_trial_and_never_for_the_accepted_value():
    calls = []

    def fun(x):
        calls.append(x.detach().clone())
        return problem.fun(x)

    problem = make("softmax", 2)
    at_rows = []
    result = minimize(
        FunctionObjective(fun, problem.x, product="double-backward", check=False),
        problem.x,
        method=ScaledGradient(sigma=0),
        max_iterations=6,
        callback=lambda p: at_rows.append(len(calls)),
    )
    assert [row.trials for row in result.history[:-1]] == [1] * 6
    assert at_rows == [2, 3, 4, 5, 6, 7]
    assert len({tuple(x.tolist()) for x in calls}) == len(calls) == 7


def test_a_point_counts_each_thing_once_and_what_it_stands_on():
    problem = make("gelu net", 0)
    point = problem.point(product="double-backward")
    meter = point.meter
    for ask, total in (
        (lambda: point.value, 1),
        (lambda: point.value, 1),
        (lambda: point.grad, 2),
        (lambda: point.grad_norm, 2),
        (lambda: point.angle(), 4),
        (lambda: point.angle(), 4),
        (lambda: point.value, 4),
    ):
        ask()
        assert meter.oracle_calls == total
    other = problem.point(product="double-backward")
    other.angle()
    assert other.meter.oracle_calls == 4


def test_rows_hold_the_point_and_the_step_taken_from_it():
    problem = make("quartic", 4)
    result, xs = run(problem.fun, problem.x, max_iterations=12, gtol=0)
    assert [row.iteration for row in result.history] == list(range(len(xs)))
    for k, row in enumerate(result.history):
        assert row.value == float(problem.fun(xs[k]))
        g = torch.autograd.functional.jacobian(problem.fun, xs[k])
        assert row.grad_norm == pytest.approx(float(g.norm()), rel=1e-12)
        if k + 1 < len(xs):
            taken = xs[k] - row.step_size * row.scale * g
            torch.testing.assert_close(xs[k + 1], taken, rtol=1e-10, atol=1e-10)
            assert row.actual_decrease == row.value - result.history[k + 1].value
    last = result.history[-1]
    assert (last.curvature, last.scale, last.step_size, last.trials) == (None,) * 4
    assert (last.value, last.grad_norm) == (result.value, result.grad_norm)
    seconds = [row.seconds for row in result.history]
    passes = [row.passes for row in result.history]
    assert seconds == sorted(seconds)
    assert all(b - a >= 4 for a, b in itertools.pairwise(passes))


@pytest.mark.parametrize("budget", [2, 3, 6, 7, 20])
def test_no_iteration_starts_once_the_budget_is_spent(budget):
    problem = make("softmax", 5)
    result, _ = run(
        problem.fun, problem.x, method=ScaledGradient(sigma=0), gtol=0, max_oracle_calls=budget
    )
    assert result.status is Status.MAX_ORACLE_CALLS
    assert result.oracle_calls >= budget > result.oracle_calls - 4


def test_a_failed_search_is_paid_for():
    wall = lambda x: torch.where(x == 1, x, x + 5).sum()  # noqa: E731
    method = ScaledGradient(line_search=Armijo(max_trials=9))
    result, xs = run(wall, torch.ones(1), method=method, gtol=0)
    assert result.status is Status.LINE_SEARCH
    assert (result.iterations, len(xs)) == (0, 1)
    assert result.oracle_calls == 2 + 2 + 9
    assert torch.equal(result.x, torch.ones(1))

"""Each test function against a formula written apart, its derivative, and its known minimum."""

import numpy as np
import pytest
import torch
from race.functions import CLASSICAL
from race_formulas import FORMULAS, STARTS
from scipy import optimize

PROBLEMS = {problem.name: problem for problem in CLASSICAL}
BY_FORMULA = sorted(PROBLEMS.keys() & FORMULAS.keys())


def fun(name):
    instance = PROBLEMS[name].build()

    def value(x):
        return instance.objective.evaluate(torch.from_numpy(x), False).loss.item()

    def grad(x):
        return instance.objective.at(torch.from_numpy(x), 1).grad.numpy()

    return value, grad, instance.x0.numpy()


def hessian(name):
    objective = PROBLEMS[name].build().objective

    def at(x):
        run = objective.evaluate(torch.from_numpy(x), True)
        (g,) = torch.autograd.grad(run.loss, run.leaves, create_graph=True)
        (H,) = torch.autograd.grad(g, run.leaves, torch.eye(len(x)), is_grads_batched=True)
        return H.numpy()

    return at


def test_there_are_enough_and_every_one_is_checked():
    assert len(PROBLEMS) == len(CLASSICAL) >= 36
    assert PROBLEMS.keys() == FORMULAS.keys() | (STARTS.keys() & {"osborne1", "osborne2"})


@pytest.mark.parametrize("name", BY_FORMULA)
def test_the_formula_written_apart_agrees_at_the_start_and_around_it(name):
    value, _, x0 = fun(name)
    rng = np.random.RandomState(1)
    for x in (x0, x0 * (1 + 0.05 * rng.rand(len(x0))) + 0.02 * rng.rand(len(x0))):
        assert value(x) == pytest.approx(FORMULAS[name](x), rel=1e-10, abs=1e-18)


@pytest.mark.parametrize("name", sorted(STARTS))
def test_the_value_at_the_start_is_the_published_one(name):
    value, _, x0 = fun(name)
    assert value(x0) == pytest.approx(STARTS[name], rel=5e-6)


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_the_gradient_is_that_of_a_finite_difference(name):
    value, grad, x0 = fun(name)
    rng = np.random.RandomState(2)
    x = x0 * (1 + 0.01 * rng.rand(len(x0))) + 0.01 * rng.rand(len(x0))
    v = rng.randn(len(x))
    h = 1e-6 * (1 + np.linalg.norm(x)) / np.linalg.norm(v)
    difference = (value(x + h * v) - value(x - h * v)) / (2 * h)
    slope = grad(x) @ v
    scale = np.linalg.norm(grad(x)) * np.linalg.norm(v)
    rounding = 16 * np.finfo(float).eps * abs(value(x)) / h  # a few units in the last place of f
    assert difference == pytest.approx(slope, abs=2e-5 * scale + rounding)


# On the first three SciPy's trust region walks into another valley than the one in print, and BFGS
# into that; on the others BFGS is quicker.
BFGS = {"biggs-exp6", "chebyquad10", "tointgss"}
BFGS |= {"powell-badly-scaled", "brown-badly-scaled", "dqdrtic", "osborne1"}


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_a_strong_solver_reaches_the_reference_from_the_published_start(name):
    value, grad, x0 = fun(name)
    problem = PROBLEMS[name]
    if name in BFGS:
        found = optimize.minimize(value, x0, jac=grad, method="BFGS", options={"gtol": 1e-12})
    else:
        found = optimize.minimize(
            value,
            x0,
            jac=grad,
            hess=hessian(name),
            method="trust-exact",
            options={"gtol": 1e-10, "maxiter": 2000},
        )
    gap = (found.fun - problem.reference) / (value(x0) - problem.reference)
    assert abs(gap) <= 1e-10


@pytest.mark.parametrize("name", sorted(n for n, p in PROBLEMS.items() if p.published is not None))
def test_the_reference_has_the_published_digits(name):
    problem = PROBLEMS[name]
    assert problem.reference == pytest.approx(problem.published, rel=2e-6)


@pytest.mark.parametrize("name", sorted(n for n, p in PROBLEMS.items() if p.lowest is not None))
def test_a_lowest_minimum_is_lower(name):
    assert PROBLEMS[name].lowest < PROBLEMS[name].reference

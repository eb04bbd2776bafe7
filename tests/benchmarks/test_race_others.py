"""The counter around SciPy and torch, and what a run through it leaves."""

import math

import numpy as np
import pytest
import torch
from race import run_others, run_ours
from race.catalogue import PROBLEMS
from race.counted import REMEMBERED, Counted, Enough
from race.limits import Finish
from race.peers import PEERS
from race.peers.differentiable import differentiable
from race.peers.scipy_solvers import GRADIENTS_ONLY, SOLVERS
from race.problem import function
from scipy import optimize

import firstish
from firstish.problems.base import Instance

DEEP = Finish(max_calls=2000, max_seconds=math.inf, value=1e-12, grad_norm=0.0)


def rosenbrock(x):
    a, b = x.unbind()
    return (1 - a) ** 2 + 100 * (b - a**2) ** 2


def instance():
    return function(rosenbrock, torch.tensor([-1.2, 1.0]))


def counted(max_calls=1000.0, objective=None, products=True):
    objective = instance().objective if objective is None else objective
    return Counted(objective, torch.float64, products, max_calls, 60.0)


X, Y, V = np.array([-1.2, 1.0]), np.array([0.5, 0.25]), np.array([1.0, -2.0])


def test_derivatives_are_scipys_own():
    f = counted()
    assert f.value(X) == pytest.approx(optimize.rosen(X))
    assert f.grad(X) == pytest.approx(optimize.rosen_der(X))
    assert f.hessp(X, V) == pytest.approx(optimize.rosen_hess(X) @ V)
    assert f.hessp(X, Y) == pytest.approx(optimize.rosen_hess(X) @ Y)  # the graph is still there


def test_the_weight_decay_is_in_all_three():
    objective = firstish.FunctionObjective(rosenbrock, torch.zeros(2), weight_decay=3.0)
    f = counted(objective=objective)
    assert f.value(X) == pytest.approx(optimize.rosen(X) + 1.5 * X @ X)
    assert f.grad(X) == pytest.approx(optimize.rosen_der(X) + 3 * X)
    assert f.hessp(X, V) == pytest.approx(optimize.rosen_hess(X) @ V + 3 * V)


def test_a_linear_model_counts_as_a_function_does():
    linear = PROBLEMS["digits-logistic"].build()
    assert isinstance(linear.objective, firstish.LinearModel)
    f = counted(objective=linear.objective)
    x = linear.x0.numpy().copy()
    v = np.linspace(-1, 1, x.size)
    Hv, h = f.hessp(x, v), 1e-5
    assert f.calls == 4
    assert np.allclose(f.hessp(x, 2 * v), 2 * Hv)
    assert f.calls == 6
    difference = (f.grad(x + h * v) - f.grad(x - h * v)) / (2 * h)
    assert np.allclose(Hv, difference, atol=1e-8)
    slope = (f.value(x + h * v) - f.value(x - h * v)) / (2 * h)
    assert slope == pytest.approx(f.grad(x) @ v, rel=1e-6)


@pytest.mark.parametrize(
    ("asked", "calls"),
    [
        ("f", 1),
        ("g", 2),  # a gradient needs its value
        ("fg", 2),
        ("gf", 2),
        ("ffgg", 2),  # the same x is not counted twice
        ("h", 4),
        ("hh", 6),  # but each product is
        ("fghh", 6),
        ("fgFGfg", 4),  # nor after another point in between
        ("FfG", 3),
    ],
)
def test_every_evaluation_counts_once(asked, calls):
    f = counted()
    ask = {"f": f.value, "g": f.grad, "h": lambda x: f.hessp(x, V)}
    for letter in asked:
        ask[letter.lower()](Y if letter.isupper() else X)
    assert f.calls == calls


def test_points_long_past_are_forgotten_and_counted_again():
    f = counted()
    for k in range(REMEMBERED + 1):
        f.value(X + k)
    f.value(X)
    assert f.calls == REMEMBERED + 2


def test_an_array_that_scipy_writes_to_is_a_new_point():
    f, x = counted(), X.copy()
    first = f.value(x)
    x += 1
    assert f.value(x) != first
    assert f.calls == 2


def test_nothing_is_evaluated_beyond_the_budget():
    f = counted(max_calls=3)
    f.grad(X)
    f.value(Y)
    with pytest.raises(Enough, match="MAX_ORACLE_CALLS"):
        f.grad(Y)
    assert f.calls == 3


@pytest.mark.parametrize("name", SOLVERS)
def test_a_run_takes_scipys_own_iterates(name):
    method, options = SOLVERS[name]
    seen = []
    optimize.minimize(
        optimize.rosen,
        X,
        jac=optimize.rosen_der,
        hessp=None if method in GRADIENTS_ONLY else optimize.rosen_hess_prod,
        method=method,
        options={**options, "maxiter": 12},
        callback=lambda intermediate_result: seen.append(optimize.rosen(intermediate_result.x)),
    )
    best = np.minimum.accumulate([optimize.rosen(X), *seen])
    trace = run_others.run(instance(), name, DEEP).trace
    expected = list(dict.fromkeys(best))
    assert trace.values[: len(expected)] == pytest.approx(expected, rel=1e-6)


def test_lbfgsb_costs_two_calls_an_evaluation():
    f = optimize.minimize(
        optimize.rosen,
        X,
        jac=optimize.rosen_der,
        method="L-BFGS-B",
        options={**SOLVERS["scipy-lbfgsb"][1], "maxiter": 20},
    )
    outcome = run_others.run(instance(), "scipy-lbfgsb", DEEP)
    # The same number of calls until the value that SciPy alone had after 20 iterations.
    at = next(k for k, v in enumerate(outcome.trace.values) if v <= f.fun * (1 + 1e-6))
    assert outcome.trace.calls[at] == 2 * f.nfev


def test_torchs_lbfgs_takes_the_steps_of_the_baseline_at_the_same_price():
    theirs = run_others.run(instance(), "torch-lbfgs", DEEP)
    ours = run_ours.run(instance(), firstish.baselines.LBFGS(), DEEP)
    assert theirs.status == ours.status == "TARGET"
    assert theirs.trace.values == ours.trace.values
    assert theirs.trace.calls == ours.trace.calls


def skip_if_absent(name):
    package = run_others.missing_package(name)
    if package:
        pytest.skip(f"{package} is not installed: pip install '.[bench]'")


# The share of Adam depends on the budget, so a short run of this one does not begin a long one.
@pytest.mark.parametrize("name", [n for n in run_others.NAMES if n != "adam-lbfgs"])
def test_a_run_ends_at_the_target_or_the_budget(name):
    skip_if_absent(name)
    done = run_others.run(instance(), name, DEEP)
    assert done.status == "TARGET"
    assert done.trace.values[-1] <= 1e-12 < done.trace.values[-2]
    short = run_others.run(instance(), name, Finish(20, 60.0, 1e-12, 0.0))
    assert short.status == "MAX_ORACLE_CALLS"
    assert 20 <= short.calls <= 21
    assert short.trace.values == done.trace.values[: len(short.trace.values)]


def test_autograd_gets_the_counted_derivatives():
    f = counted()
    x = torch.tensor(X, requires_grad=True)
    value = differentiable(f, x)
    assert (value.item(), f.calls) == (pytest.approx(optimize.rosen(X)), 1)
    (g,) = torch.autograd.grad(3 * value, x, create_graph=True)
    assert g.detach().numpy() == pytest.approx(3 * optimize.rosen_der(X))
    assert f.calls == 2
    (Hv,) = torch.autograd.grad(g, x, torch.tensor(V))
    assert Hv.numpy() == pytest.approx(3 * optimize.rosen_hess(X) @ V)
    assert f.calls == 4


def test_adam_comes_first_and_takes_its_share():
    f = counted(max_calls=30)
    seen = []
    with pytest.raises(Enough):
        PEERS["adam-lbfgs"].solve(f, X, lambda x: seen.append((x.copy(), f.calls, f.grad(x))))
    x = torch.tensor(X)
    adam = torch.optim.Adam([x])
    for after, calls, _ in seen[:4]:
        assert calls < 30 / 3
        x.grad = torch.from_numpy(optimize.rosen_der(x.numpy()))
        adam.step()
        assert after == pytest.approx(x.numpy(), rel=1e-12)


def test_a_package_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr("race.peers.base.util.find_spec", lambda name: None)
    assert run_others.missing_package("torchmin-bfgs") == "pytorch-minimize"
    assert "not installed" in run_others.setting("torchzero-bfgs")


def test_pytorch_minimize_takes_torchs_lbfgs_steps():
    # The same formulas and search: one checks the counter of the other.
    skip_if_absent("torchmin-lbfgs")
    names = "torchmin-lbfgs", "torch-lbfgs"
    theirs, torchs = (run_others.run(instance(), name, DEEP) for name in names)
    assert theirs.trace.calls[:10] == torchs.trace.calls[:10]
    assert theirs.trace.values[:10] == pytest.approx(torchs.trace.values[:10], rel=1e-6)


def test_ours_and_scipys_pay_the_same_for_the_start():
    method = firstish.ScaledGradient()
    for outcome in (
        run_ours.run(instance(), method, DEEP),
        run_others.run(instance(), "scipy-lbfgsb", DEEP),
    ):
        assert outcome.trace.calls[0] == 2
        assert outcome.trace.values[0] == pytest.approx(24.2)


def test_a_method_that_breaks_is_an_outcome():
    def fails(x):
        if float(x.detach().abs().max()) > 3:
            raise RuntimeError("outside")
        return -x.sum()

    x0 = torch.zeros(2)
    broken = Instance(objective=firstish.FunctionObjective(fails, x0), x0=x0, rows=1)
    goal = Finish(1000, 60.0, -1e9, 0.0)
    ours = run_ours.run(broken, firstish.baselines.FixedStep(step_size=1.0), goal)
    theirs = run_others.run(broken, "scipy-lbfgsb", goal)
    for outcome in (ours, theirs):
        assert outcome.status == "FAILED: RuntimeError: outside"
        assert outcome.trace.values[0] == 0.0

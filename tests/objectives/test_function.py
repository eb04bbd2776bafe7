"""Points evaluate as far as they are asked, once; what is counted is what was done."""

from collections import Counter
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import firstish
from firstish import Armijo, FunctionObjective, ModuleObjective, ScaledGradient
from firstish.objectives import Meter, Product

# The paper's method is what these tests are about, not the default one.
minimize = partial(firstish.minimize, method="CGMR")


class _Back(torch.autograd.Function):
    """The backward of `_Counted`, an operation of its own so that its backward counts too."""

    @staticmethod
    def forward(ctx, grad, events):
        ctx.events = events
        events["backward"] += 1
        return grad.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.events["double"] += 1
        return grad, None


class _Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, events):
        ctx.events = events
        events["forward"] += 1
        return z.clone()

    @staticmethod
    def backward(ctx, grad):
        return _Back.apply(grad, ctx.events), None


class CountingMLP(nn.Module):
    """A small net that counts every execution of its forward, backward and double backward."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)
        self.events = Counter()

    def forward(self, inputs):
        return self.last(_Counted.apply(self.first(inputs).tanh(), self.events))


@pytest.fixture
def data():
    return torch.randn(20, 4), torch.randn(20, 2)


@pytest.fixture
def bare(data):
    """What one forward, one backward with a graph and one product really run, bare autograd."""
    model, (inputs, targets) = CountingMLP(), data
    loss = mse_loss(model(inputs), targets)
    parameters = list(model.parameters())
    g = torch.autograd.grad(loss, parameters, create_graph=True)
    torch.autograd.grad(g, parameters, [t.detach() for t in g])
    return Counter(model.events)


def per_iteration(snapshots):
    return [after - before for before, after in pairwise(snapshots)]


def test_bare_autograd_runs_the_forward_graph_once_more_in_a_product(bare):
    assert bare == Counter(forward=1, backward=2, double=1)  # a product is 2 passes


def test_a_unit_step_of_minimize_is_one_forward_one_backward_one_product(data, bare):
    model = CountingMLP()
    snapshots = []
    result = minimize(
        ModuleObjective(model, mse_loss, *data),
        model,
        max_iterations=12,
        callback=lambda progress: snapshots.append(Counter(model.events)),
    )
    assert [(row.step_size, row.trials) for row in result.history[:-1]] == [(1.0, 1)] * 12
    assert per_iteration(snapshots) == [bare] * 11


@pytest.mark.parametrize(("reuse", "extra"), [(True, 0), (False, 1)])
def test_a_unit_step_of_the_optimizer_is_the_same_and_one_forward_more_without_reuse(
    data, bare, reuse, extra
):
    model, (inputs, targets) = CountingMLP(), data
    optimizer = firstish.ScaledGD(model.parameters(), reuse_value=reuse, method="CGMR")
    snapshots, passes = [], []
    for _ in range(8):
        optimizer.step(lambda: mse_loss(model(inputs), targets))
        assert (optimizer.last_step.step_size, optimizer.last_step.trials) == (1.0, 1)
        snapshots.append(Counter(model.events))
        passes.append(optimizer.last_step.passes)
    each = [bare + Counter(forward=extra)] * 7
    if reuse:  # the second step looks whether the promise is kept, and builds its graph again
        each[0] = bare + Counter(forward=2, backward=1)
    assert per_iteration(snapshots) == each
    # A row is written when f and g are known; from one to the next lies a whole iteration.
    assert {b - a for a, b in pairwise(passes[2:])} == {4 + extra}


@pytest.mark.parametrize(("reuse", "evaluations"), [(True, 2), (False, 3)])
def test_a_closure_that_calls_backward_runs_once_per_point_and_once_for_the_difference(
    data, reuse, evaluations
):
    model, (inputs, targets) = CountingMLP(), data
    optimizer = firstish.ScaledGD(model.parameters(), reuse_value=reuse, method="CGMR")

    def closure():
        loss = mse_loss(model(inputs), targets)
        loss.backward()
        return loss

    snapshots, passes = [], []
    for _ in range(6):
        optimizer.step(closure)
        assert optimizer.last_step.trials == 1
        snapshots.append(Counter(model.events))
        passes.append(optimizer.last_step.passes)
    each = [Counter(forward=evaluations, backward=evaluations)] * 5
    if reuse:  # the second step looks whether the promise is kept
        each[0] = Counter(forward=evaluations + 1, backward=evaluations + 1)
    assert per_iteration(snapshots) == each
    assert {b - a for a, b in pairwise(passes[2:])} == {each[-1].total()}


@pytest.mark.parametrize("product", ["auto", "double-backward", "difference"])
@pytest.mark.parametrize("initial_step", [1.0, 4.0])
def test_passes_are_the_executions_and_oracle_calls_the_papers_price(data, product, initial_step):
    model = CountingMLP()
    method = ScaledGradient(line_search=Armijo(initial_step=initial_step))
    objective = ModuleObjective(model, mse_loss, *data, product=product)
    result = minimize(objective, model, method=method, max_iterations=10)
    trials = sum(row.trials for row in result.history[:-1])
    assert (trials > 10) == (initial_step > 1)  # refused trials are covered as well
    assert result.passes == model.events.total()
    values, gradients, products = 1 + trials, 11, 10
    assert result.oracle_calls == values + gradients + 2 * products


def test_gauss_newton_runs_its_three_passes_and_no_gradient_graph(data):
    model = CountingMLP()
    objective = ModuleObjective(model, mse_loss, *data, product="gauss-newton", check=False)
    point = objective.at(objective.initial())
    _ = point.grad
    assert model.events == Counter(forward=1, backward=1)
    _ = point.hvp(point.grad)
    # J'u with a graph, its transpose for Jv, and J' of the rest.
    assert model.events == Counter(forward=1, backward=3, double=1)
    assert point.meter.passes == model.events.total()


def test_a_refused_trial_costs_one_forward_and_nothing_else(data):
    model = CountingMLP()
    objective = ModuleObjective(model, mse_loss, *data, check=False)
    _ = objective.at(objective.initial()).value
    assert model.events == Counter(forward=1)


def counted(fun):
    calls = Counter()

    def f(x):
        calls["fun"] += 1
        return fun(x)

    return f, calls


def test_a_point_is_evaluated_as_far_as_it_is_asked_and_once():
    f, calls = counted(lambda x: (x**4).sum())
    x = torch.tensor([1.0, 2.0])
    point = FunctionObjective(f, x, product="double-backward", check=False).at(x)
    assert calls["fun"] == 0
    assert (point.value, point.value) == (17.0, 17.0)
    assert (point.meter.oracle_calls, point.meter.passes) == (1, 1)
    assert point.grad.tolist() == point.grad.tolist() == [4.0, 32.0]
    assert (point.meter.oracle_calls, point.meter.passes) == (2, 2)
    assert point.hvp(point.grad).vector.tolist() == [48.0, 48.0 * 32]
    assert point.hvp(point.grad) is point.hvp(point.grad)
    assert (point.meter.oracle_calls, point.meter.passes) == (4, 4)
    assert calls["fun"] == 1


def test_a_second_product_at_the_same_point_evaluates_again_and_says_so():
    f, calls = counted(lambda x: (x**4).sum())
    x = torch.tensor([1.0, 2.0])
    point = FunctionObjective(f, x, product="double-backward", check=False).at(x)
    _ = point.hvp(point.grad)
    assert point.hvp(torch.tensor([1.0, 0.0])).vector.tolist() == [12.0, 0.0]
    assert (point.meter.oracle_calls, point.meter.passes) == (6, 8)
    assert calls["fun"] == 2


def test_asking_the_gradient_first_counts_the_value_too():
    x = torch.ones(2)
    point = FunctionObjective(lambda x: (x**2).sum(), x, check=False).at(x)
    assert point.grad_norm == pytest.approx(8**0.5)
    assert point.meter.oracle_calls == 2


def test_curvature_is_v_dot_Hv():
    x, v = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0])
    point = FunctionObjective(lambda x: (x**4).sum() + x[0] * x[1], x).at(x)
    assert point.curvature(v) == pytest.approx(12 * 9 + 48 - 2 * 3)


def test_a_point_told_value_runs_without_a_graph_and_can_still_be_asked():
    losses = []

    def f(x):
        losses.append((x**4).sum())
        return losses[-1]

    x = torch.tensor([1.0, 2.0])
    objective = FunctionObjective(f, x, check=False)
    point = objective.at(x, 0)
    assert point.value == 17.0
    assert not losses[0].requires_grad
    assert point.grad.tolist() == [4.0, 32.0]
    assert point.meter.passes == 3  # the forward is made again, and counted


def test_two_graphs_of_one_function_live_side_by_side():
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 3.0])
    objective = FunctionObjective(lambda x: (x**4).sum(), x, product="double-backward", check=False)
    one, two = objective.at(x), objective.at(y)
    assert (one.value, two.value) == (17.0, 97.0)
    assert one.grad.tolist() == [4.0, 32.0]
    assert two.grad.tolist() == [32.0, 108.0]
    assert one.hvp(one.grad).vector.tolist() == [48.0, 48.0 * 32]
    assert objective.meter.passes == 6


class NumpyPoint(firstish.Point):
    """|Ax - b|^2 / 2, by NumPy alone."""

    def __init__(self, objective, x, order):
        super().__init__(x, objective.meter, order)
        self.objective = objective

    @property
    def eps(self):
        return float(np.finfo(np.float64).eps)

    def at(self, x, order=2):
        return self.objective.at(x, order)

    def _residual(self):
        return self.objective.A @ self.x.numpy() - self.objective.b

    def _value(self):
        r = self._residual()
        return float(r @ r / 2)

    def _gradient(self):
        return torch.from_numpy(self.objective.A.T @ self._residual())

    def _product(self, v):
        A = self.objective.A
        return Product(torch.from_numpy(A.T @ (A @ v.numpy())))


class NumpyObjective:
    def __init__(self, A, b):
        self.A, self.b, self.meter = A, b, Meter()

    def at(self, x, order=2):
        return NumpyPoint(self, x, order)


def test_an_objective_of_the_users_own_takes_the_same_steps():
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((12, 4)), rng.standard_normal(12)
    result = minimize(NumpyObjective(A, b), torch.zeros(4), gtol=1e-9)
    assert result.success
    np.testing.assert_allclose(
        result.x.numpy(), np.linalg.lstsq(A, b, rcond=None)[0], rtol=0, atol=1e-9
    )
    At, bt = torch.from_numpy(A), torch.from_numpy(b)
    ours = minimize(lambda x: ((At @ x - bt) ** 2).sum() / 2, torch.zeros(4), gtol=1e-9)
    assert [r.scaling for r in ours.history] == [r.scaling for r in result.history]
    assert ours.oracle_calls == result.oracle_calls
    assert result.oracle_calls == 2 + 4 * result.iterations


def test_an_objective_is_recognised_by_its_at():
    assert isinstance(NumpyObjective(np.eye(2), np.ones(2)), firstish.Objective)
    assert not isinstance(lambda x: x, firstish.Objective)

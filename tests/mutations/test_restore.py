"""What evaluations must leave as it was: graphs, parameters, `.grad`, buffers and random state."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

import firstish
from firstish import Armijo, FunctionObjective, ScaledGD, ScaledGradient
from firstish.objectives.flatten import Layout

# The paper's method is what these tests are about, not the default one.
minimize = partial(firstish.minimize, method="CGMR")


def test_a_write_invalidates_the_graphs_of_the_old_values():
    p = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = (p**3).sum()
    Layout([p], "test").write(torch.tensor([5.0, 7.0]), [p])
    assert p.tolist() == [5.0, 7.0]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, p)  # written through .data it would silently be 3 * 5^2, 3 * 7^2


class Average(nn.Module):
    """A running mean that takes no part in the output."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("layer", [Average, lambda: nn.BatchNorm1d(4)], ids=["average", "norm"])
def test_a_step_updates_buffers_once_however_many_trials_it_makes(layer, reuse):
    model = nn.Sequential(nn.Linear(3, 4), layer(), nn.GELU(), nn.Linear(4, 1))
    inputs, targets = torch.randn(9, 3), torch.randn(9, 1)
    twin = copy.deepcopy(model)
    optimizer = ScaledGD(model.parameters(), lr=64.0, reuse_value=reuse)
    optimizer.step(lambda: nn.functional.mse_loss(model(inputs), targets))
    assert optimizer.last_step.trials > 2
    twin(inputs)
    if reuse:  # the accepted point is the next step's first, and is committed with this one
        twin.load_state_dict({**twin.state_dict(), **dict(model.named_parameters())})
        twin(inputs)
    for mine, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.filterwarnings("ignore:.*draws random numbers:UserWarning")
def test_every_evaluation_sees_the_same_dropout_mask():
    drop = nn.Dropout(0.5)
    A = torch.randn(20, 5)
    fun = lambda x: ((drop(A) @ x - 1) ** 2).mean() + 0.1 * (x @ x)  # noqa: E731
    objective = FunctionObjective(fun, torch.zeros(5))
    values = []
    for _ in range(3):
        torch.rand(7)  # the world goes on between evaluations
        before = torch.get_rng_state()
        values.append(objective.at(torch.ones(5)).value)
        assert torch.equal(torch.get_rng_state(), before)
    assert values == [values[0]] * 3
    options = {"method": ScaledGradient(sigma=0), "gtol": 1e-8}
    result = minimize(objective, torch.zeros(5), callback=lambda p: torch.rand(1), **options)
    assert result.success


def test_refused_trials_leave_the_parameters_as_they_were():
    p = nn.Parameter(torch.tensor([0.1, 0.2, 0.3]))
    start = p.detach().clone()

    def wall():
        return (p * p).sum() + (0.0 if torch.equal(p.detach(), start) else 5.0)

    optimizer = ScaledGD([p], method=ScaledGradient(line_search=Armijo(max_trials=5)), check=False)
    with pytest.warns(UserWarning, match="did not move"):
        optimizer.step(wall)
    assert torch.equal(p.detach(), start)


def test_an_exception_in_a_trial_leaves_the_parameters_as_they_were():
    p = nn.Parameter(torch.tensor([0.1, 0.2, 0.3]))
    start = p.detach().clone()

    def trap():
        if not torch.equal(p.detach(), start):
            raise KeyboardInterrupt
        return (p * p).sum()

    with pytest.raises(KeyboardInterrupt):
        ScaledGD([p], product="double-backward").step(trap)
    assert torch.equal(p.detach(), start)


def test_grad_is_left_alone():
    p = nn.Parameter(torch.tensor([0.1, 0.2, 0.3]))
    p.grad = mine = torch.tensor([7.0, 8.0, 9.0])
    ScaledGD([p]).step(lambda: (p**4).sum())
    assert p.grad is mine
    assert mine.tolist() == [7.0, 8.0, 9.0]


def test_a_step_leaves_the_random_state_of_one_evaluation():
    p, drop = nn.Parameter(torch.ones(4)), nn.Dropout(0.5)
    closure = lambda: (drop(p) ** 4).sum()  # noqa: E731
    torch.manual_seed(3)
    closure()
    after_one = torch.get_rng_state()
    torch.manual_seed(3)
    ScaledGD([p], lr=4.0).step(closure)
    assert torch.equal(torch.get_rng_state(), after_one)


@pytest.mark.parametrize("reuse", [False, True])
def test_forward_tracking_through_the_closure_takes_the_steps_of_minimize(reuse):
    x0 = torch.tensor([0.01, 0.02])
    fun = lambda x: ((x**2 - 1) ** 2).sum() / 4 + 0.1 * x.prod()  # noqa: E731
    p = nn.Parameter(x0.clone())
    optimizer = ScaledGD([p], reuse_value=reuse, method="CGMR")
    xs = []
    result = minimize(fun, x0, gtol=0, max_iterations=6, callback=lambda q: xs.append(q.x.clone()))
    assert result.history[0].step_size > 1  # the newest graph is not the accepted one's
    for x in xs:
        optimizer.step(lambda: fun(p))
        assert torch.equal(p.detach(), x)

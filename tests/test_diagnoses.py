"""What a run or a step that failed says of the reason: it must be the true one."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import firstish
from firstish import Armijo, FunctionObjective, ScaledGD, ScaledGradient
from firstish.line_search import LineFunction
from firstish.methods import Failure
from firstish.result import Status


class Terms(torch.autograd.Function):
    """|x|^2 as a float32 loss computes it that subtracts terms of size 1; an exact gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (1 + (x**2).sum()) - 1

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * x


@pytest.mark.parametrize("method", ["lazy", "CGMR"])
@pytest.mark.parametrize("start", [1e-5, 1e-4, 3e-4, 1e-3])
def test_a_loss_at_its_floor_ends_in_rounding_not_in_a_wrong_gradient(method, start):
    x0 = torch.full((3,), start)
    objective = FunctionObjective(Terms.apply, x0, product="difference")
    result = firstish.minimize(objective, x0, method=method, gtol=0)
    assert "gradient contradicts" not in result.message
    assert result.status in (Status.ROUNDING, Status.CONVERGED)


def line(changes, slope=-1e-9):
    """phi with f(x) = 1e-10 and these changes of f by trial, in float32."""

    class Trial:
        linear = None

        def __init__(self, alpha):
            self.value = 1e-10 + changes(alpha)

        def slope(self):
            return slope

        def moved(self):
            return True

        def usable(self):
            return True

    return LineFunction(1e-10, slope, Trial, eps=2.0**-23)


SCATTER = {1: 1.2e-10, 0.5: 2.4e-10, 0.25: 1.2e-10, 0.125: 2.4e-10, 0.0625: 1.2e-10}


@pytest.mark.parametrize(
    ("changes", "unresolved"),
    [
        (lambda a: SCATTER.get(a, 1.2e-10), True),  # values that scatter without a trend
        (lambda a: 1e-9 * a, False),  # f rises in proportion: the slope is wrong, in small units
        (lambda a: 1e-9 * a + 1e-10 * a * a, False),
        (lambda a: 1e-3, False),  # a jump that rounding does not explain
    ],
    ids=["scatter", "kink", "smooth", "jump"],
)
def test_rounding_is_the_reason_only_if_it_explains_the_trials(changes, unresolved):
    found = Armijo(max_trials=5).backtrack(line(changes))
    assert found.trial is None
    assert found.unresolved == unresolved


def tanh_net():
    torch.manual_seed(0)
    x = torch.linspace(-3, 3, 40)[:, None]
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, lambda: mse_loss(model(x), torch.sin(2 * x))


def test_a_first_trial_that_does_not_change_x_is_named():
    model, loss = tanh_net()
    with pytest.warns(UserWarning, match="not a learning rate"):
        optimizer = ScaledGD(model.parameters(), lr=1e-20)
    with pytest.warns(UserWarning, match="did not move: the first trial step .* is too small"):
        optimizer.step(loss)
    assert optimizer.last_step.failure is Failure.FIRST_TRIAL


def test_the_first_trial_of_minimize_is_named_too():
    method = ScaledGradient(line_search=Armijo(initial_step=1e-18))
    result = firstish.minimize(
        lambda x: ((x - 3) ** 2).sum(), torch.ones(2).double(), method=method
    )
    assert result.status is Status.LINE_SEARCH
    assert "the first trial step" in result.message


def test_a_scheduler_that_makes_lr_tiny_brings_one_warning_at_the_step():
    model, loss = tanh_net()
    optimizer = ScaledGD(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(6):
            optimizer.step(loss)
            schedule.step()
    (one,) = caught
    assert "`ScaledGD(lr=0.001)` makes every step at most" in str(one.message)
    assert "leave out the learning-rate scheduler" in str(one.message)
    assert one.filename == __file__


def test_a_step_that_does_not_move_is_warned_of_once():
    w = nn.Parameter(torch.tensor([1.0]))
    optimizer = ScaledGD([w], method="CGMR")

    def wall():
        return w.sum() if w.item() == 1 else (w - w.detach() + 5.0).sum()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            optimizer.step(wall)
            assert optimizer.last_step.failure is not None
    (one,) = caught
    assert "did not move" in str(one.message)
    assert one.filename == __file__

"""What a run or a step that failed says of the reason: it must be the true one."""

import warnings
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import firstish
from firstish import Armijo, ScaledGD, ScaledGradient, Step
from firstish.baselines.fixed_step import NoState
from firstish.line_search import LineFunction
from firstish.methods import Failure
from firstish.result import Status


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layer", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_fitted_classifier_ends_in_rounding_not_in_a_wrong_gradient(dtype, layer, seed):
    torch.manual_seed(seed)
    inputs = torch.randn(60, 8, dtype=torch.float64)
    labels = (inputs @ torch.randn(8, 3, dtype=torch.float64)).argmax(1)
    model = nn.Sequential(nn.Linear(8, 16), layer(), nn.Linear(16, 3)).to(dtype)
    objective = firstish.ModuleObjective(model, cross_entropy, inputs.to(dtype), labels)
    result = firstish.minimize(objective, model, gtol=0, max_oracle_calls=600)
    assert result.status is not Status.LINE_SEARCH, result.message


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
        (lambda a: 6e-10 * a if a > 0.1 else 0.0, True),  # in proportion by chance, then lost
        (lambda a: 1e-9 * a, False),  # f rises in proportion: the slope is wrong, in small units
        (lambda a: 1e-9 * a + 1e-10 * a * a, False),
        (lambda a: 1e-3, False),  # a jump that rounding does not explain
    ],
    ids=["scatter", "chance", "kink", "smooth", "jump"],
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
    assert "`ScaledGD(lr=0.1)` tries 0.1 of the step" in str(one.message)
    assert "leave out the learning-rate scheduler" in str(one.message)
    assert one.filename == __file__


def test_a_schedule_of_the_first_trial_step_above_a_tenth_is_silent():
    model, loss = tanh_net()
    optimizer = ScaledGD(model.parameters(), lr=2.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=5)  # to 0.2
    for _ in range(7):
        optimizer.step(loss)
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.2)


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


def seen_in(action):
    """The warnings of an action, each as it would be printed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return caught


@pytest.mark.parametrize("method", [None, "lazy"])
def test_points_drawn_anew_bring_the_advice_of_the_guide(method):
    model, _ = tanh_net()
    optimizer = ScaledGD(model.parameters(), method=method)
    x = torch.linspace(-1, 1, 20)[:, None]
    optimizer.step(lambda: model(x).square().mean())
    (one,) = seen_in(lambda: optimizer.step(lambda: (model(x) - 1).square().mean()))
    said = str(one.message)
    assert "only now and then (new points every 100 steps)" in said
    assert ("right for a loss that changes" if method else "pass `method='lazy'` instead") in said
    assert "make a new optimizer" not in said
    assert one.filename == __file__


def test_a_batch_drawn_in_the_closure_is_named_before_check():
    model, _ = tanh_net()
    batches = iter(torch.randn(9, 5, 1))
    with pytest.raises(firstish.NondeterministicError) as error:
        ScaledGD(model.parameters()).step(lambda: model(next(batches)).square().mean())
    said = str(error.value)
    assert 0 < said.index("before the step, outside of the closure") < said.index("check=False")


def test_the_warning_of_a_dropout_mask_points_at_the_call_and_speaks_of_no_fit():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Linear(3, 1))
    objective = firstish.ModuleObjective(model, mse_loss, torch.randn(8, 3), torch.randn(8, 1))
    (one,) = seen_in(lambda: firstish.largest_eigenvalue(objective, model))
    assert "one dropout mask" in str(one.message)
    assert "fitted" not in str(one.message)
    assert one.filename == __file__


DATA = [torch.randn(6, n, dtype=torch.float64) for n in (3, 1)]


@pytest.mark.parametrize(
    ("inputs", "targets", "kind", "said"),
    [
        (DATA[0].numpy(), DATA[1], TypeError, r"inputs=...\)` needs a tensor, got ndarray"),
        (DATA[0], DATA[1].numpy(), TypeError, r"targets=...\)` needs a tensor, got ndarray"),
        (DATA[0].tolist(), DATA[1], TypeError, r"inputs=...\)` needs a tensor, got list"),
        (DATA[0], DATA[1][:4], Exception, "`inputs` has 6 rows and `targets` 4"),
        (DATA[0], DATA[1][:, 0], ValueError, r"each output with every.* `targets\[..., None\]`"),
    ],
    ids=["numpy", "numpy targets", "list", "rows", "broadcast"],
)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_data_that_do_not_fit_the_model_are_refused(inputs, targets, kind, said):
    model = nn.Linear(3, 1)
    with pytest.raises(kind, match=said):
        firstish.minimize(firstish.ModuleObjective(model, mse_loss, inputs, targets), model)


def test_a_loss_that_is_not_finite_after_the_first_step_names_the_batch():
    w = nn.Parameter(torch.ones(2))
    optimizer = ScaledGD([w], method="CGMR")
    optimizer.step(lambda: (w**4).sum())
    with pytest.raises(firstish.NonFiniteError, match=r"start of step 1\. .*Check this batch"):
        optimizer.step(lambda: (w * torch.nan).sum())


def test_a_run_that_leaves_the_domain_is_advised_to_use_bounds():
    result = firstish.minimize(lambda x: torch.sqrt(x).sum() + x.sum(), torch.ones(3))
    assert "`bounds=(1e-12, None)`" in result.message


def test_a_loss_that_no_longer_changes_does_not_ask_for_a_larger_budget():
    x0 = torch.full((2,), 50.0, dtype=torch.float64)  # f is 0 by rounding, its gradient is not

    def logistic(x):
        return torch.log(1 + torch.exp(-x)).sum()

    result = firstish.minimize(logistic, x0, gtol=0, max_iterations=3)
    assert (result.status, result.value) == (Status.MAX_ITERATIONS, 0.0)
    assert "no longer changed f" in result.message
    assert "Raise" not in result.message


@pytest.mark.parametrize("name", ["lbgfs", "lazi", "CGRM"])
def test_a_misspelt_method_is_answered_by_the_one_meant(name):
    meant = {"lbgfs": "lbfgs", "lazi": "lazy", "CGRM": "CGMR"}[name]
    with pytest.raises(ValueError, match=f"Did you mean '{meant}'"):
        ScaledGD([nn.Parameter(torch.ones(1))], method=name)


def test_maximize_is_answered_by_the_negative_loss():
    with pytest.raises(TypeError, match="return `-loss` from the closure"):
        ScaledGD([nn.Parameter(torch.ones(1))], maximize=True)


def saved_after_steps(steps=4):
    model, loss = tanh_net()
    optimizer = ScaledGD(model.parameters())
    for _ in range(steps):
        optimizer.step(loss)
    return model.state_dict(), optimizer.state_dict()


def test_the_state_of_another_method_names_both():
    model, loss = tanh_net()
    parameters, state = saved_after_steps()
    model.load_state_dict(parameters)
    optimizer = ScaledGD(model.parameters(), method="CGMR")
    optimizer.load_state_dict(state)
    with pytest.raises(ValueError, match="is of LazyStep, but this optimizer uses ScaledGradient"):
        optimizer.step(loss)


@pytest.mark.parametrize("with_model", [True, False])
def test_a_state_without_the_parameters_it_belongs_to_brings_a_warning(with_model):
    parameters, state = saved_after_steps()
    model, loss = tanh_net()
    optimizer = ScaledGD(model.parameters())
    optimizer.load_state_dict(state)
    if with_model:
        model.load_state_dict(parameters)
    caught = seen_in(lambda: optimizer.step(loss))
    assert len(caught) == (not with_model)
    assert all("`model.load_state_dict(...)`" in str(one.message) for one in caught)


def test_what_is_printed_is_short_and_says_the_method():
    pair = firstish.largest_eigenvalue(lambda x: (x**2).sum(), torch.zeros(50))
    assert repr(pair).startswith("Eigenpair(value=2, error=")
    assert type(pair.error) is float
    assert "method: LazyStep(" in repr(ScaledGD([nn.Parameter(torch.ones(1))]))
    one = firstish.minimize(lambda x: (x**2).sum(), torch.ones(2), max_iterations=1)
    assert "after 1 iteration and" in one.message


def test_the_reasons_of_a_failed_step_are_exported():
    assert firstish.Failure is Failure
    assert "Failure" in firstish.__all__


def test_scaled_gd_in_one_of_several_processes_names_finite_sum(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.warns(UserWarning, match=r"one of 2 processes.*FiniteSum\(.*process_group="):
        ScaledGD([nn.Parameter(torch.ones(1))])


def test_random_numbers_that_a_loss_draws_are_warned_of():
    def noisy(x):
        return ((x - torch.rand(3)) ** 2).sum()

    (one,) = seen_in(lambda: firstish.minimize(noisy, torch.zeros(3)))
    said = str(one.message)
    assert said.startswith("The loss draws random numbers, and they are the same in every")
    assert "Draw them once, before and outside of the loss" in said
    assert one.filename == __file__
    silent = firstish.FunctionObjective(noisy, torch.zeros(3), check=False)
    assert not seen_in(lambda: firstish.minimize(silent, torch.zeros(3)))


def likelihood(variance):
    """Of a sample of variance 1/3, up to a constant; the covariance must be positive definite."""
    root = torch.linalg.cholesky(variance.reshape(1, 1))
    return (torch.cholesky_solve(torch.ones(1, 1, dtype=root.dtype), root) / 3 + 2 * root.log())[
        0, 0
    ]


def test_a_trial_where_a_factorization_fails_is_refused():
    refused = []

    def loss(variance):
        try:
            return likelihood(variance)
        except torch.linalg.LinAlgError:
            refused.append(variance.item())
            raise

    result = firstish.minimize(loss, 5.0)
    assert result.success
    assert refused
    assert max(refused) < 0
    assert result.x == pytest.approx(1 / 3, rel=1e-4)
    refused.clear()
    variance = nn.Parameter(torch.tensor(5.0, dtype=torch.float64))
    optimizer = ScaledGD([variance])
    for _ in range(result.iterations):
        optimizer.step(lambda: loss(variance))
    assert refused
    assert variance.item() == pytest.approx(result.x, rel=1e-4)


def test_a_factorization_that_fails_at_the_start_is_the_users_error():
    with pytest.raises(torch.linalg.LinAlgError):
        firstish.minimize(likelihood, -1.0)


@dataclass(frozen=True)
class ToAndFro:
    """A method that steps from x to -x and back."""

    order = 1

    def init(self, point):
        return NoState()

    def step(self, point, state):
        return point.at(-point.x, 1), Step(step_size=1.0), state


def test_a_run_that_only_wanders_ends():
    """After 100 steps in a row in which f changed by no more than rounding and |g| did not fall."""
    f = lambda x: (x**2).sum()  # noqa: E731
    short = firstish.minimize(f, torch.ones(2), method=ToAndFro(), max_iterations=99)
    assert short.status is Status.MAX_ITERATIONS
    result = firstish.minimize(f, torch.ones(2), method=ToAndFro())
    assert result.status is Status.ROUNDING
    assert result.iterations == 100
    moves = firstish.minimize(
        lambda x: f(x) + 1e-3 * x.sum(), torch.ones(2), method=ToAndFro(), max_iterations=300
    )
    assert moves.status is Status.MAX_ITERATIONS  # f is higher on one side

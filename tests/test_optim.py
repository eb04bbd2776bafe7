"""`ScaledGD`: the steps of `minimize` behind the manners of a torch optimizer."""

import copy
import io
import math
import pickle
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, StepLR

import firstish
from firstish import Armijo, Curvature, ModuleObjective, ScaledGD, ScaledGradient

# The paper's method is what these tests are about, not the default one.
minimize = partial(firstish.minimize, method="CGMR")
FEW_TRIALS = ScaledGradient(line_search=Armijo(max_trials=3))

both = pytest.mark.parametrize("reuse", [True, False], ids=["reuse", "fresh"])


@pytest.fixture
def data():
    return torch.randn(12, 3), torch.randn(12, 2)


def net(*layers):
    return nn.Sequential(nn.Linear(3, 4), *layers, nn.Tanh(), nn.Linear(4, 2))


def closure_of(model, data):
    return lambda: mse_loss(model(data[0]), data[1])


def backward_closure_of(model, data, optimizer):
    """The kind that L-BFGS wants."""

    def closure():
        optimizer.zero_grad()
        loss = mse_loss(model(data[0]), data[1])
        loss.backward()
        return loss

    return closure


def vector(model):
    return parameters_to_vector(model.parameters()).detach().clone()


def run(optimizer, closure, steps):
    """The parameters before each step and after the last."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    path = [parameters_to_vector(parameters).detach().clone()]
    for _ in range(steps):
        optimizer.step(closure)
        path.append(parameters_to_vector(parameters).detach().clone())
    return path


def equal(one, two):
    return len(one) == len(two) and all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def bits(module):
    return {name: t.clone() for name, t in module.state_dict().items()}


def same_bits(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


# The same steps


@both
@pytest.mark.parametrize("scaling", ["CGMR", "MRCG", "CG", "MR", "GM"])
def test_it_takes_the_steps_of_minimize_to_the_bit(data, scaling, reuse):
    model = net()
    twin = copy.deepcopy(model)
    path = [vector(model)]
    result = minimize(
        ModuleObjective(model, mse_loss, *data),
        model,
        method=ScaledGradient(scaling=scaling),
        max_iterations=40,
        callback=lambda progress: path.append(progress.x.clone()),
    )
    optimizer = ScaledGD(twin.parameters(), method=scaling, reuse_value=reuse)
    rows, ours = [], [vector(twin)]
    for row in result.history[:-1]:
        loss = optimizer.step(closure_of(twin, data))
        assert loss.item() == row.value
        rows.append(optimizer.last_step)
        ours.append(vector(twin))
    assert equal(path, ours)
    same = [
        "iteration",
        "value",
        "grad_norm",
        "curvature",
        "scaling",
        "scale",
        "step_size",
        "trials",
        "cosine",
    ]
    same += ["oracle_calls"] if reuse else []
    for mine, theirs in zip(rows, result.history, strict=False):
        assert all(getattr(mine, name) == getattr(theirs, name) for name in same)


@both
def test_negative_curvature_and_forward_tracking_are_the_same_too(reuse):
    x0 = torch.tensor([0.05, -0.1])

    def fun(x):
        return (x**4).sum() / 4 - (x**2).sum() / 2

    path = [x0]
    result = minimize(
        fun, x0, max_iterations=8, callback=lambda progress: path.append(progress.x.clone())
    )
    assert result.history[0].curvature is Curvature.NC
    assert result.history[0].step_size > 1
    w = nn.Parameter(x0.clone())
    optimizer = ScaledGD([w], reuse_value=reuse, method="CGMR")
    assert equal(run(optimizer, lambda: fun(w), result.iterations), path)


@both
def test_several_groups_form_one_vector(data, reuse):
    model = net()
    twin = copy.deepcopy(model)
    one = ScaledGD(model.parameters(), reuse_value=reuse)
    groups = [{"params": twin[0].parameters()}, {"params": twin[2].parameters(), "lr": 1.0}]
    several = ScaledGD(groups, reuse_value=reuse)
    assert equal(run(one, closure_of(model, data), 10), run(several, closure_of(twin, data), 10))


def test_reuse_saves_an_oracle_call_per_step(data):
    calls = {}
    for reuse in (True, False):
        torch.manual_seed(1)
        model = net()
        optimizer = ScaledGD(model.parameters(), reuse_value=reuse, method="CGMR")
        run(optimizer, closure_of(model, data), 6)
        calls[reuse] = optimizer.last_step.oracle_calls
    assert calls == {True: 2 + 5 * 4, False: 2 + 5 * 5}


def test_frozen_parameters_stay_out_and_stay_put(data):
    model = net()
    model[0].weight.requires_grad_(False)
    frozen = model[0].weight.clone()
    twin = copy.deepcopy(model)
    run(ScaledGD(model.parameters(), method="CGMR"), closure_of(model, data), 5)
    assert torch.equal(model[0].weight, frozen)
    result = minimize(ModuleObjective(twin, mse_loss, *data), twin, max_iterations=5)
    assert result.value < result.history[0].value
    assert torch.equal(vector(model), vector(twin))


def test_unused_parameters_stay_put(data):
    model, spare = net(), nn.Parameter(torch.randn(3))
    before = spare.detach().clone()
    optimizer = ScaledGD([*model.parameters(), spare])
    losses = [optimizer.step(closure_of(model, data)).item() for _ in range(4)]
    assert losses[-1] < losses[0]
    assert torch.equal(spare, before)


def test_the_returned_loss_is_the_one_before_the_step(data):
    model = net()
    before = mse_loss(model(data[0]), data[1])
    loss = ScaledGD(model.parameters()).step(closure_of(model, data))
    assert torch.equal(loss, before.detach())
    assert not loss.requires_grad


@both
def test_it_runs_inside_no_grad(data, reuse):
    model = net()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        run(ScaledGD(model.parameters(), reuse_value=reuse), closure_of(model, data), 3)
    run(ScaledGD(twin.parameters(), reuse_value=reuse), closure_of(twin, data), 3)
    assert torch.equal(vector(model), vector(twin))


@both
def test_a_loss_may_differentiate_by_its_inputs(reuse):
    model = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))

    def physics():
        t = torch.linspace(0, 1, 7).unsqueeze(1).requires_grad_()
        u = model(t)
        (du,) = torch.autograd.grad(u.sum(), t, create_graph=True)
        return ((du + u) ** 2).mean() + (u[0, 0] - 1) ** 2

    optimizer = ScaledGD(model.parameters(), reuse_value=reuse)
    losses = [optimizer.step(physics).item() for _ in range(10)]
    assert losses == sorted(losses, reverse=True)


@both
def test_a_closure_sees_trainable_parameters_on_trials_too(data, reuse):
    """A penalty on what requires a gradient must not vanish from the loss of a trial."""
    model = net()

    def closure():
        trainable = [p for p in model.parameters() if p.requires_grad]
        return mse_loss(model(data[0]), data[1]) + sum((p**2).sum() for p in trainable)

    optimizer = ScaledGD(model.parameters(), reuse_value=reuse)
    for _ in range(3):
        before = optimizer.step(closure).item()
        with torch.no_grad():
            after = closure().item()
        assert optimizer.last_step.actual_decrease == pytest.approx(before - after, abs=1e-14)


# lr and its schedulers


@pytest.mark.parametrize(
    "make",
    [
        lambda o: LambdaLR(o, lambda k: 1 / (k + 1)),
        lambda o: StepLR(o, step_size=2, gamma=0.5),
        lambda o: CosineAnnealingLR(o, T_max=10, eta_min=0.1),
    ],
    ids=["LambdaLR", "StepLR", "CosineAnnealingLR"],
)
def test_a_scheduler_sets_the_first_trial_step(make):
    w = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
    optimizer = ScaledGD([w])
    scheduler = make(optimizer)
    steps, rates = [], []
    for _ in range(6):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step(lambda: (torch.tensor([1.0, 4.0, 9.0]) * w * w).sum())
        scheduler.step()
        assert optimizer.last_step.trials == 1
        steps.append(optimizer.last_step.step_size)
    assert steps == rates
    assert len(set(rates)) > 2


def test_lr_is_where_backtracking_starts():
    w = nn.Parameter(torch.tensor([1.0]))
    optimizer = ScaledGD([w], lr=6.0, method="CGMR")
    optimizer.step(lambda: (w * w).sum())
    assert (optimizer.last_step.step_size, optimizer.last_step.trials) == (1.5, 3)


# .grad


@both
def test_a_loss_only_closure_leaves_grad_alone(data, reuse):
    model = net()
    mine = torch.full((4, 3), 7.0)
    model[0].weight.grad = mine
    run(ScaledGD(model.parameters(), reuse_value=reuse), closure_of(model, data), 3)
    assert model[0].weight.grad is mine
    assert mine.eq(7.0).all()
    assert [p.grad for p in model.parameters()][1:] == [None] * 3


@both
def test_a_closure_that_calls_backward_is_noticed_and_takes_nearly_the_same_steps(data, reuse):
    model = net()
    twin = copy.deepcopy(model)
    optimizer = ScaledGD(model.parameters(), reuse_value=reuse, method="CGMR")
    path = run(optimizer, backward_closure_of(model, data, optimizer), 5)
    exact = run(ScaledGD(twin.parameters(), method="CGMR"), closure_of(twin, data), 5)
    for a, b in zip(path, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert not torch.equal(path[-1], exact[-1])  # by differences


@both
@pytest.mark.parametrize("zeroing", [True, False])
def test_after_a_backward_closure_grad_is_the_gradient_at_the_steps_start(data, reuse, zeroing):
    model = net()
    optimizer = ScaledGD(model.parameters(), reuse_value=reuse)

    def accumulating():
        loss = mse_loss(model(data[0]), data[1])
        loss.backward()
        return loss

    closure = backward_closure_of(model, data, optimizer) if zeroing else accumulating
    for _ in range(3):
        loss = mse_loss(model(data[0]), data[1])
        expected = torch.autograd.grad(loss, list(model.parameters()))
        optimizer.step(closure)
        for p, g in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, g, rtol=1e-13, atol=1e-15)


@both
def test_a_backward_closure_may_ask_whether_grad_is_enabled(data, reuse):
    model = net()
    optimizer = ScaledGD(model.parameters(), reuse_value=reuse)

    def closure():
        optimizer.zero_grad()
        loss = mse_loss(model(data[0]), data[1])
        if loss.requires_grad:
            loss.backward()
        return loss.item()  # a float, as some write it

    losses = [optimizer.step(closure).item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


@both
@pytest.mark.parametrize("first", [0, 1], ids=["loss first", "backward first"])
def test_closures_of_both_kinds_may_take_turns(data, reuse, first):
    model = net()
    optimizer = ScaledGD(model.parameters(), reuse_value=reuse)
    kinds = (closure_of(model, data), backward_closure_of(model, data, optimizer))
    losses = [optimizer.step(kinds[(k + first) % 2]).item() for k in range(6)]
    assert losses == sorted(losses, reverse=True)


def test_after_a_backward_closure_one_without_zeroing_may_follow_a_loss(data):
    model = net()
    optimizer = ScaledGD(model.parameters())

    def accumulating():
        loss = mse_loss(model(data[0]), data[1])
        loss.backward()
        return loss

    losses = [
        optimizer.step(closure).item()
        for closure in (accumulating, closure_of(model, data), accumulating)
    ]
    assert losses == sorted(losses, reverse=True)


def test_zero_grad_does_what_it_does_elsewhere(data):
    model = net()
    optimizer = ScaledGD(model.parameters())
    optimizer.step(backward_closure_of(model, data, optimizer))
    assert all(p.grad.any() for p in model.parameters())
    optimizer.zero_grad(set_to_none=False)
    assert not any(p.grad.any() for p in model.parameters())
    optimizer.zero_grad()
    assert [p.grad for p in model.parameters()] == [None] * 4


# Refusals and exceptions


@both
def test_parameters_come_back_to_the_bit_when_every_trial_is_refused(data, reuse):
    model = net()
    before, grads = bits(model), [p.grad for p in model.parameters()]
    optimizer = ScaledGD(model.parameters(), lr=1e6, method=FEW_TRIALS, reuse_value=reuse)
    with pytest.warns(UserWarning, match="did not move"):
        optimizer.step(closure_of(model, data))
    assert same_bits(bits(model), before)
    assert grads == [p.grad for p in model.parameters()]
    row = optimizer.last_step
    assert (row.step_size, row.trials, row.failure.name) == (0.0, 3, "LINE_SEARCH")


@both
def test_after_a_refused_step_the_next_goes_on_from_the_same_point(data, reuse):
    model = net()
    twin = copy.deepcopy(model)
    optimizer = ScaledGD(model.parameters(), lr=1e6, method=FEW_TRIALS, reuse_value=reuse)
    with pytest.warns(UserWarning, match="did not move"):
        optimizer.step(closure_of(model, data))
    optimizer.param_groups[0]["lr"] = 1.0
    optimizer.step(closure_of(model, data))
    ScaledGD(twin.parameters(), method="CGMR").step(closure_of(twin, data))
    assert torch.equal(vector(model), vector(twin))


@both
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_parameters_come_back_to_the_bit_after_an_exception_on_a_trial(data, reuse, error):
    model = net()
    optimizer = ScaledGD(model.parameters(), reuse_value=reuse)
    run(optimizer, closure_of(model, data), 2)
    before, state = bits(model), torch.get_rng_state()
    moved = []

    def closure():
        if not same_bits(bits(model), before):
            moved.append(True)
            raise error("on a trial")
        return mse_loss(model(data[0]), data[1])

    with pytest.raises(error, match="on a trial"):
        optimizer.step(closure)
    assert moved == [True]
    assert same_bits(bits(model), before)
    assert torch.equal(torch.get_rng_state(), state)
    twin = copy.deepcopy(model)
    fresh = ScaledGD(twin.parameters())
    fresh.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    optimizer.step(closure_of(model, data))
    fresh.step(closure_of(twin, data))
    assert torch.equal(vector(model), vector(twin))


@both
def test_an_exception_in_the_very_first_evaluation_is_the_users_and_leaves_no_trace(data, reuse):
    model = net(nn.BatchNorm1d(4))
    before = bits(model)

    def closure():
        model(data[0])
        raise RuntimeError("mine")

    optimizer = ScaledGD(model.parameters(), reuse_value=reuse)
    with pytest.raises(RuntimeError, match="mine"):
        optimizer.step(closure)
    assert same_bits(bits(model), before)
    assert optimizer.step(closure_of(model, data)) > 0


def test_an_end_by_rounding_is_said(data):
    model = nn.Linear(3, 2)
    optimizer = ScaledGD(model.parameters(), method="lazy", reuse_value=True)
    with pytest.warns(
        UserWarning, match="did not move: no step lowers f by more than its rounding"
    ):
        run(optimizer, closure_of(model, data), 100)
    assert optimizer.last_step.step_size == 0


def test_a_stationary_point_is_not_a_failure_to_warn_of():
    w = nn.Parameter(torch.zeros(2))
    optimizer = ScaledGD([w])
    for _ in range(2):
        assert optimizer.step(lambda: (w * w).sum()) == 0
    assert optimizer.last_step.failure.name == "STATIONARY"


# Randomness and buffers


def test_one_dropout_mask_per_step_and_the_generator_moves_as_by_one_evaluation(data):
    model = net(nn.Dropout(0.5))
    twin = copy.deepcopy(model)
    seen = []

    def closure():
        seen.append(torch.get_rng_state())
        return mse_loss(model(data[0]), data[1])

    optimizer = ScaledGD(model.parameters(), method="CGMR")
    torch.manual_seed(5)
    states = []
    for _ in range(3):
        seen.clear()
        optimizer.step(closure)
        assert len(seen) > 1
        assert all(torch.equal(state, seen[0]) for state in seen)
        states.append((seen[0], torch.get_rng_state()))
    torch.manual_seed(5)
    for before, after in states:
        assert torch.equal(torch.get_rng_state(), before)
        twin(data[0])
        assert torch.equal(torch.get_rng_state(), after)


def test_one_dropout_mask_for_all_steps_is_warned_of_by_name(data):
    model = net(nn.Dropout(0.5))
    closure = closure_of(model, data)
    with pytest.warns(UserWarning, match=r"^Dropout\(p=0.5.*draws random numbers"):
        ScaledGD(model.parameters(), reuse_value=True).step(closure)
    ScaledGD(model.parameters()).step(closure)  # a new mask in each step: no warning


def test_a_state_of_another_size_is_refused(data):
    model = net()
    optimizer = ScaledGD(model.parameters())
    optimizer.step(closure_of(model, data))
    saved = optimizer.state_dict()
    wide = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    with pytest.raises(ValueError, match=r"state of \d+ trainable parameters, but this.*has 32"):
        ScaledGD(wide.parameters()).load_state_dict(saved)
    ScaledGD(net().parameters()).load_state_dict(saved)


def low_rank():
    """A product of two factors of one size, and its distance from a matrix."""
    U, V, A = nn.Parameter(torch.randn(6, 2)), nn.Parameter(torch.randn(2, 6)), torch.randn(6, 6)
    return U, V, lambda: (U @ V - A).square().mean()


def test_a_state_of_other_trainable_parameters_is_refused():
    U, V, loss = low_rank()
    optimizer = ScaledGD([U, V])
    V.requires_grad_(False)
    optimizer.step(loss)
    saved = optimizer.state_dict()
    ScaledGD([U, V]).load_state_dict(saved)
    U.requires_grad_(False)
    V.requires_grad_(True)
    with pytest.raises(ValueError, match=r"has 12; parameter 0 is trainable in only one.*frozen"):
        ScaledGD([U, V]).load_state_dict(saved)
    del saved["state"][0]["trainable"]  # as an earlier version saved it
    ScaledGD([U, V]).load_state_dict(saved)


@pytest.mark.filterwarnings("ignore:.*draws random numbers:UserWarning")
def test_with_reuse_one_dropout_mask_serves_the_run_and_the_generator_stays(data):
    model = net(nn.Dropout(0.5))
    twin = copy.deepcopy(model)
    torch.manual_seed(5)
    objective = ModuleObjective(twin, mse_loss, *data)
    optimizer = ScaledGD(model.parameters(), reuse_value=True, method="CGMR")
    state = torch.get_rng_state()
    for _ in range(6):
        optimizer.step(closure_of(model, data))
        assert torch.equal(torch.get_rng_state(), state)
    minimize(objective, twin, max_iterations=6)
    assert torch.equal(vector(model), vector(twin))


@both
@pytest.mark.parametrize("lr", [1.0, 4.0], ids=["unit", "refusals"])
def test_batch_norm_statistics_are_those_of_one_forward_pass_per_point(data, reuse, lr):
    model = net(nn.BatchNorm1d(4))
    twin = copy.deepcopy(model)
    optimizer = ScaledGD(model.parameters(), lr=lr, reuse_value=reuse)
    path = run(optimizer, closure_of(model, data), 5)
    # Reuse evaluates the next point already in this step; that evaluation is the only one.
    for x in path if reuse else path[:-1]:
        nn.utils.vector_to_parameters(x, twin.parameters())
        twin(data[0])
    assert same_bits(dict(model.named_buffers()), dict(twin.named_buffers()))


def test_batch_norm_takes_the_steps_of_minimize_to_the_bit(data):
    model = net(nn.BatchNorm1d(4))
    twin = copy.deepcopy(model)
    run(ScaledGD(model.parameters(), reuse_value=True, method="CGMR"), closure_of(model, data), 5)
    minimize(ModuleObjective(twin, mse_loss, *data), twin, max_iterations=5)
    assert same_bits(bits(model), bits(twin))


def test_a_buffer_that_a_module_replaces_changes_once_per_step(data):
    class Calls(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, z):
            self.calls = self.calls + 1
            return z

    model = net(Calls())
    run(ScaledGD(model.parameters()), closure_of(model, data), 3)
    assert model[1].calls == 3


# Saving and resuming


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@both
@pytest.mark.parametrize("carry", [copy.deepcopy, through_a_file], ids=["memory", "file"])
@pytest.mark.parametrize("kind", ["plain", "dropout", "backward"])
@pytest.mark.filterwarnings("ignore:.*draws random numbers:UserWarning")
def test_resuming_in_the_middle_of_a_cycle_gives_the_same_bits(data, reuse, carry, kind):
    def build():
        model = net(nn.Dropout(0.3)) if kind == "dropout" else net()
        optimizer = ScaledGD(model.parameters(), method="CGMRGM", reuse_value=reuse)
        if kind == "backward":
            return model, optimizer, backward_closure_of(model, data, optimizer)
        return model, optimizer, closure_of(model, data)

    model, optimizer, closure = build()
    run(optimizer, closure, 4)
    saved = carry([model.state_dict(), optimizer.state_dict(), torch.get_rng_state()])
    rest = run(optimizer, closure, 5)
    names = [optimizer.last_step.scaling, optimizer.last_step.iteration]

    torch.manual_seed(99)
    model, optimizer, closure = build()
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    if not reuse:  # with reuse the optimizer's own state has the run's random state
        torch.set_rng_state(saved[2])
    assert equal(run(optimizer, closure, 5), rest)
    assert [optimizer.last_step.scaling, optimizer.last_step.iteration] == names


def test_resuming_keeps_the_counters(data):
    model = net()
    optimizer = ScaledGD(model.parameters(), method="CGMR")
    run(optimizer, closure_of(model, data), 3)
    before = optimizer.last_step
    fresh = ScaledGD(model.parameters(), method="CGMR")
    fresh.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    fresh.step(closure_of(model, data))
    row = fresh.last_step
    assert row.iteration == 3
    assert row.oracle_calls == before.oracle_calls + 5
    assert row.passes > before.passes
    assert row.seconds > before.seconds


def test_resuming_keeps_the_lr_of_a_schedule(data):
    model = net()
    optimizer = ScaledGD(model.parameters())
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    optimizer.step(closure_of(model, data))
    scheduler.step()
    fresh = ScaledGD(model.parameters())
    fresh.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    fresh.step(closure_of(model, data))
    assert fresh.last_step.step_size == 0.5


@both
def test_resuming_with_batch_norm_gives_the_same_statistics(data, reuse):
    def build():
        model = net(nn.BatchNorm1d(4))
        return model, ScaledGD(model.parameters(), reuse_value=reuse)

    model, optimizer = build()
    run(optimizer, closure_of(model, data), 3)
    saved = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
    run(optimizer, closure_of(model, data), 3)
    again, fresh = build()
    again.load_state_dict(saved[0])
    fresh.load_state_dict(saved[1])
    run(fresh, closure_of(again, data), 3)
    assert same_bits(bits(again), bits(model))


def test_resuming_with_differences_remembers_how_large_gradients_were():
    """The noise of a difference is judged by the largest gradient seen, before a save too."""
    h = torch.tensor([1e6, 1e-5])

    def build(x):
        w = nn.Parameter(x.clone())

        def closure():
            w.grad = None
            loss = (h * w * w).sum() / 2
            loss.backward()
            return loss

        return w, ScaledGD([w], method="CGMR"), closure

    w, optimizer, closure = build(torch.ones(2))
    run(optimizer, closure, 3)
    assert optimizer.last_step.curvature is Curvature.LPC
    saved = copy.deepcopy([w.detach(), optimizer.state_dict()])
    rest = run(optimizer, closure, 3)
    w, optimizer, closure = build(saved[0])
    optimizer.load_state_dict(saved[1])
    assert equal(run(optimizer, closure, 3), rest)


@both
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_copied_optimizer_takes_the_same_steps_on_its_own_parameters(data, reuse, copied):
    model = net()
    optimizer = ScaledGD(
        model.parameters(), method=ScaledGradient(scaling="MRCG", sigma=1e-3), reuse_value=reuse
    )
    run(optimizer, closure_of(model, data), 3)
    twin = copy.deepcopy(model)
    other = copied(optimizer)
    assert repr(other.method) == repr(optimizer.method)
    theirs = other.param_groups[0]["params"]
    assert not {id(p) for p in theirs} & {id(p) for p in model.parameters()}
    for mine, p in zip((twin[0], twin[0], twin[2], twin[2]), theirs, strict=True):
        mine.register_parameter("weight" if p.dim() == 2 else "bias", p)
    rest = run(optimizer, closure_of(model, data), 3)
    assert equal(run(other, closure_of(twin, data), 3), rest)
    assert other.last_step.scaling == optimizer.last_step.scaling


# Manners


def test_step_hooks_run_once_per_step(data):
    model, events = net(), []
    optimizer = ScaledGD(model.parameters())
    optimizer.register_step_pre_hook(lambda *_: events.append("before"))
    optimizer.register_step_post_hook(lambda *_: events.append("after"))
    run(optimizer, closure_of(model, data), 2)
    assert events == ["before", "after"] * 2


def test_last_step_is_the_row_of_the_last_iteration(data):
    model = net()
    optimizer = ScaledGD(model.parameters(), method="CGMR")
    assert optimizer.last_step is None
    for k in range(3):
        x = vector(model)
        loss = optimizer.step(closure_of(model, data))
        row = optimizer.last_step
        assert (row.iteration, row.value) == (k, loss.item())
        length = torch.linalg.norm(vector(model) - x).item()
        assert length == pytest.approx(row.step_size * row.scale * row.grad_norm, rel=1e-12)
        after = mse_loss(model(data[0]), data[1]).item()
        assert row.actual_decrease == pytest.approx(row.value - after, rel=1e-12)


@both
@pytest.mark.parametrize("how", ["copy_", "data"])
def test_parameters_that_the_user_changes_between_steps_are_noticed(data, reuse, how):
    model = net()
    optimizer = ScaledGD(model.parameters(), reuse_value=reuse, method="CGMR")
    run(optimizer, closure_of(model, data), 2)
    with torch.no_grad():
        bias = model[2].bias if how == "copy_" else model[2].bias.data
        bias.add_(1.0)
    x, truth = vector(model), mse_loss(model(data[0]), data[1])
    g = parameters_to_vector(torch.autograd.grad(truth, list(model.parameters())))
    assert optimizer.step(closure_of(model, data)).item() == truth.item()
    row = optimizer.last_step
    torch.testing.assert_close(vector(model), x - row.step_size * row.scale * g)


@both
def test_a_group_can_be_added_between_steps(data, reuse):
    model = net()
    optimizer = ScaledGD(model[0].parameters(), reuse_value=reuse)
    run(optimizer, closure_of(model, data), 2)
    assert optimizer.last_step.iteration == 1
    optimizer.add_param_group({"params": list(model[2].parameters())})
    twin = copy.deepcopy(model)
    before = vector(model[2])
    optimizer.step(closure_of(model, data))
    assert not torch.equal(vector(model[2]), before)
    assert optimizer.last_step.iteration == 2
    fresh = ScaledGD(twin.parameters())
    fresh.step(closure_of(twin, data))
    assert torch.equal(vector(model), vector(twin))  # CG's turn in both


@both
def test_requires_grad_can_be_switched_between_steps(data, reuse):
    model = net()
    optimizer = ScaledGD(model.parameters(), reuse_value=reuse)
    run(optimizer, closure_of(model, data), 2)
    model[0].requires_grad_(False)
    frozen = vector(model[0])
    optimizer.step(closure_of(model, data))
    assert torch.equal(vector(model[0]), frozen)
    model[0].requires_grad_(True)
    loss = optimizer.step(closure_of(model, data))
    assert not torch.equal(vector(model[0]), frozen)
    assert mse_loss(model(data[0]), data[1]) < loss


@both
def test_factors_that_are_frozen_in_turn_do_not_share_a_memory(reuse):
    """Both have as many entries: each turn takes the steps of a new optimizer, without warnings."""
    U, V, loss = low_rank()
    optimizer = ScaledGD([U, V], reuse_value=reuse)
    for turn in range(4):
        U.requires_grad_(turn % 2 == 0)
        V.requires_grad_(turn % 2 == 1)
        start = [p.detach().clone() for p in (U, V)]
        run(optimizer, loss, 4)
        reached = [p.detach().clone() for p in (U, V)]
        with torch.no_grad():
            for p, x in zip((U, V), start, strict=True):
                p.copy_(x)
        run(ScaledGD([U, V], reuse_value=reuse), loss, 4)
        assert all(torch.equal(p, x) for p, x in zip((U, V), reached, strict=True))


@both
def test_it_minimises(data, reuse):
    model = nn.Linear(3, 2)
    optimizer = ScaledGD(model.parameters(), reuse_value=reuse, method="CGMR")
    run(optimizer, closure_of(model, data), 60)
    design = torch.cat([data[0], torch.ones(12, 1)], dim=1)
    solution = torch.linalg.lstsq(design, data[1]).solution
    torch.testing.assert_close(model.weight.detach(), solution[:3].T, rtol=0, atol=1e-6)


def test_a_closure_may_change_from_step_to_step_without_reuse(data):
    """Mini-batches: each step takes its value from its own closure."""
    model = net()
    optimizer = ScaledGD(model.parameters(), method="CGMR")
    for rows in torch.arange(12).split(4):
        batch = (data[0][rows], data[1][rows])
        expected = mse_loss(model(batch[0]), batch[1]).item()
        assert optimizer.step(closure_of(model, batch)).item() == expected
        assert mse_loss(model(batch[0]), batch[1]).item() < expected


@pytest.mark.parametrize("reuse", [True, False], ids=["reuse", "fresh"])
def test_a_step_that_fails_leaves_the_buffers_of_its_start(reuse):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    X, Y = torch.randn(8, 3, dtype=torch.float64), torch.randn(8, 1, dtype=torch.float64)
    start = [p.detach().clone() for p in model.parameters()]

    def closure():  # finite at the start alone, so that every trial is refused
        loss = nn.functional.mse_loss(model(X), Y)
        moved = any(not torch.equal(p, s) for p, s in zip(model.parameters(), start, strict=True))
        return loss * math.nan if moved else loss

    optimizer = ScaledGD(model.parameters(), reuse_value=reuse, method=FEW_TRIALS, product="auto")
    with pytest.warns(UserWarning, match="did not move"):
        optimizer.step(closure)
    assert int(model[1].num_batches_tracked) == 1
    once = nn.BatchNorm1d(4).double()
    once(model[0](X))
    torch.testing.assert_close(model[1].running_mean, once.running_mean)
    assert all(torch.equal(p, s) for p, s in zip(model.parameters(), start, strict=True))

"""`ScaledGD(method=...)`: every method through the torch.optim door, to the bit."""

import copy
import io
import itertools
import pickle
import warnings
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector

import firstish
from firstish import (
    Anneal,
    Armijo,
    LazyStep,
    ModuleObjective,
    MomentumDirection,
    NonMonotone,
    PlaneStep,
    ScaledDirection,
    ScaledGD,
    ScaledGradient,
    Step,
)
from firstish.methods.lazy_step import LazyState

METHODS = {
    "dy": ScaledGradient(scaling="DY"),
    "sdc": ScaledGradient(scaling="SDC"),
    "plane": PlaneStep(),
    "lazy": LazyStep(memory=4),
    "adam": ScaledDirection(),
    "momentum": ScaledDirection(direction=MomentumDirection()),
    "annealed": ScaledGradient(
        scaling="CG", line_search=NonMonotone(schedule=Anneal(iterations=9, start=1.9))
    ),
}
every = pytest.mark.parametrize("name", METHODS)
both = pytest.mark.parametrize("reuse", [True, False], ids=["reuse", "fresh"])


@pytest.fixture
def data():
    return torch.randn(12, 3), torch.randn(12, 2)


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def closure_of(model, data):
    return lambda: mse_loss(model(data[0]), data[1])


def vector(model):
    return parameters_to_vector(model.parameters()).detach().clone()


def run(optimizer, model, closure, steps):
    path = []
    for _ in range(steps):
        optimizer.step(closure)
        path.append(vector(model))
    return path


def equal(one, two):
    return len(one) == len(two) and all(map(torch.equal, one, two))


@every
@both
def test_it_takes_the_steps_of_minimize_to_the_bit(name, data, reuse):
    model = net()
    twin = copy.deepcopy(model)
    path = []
    result = firstish.minimize(
        ModuleObjective(model, mse_loss, *data),
        model,
        method=METHODS[name],
        max_iterations=25,
        callback=lambda progress: path.append(progress.x.clone()),
    )
    optimizer = ScaledGD(twin.parameters(), method=METHODS[name], reuse_value=reuse)
    rows, ours = [], []
    for _ in path:
        optimizer.step(closure_of(twin, data))
        rows.append(optimizer.last_step)
        ours.append(vector(twin))
    assert equal(ours, path)
    same = ["iteration", "value", "grad_norm", "curvature", "scaling", "scale", "step_size"]
    same += ["trials", "product"] + (["oracle_calls"] if reuse else [])
    for mine, theirs in zip(rows, result.history, strict=False):
        assert all(getattr(mine, field) == getattr(theirs, field) for field in same)


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@every
@both
@pytest.mark.parametrize("carry", [copy.deepcopy, through_a_file], ids=["memory", "file"])
@pytest.mark.parametrize("after", [0, 1, 6])
def test_a_state_dict_resumes_to_the_same_bits(name, data, reuse, carry, after):
    def build():
        model = net()
        return model, ScaledGD(model.parameters(), method=METHODS[name], reuse_value=reuse)

    model, optimizer = build()
    run(optimizer, model, closure_of(model, data), after)
    saved = carry([model.state_dict(), optimizer.state_dict()])
    rest = run(optimizer, model, closure_of(model, data), 6)
    again, fresh = build()
    again.load_state_dict(saved[0])
    fresh.load_state_dict(saved[1])
    assert equal(run(fresh, again, closure_of(again, data), 6), rest)
    for field in ("iteration", "scaling", "scale", "product"):
        assert getattr(fresh.last_step, field) == getattr(optimizer.last_step, field)


@every
def test_a_pickled_optimizer_keeps_its_method_and_its_state(name, data):
    model = net()
    optimizer = ScaledGD(model.parameters(), method=METHODS[name], reuse_value=True)
    run(optimizer, model, closure_of(model, data), 5)
    other = pickle.loads(pickle.dumps(optimizer))
    assert other.method == optimizer.method
    twin = copy.deepcopy(model)
    theirs = other.param_groups[0]["params"]
    for mine, p in zip((twin[0], twin[0], twin[2], twin[2]), theirs, strict=True):
        mine.register_parameter("weight" if p.dim() == 2 else "bias", p)
    rest = run(optimizer, model, closure_of(model, data), 4)
    assert equal(run(other, twin, closure_of(twin, data), 4), rest)


@every
def test_a_closure_that_calls_backward_works(name, data):
    model = net()
    optimizer = ScaledGD(model.parameters(), method=METHODS[name], reuse_value=True)

    def closure():
        optimizer.zero_grad()
        loss = mse_loss(model(data[0]), data[1])
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(12)]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("name", ["plane", "lazy", "momentum"])
def test_a_group_added_between_steps_begins_the_method_anew(name, data):
    model = net()
    optimizer = ScaledGD(model[0].parameters(), method=METHODS[name])
    run(optimizer, model, closure_of(model, data), 3)
    optimizer.add_param_group({"params": list(model[2].parameters())})
    twin = copy.deepcopy(model)
    optimizer.step(closure_of(model, data))
    assert optimizer.last_step.iteration == 3
    ScaledGD(twin.parameters(), method=METHODS[name]).step(closure_of(twin, data))
    assert torch.equal(vector(model), vector(twin))


@pytest.mark.parametrize("name", ["plane", "lazy"])
def test_parameters_the_user_changes_between_steps_do_not_mislead(name, data):
    """The change of x is measured, not remembered, so the pair is still one of f."""
    model = net()
    optimizer = ScaledGD(model.parameters(), method=METHODS[name], reuse_value=True)
    run(optimizer, model, closure_of(model, data), 4)
    with torch.no_grad():
        model[2].bias.add_(0.3)
    truth = mse_loss(model(data[0]), data[1]).item()
    assert optimizer.step(closure_of(model, data)).item() == truth
    losses = [optimizer.step(closure_of(model, data)).item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)


def test_lr_is_the_first_trial_of_any_method_with_a_line_search(data):
    model = net()
    with pytest.warns(UserWarning, match="first trial step"):
        optimizer = ScaledGD(model.parameters(), lr=0.25, method=PlaneStep())
    optimizer.step(closure_of(model, data))
    assert optimizer.last_step.step_size == 0.25


def test_a_lazy_step_costs_two_calls_with_reuse_and_no_graph_of_the_gradient(data):
    model, created = net(), []
    optimizer = ScaledGD(model.parameters(), method=LazyStep(), reuse_value=True, check=False)
    grad = torch.autograd.grad

    def watched(*args, **kwargs):
        created.append(kwargs.get("create_graph", False))
        return grad(*args, **kwargs)

    torch.autograd.grad = watched
    try:
        calls = []
        for _ in range(12):
            optimizer.step(closure_of(model, data))
            calls.append(optimizer.last_step)
    finally:
        torch.autograd.grad = grad
    assert not any(created)
    for one, two in itertools.pairwise(calls):
        asked = one.product is not None
        assert two.oracle_calls - one.oracle_calls == 1 + one.trials + 2 * asked
        assert two.passes - one.passes == 1 + one.trials + 2 * asked


@dataclass(frozen=True)
class Plain:
    """A method of the user's own, without a line search."""

    step_size: float = 0.1
    order = 1

    def init(self, point):
        return Empty()

    def step(self, point, state):
        new = point.along(point.grad, -self.step_size, self.order)
        return new, Step(step_size=self.step_size), state


@dataclass(frozen=True)
class Empty:
    pass


@dataclass(frozen=True)
class Stateless(Plain):
    def init(self, point):
        return None


def test_a_method_of_ones_own_goes_through_the_door(data):
    model = net()
    x, loss = vector(model), closure_of(model, data)()
    g = parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))
    ScaledGD(model.parameters(), method=Plain()).step(closure_of(model, data))
    torch.testing.assert_close(vector(model), x - 0.1 * g, rtol=1e-14, atol=1e-15)


def test_a_step_size_without_a_meaning_is_refused(data):
    model = net()
    optimizer = ScaledGD(model.parameters(), lr=2.0, method=Plain())
    with pytest.raises(ValueError, match=r"`ScaledGD\(lr=2.0\)` has no meaning for Plain"):
        optimizer.step(closure_of(model, data))


def test_a_state_that_cannot_be_carried_is_refused(data):
    model = net()
    with pytest.raises(TypeError, match=r"state of Stateless is a NoneType.*dataclass"):
        ScaledGD(model.parameters(), method=Stateless()).step(closure_of(model, data))


@pytest.mark.parametrize("method", [LazyStep, 3])
def test_what_is_no_method_is_refused(method):
    with pytest.raises(TypeError, match=r"`ScaledGD\(method=...\)`.*'lazy'.*got"):
        ScaledGD(net().parameters(), method=method)


def test_a_name_stands_for_the_method():
    named = {"lazy": LazyStep(), "Plane": PlaneStep(), "mrcg": ScaledGradient(scaling="mrcg")}
    for name, method in named.items():
        assert ScaledGD(net().parameters(), method=name).method == method
    with pytest.raises(ValueError, match=r"`ScaledGD\(method='newton'\)` is unknown"):
        ScaledGD(net().parameters(), method="newton")


def test_the_methods_settings_are_kept():
    method = PlaneStep(sigma=0.5, line_search=Armijo(theta=0.25))
    assert ScaledGD(net().parameters(), method=method).method is method


def test_the_state_of_another_method_is_refused_by_name(data):
    one, two = net(), net()
    saved = ScaledGD(one.parameters(), method="CGMR")
    saved.step(closure_of(one, data))
    other = ScaledGD(two.parameters(), method="lazy")
    other.load_state_dict(saved.state_dict())
    with pytest.raises(ValueError, match=r"ScaledGradient, but .* LazyStep. Make `ScaledGD"):
        other.step(closure_of(two, data))


def test_the_state_of_another_optimizer_is_refused(data):
    model = net()
    adam = torch.optim.Adam(model.parameters())
    closure_of(model, data)().backward()
    adam.step()
    with pytest.raises(ValueError, match="state of another optimizer: it holds step, exp_avg"):
        ScaledGD(model.parameters()).load_state_dict(adam.state_dict())


# The default: the lazy step as long as the loss is the same function


def batches(data):
    return [[t[k::3] for t in data] for k in range(3)]


@both
def test_on_a_full_batch_the_default_is_the_lazy_step_to_the_bit(data, reuse):
    one = net()
    two = copy.deepcopy(one)
    default = ScaledGD(one.parameters(), reuse_value=reuse)
    lazy = ScaledGD(two.parameters(), method="lazy", reuse_value=reuse)
    for _ in range(12):
        assert default.step(closure_of(one, data)) == lazy.step(closure_of(two, data))
    assert isinstance(default.method, LazyStep)


def test_on_batches_the_default_goes_over_to_cgmr_once_and_for_good(data):
    model = net()
    optimizer = ScaledGD(model.parameters())
    optimizer.step(closure_of(model, batches(data)[0]))
    with pytest.warns(UserWarning, match=r"not the same function.*method='CGMR'.*silence"):
        optimizer.step(closure_of(model, batches(data)[1]))
    assert optimizer.method == ScaledGradient()
    for batch in batches(data)[2:] * 2:  # silent from now on, also where the loss stays
        optimizer.step(closure_of(model, batch))
    assert optimizer.method == ScaledGradient()


def test_from_the_step_that_sees_it_on_the_steps_are_those_of_cgmr(data):
    model, twin = net(), net()
    optimizer = ScaledGD(model.parameters())
    optimizer.step(closure_of(model, batches(data)[0]))
    twin.load_state_dict(model.state_dict())
    plain = ScaledGD(twin.parameters(), method="CGMR")
    with pytest.warns(UserWarning, match="not the same function"):
        optimizer.step(closure_of(model, batches(data)[1]))
    plain.step(closure_of(twin, batches(data)[1]))
    for batch in batches(data):
        assert optimizer.step(closure_of(model, batch)) == plain.step(closure_of(twin, batch))


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_resumed_default_takes_the_same_steps_on_batches(data, steps):
    start = net()

    def run(saved_after):
        model = copy.deepcopy(start)
        optimizer = ScaledGD(model.parameters())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for k in range(6):
                if k == saved_after:
                    state = copy.deepcopy(optimizer.state_dict())
                    optimizer = ScaledGD(model.parameters())
                    optimizer.load_state_dict(state)
                optimizer.step(closure_of(model, batches(data)[k % 3]))
        return [p.detach().clone() for p in model.parameters()]

    assert all(map(torch.equal, run(None), run(steps)))


def projected_steps(optimizer, closure, project):
    """Four steps, each followed by a projection of the parameters."""
    for _ in range(4):
        optimizer.step(closure)
        for p in optimizer.param_groups[0]["params"]:
            p.data = project(p.data)


def test_parameters_changed_between_steps_are_no_change_of_the_loss(data):
    model = net()
    optimizer = ScaledGD(model.parameters())
    shrink = lambda p: 0.9 * p  # noqa: E731
    with pytest.warns(UserWarning, match="parameters were changed since") as caught:
        projected_steps(optimizer, closure_of(model, data), shrink)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert isinstance(optimizer.method, LazyStep)


def onto_the_simplex(p):
    return p.clamp(min=0) / p.clamp(min=0).sum()


@pytest.mark.parametrize("project", [lambda p: p.clamp(min=0), onto_the_simplex])
def test_clamped_parameters_are_answered_with_bounds(project):
    """Not with a loss that changes, although on the simplex their sum is always the same."""
    p = nn.Parameter(torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64))
    optimizer = ScaledGD([p])
    target = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"'bounds': \(0, None\)") as caught:
        projected_steps(optimizer, lambda: ((p - target) ** 4).sum(), project)
    assert not any("not the same function as" in str(one.message) for one in caught)


def test_a_pair_across_a_change_of_the_parameters_is_not_rescaled():
    """The curvature expected along the step says nothing of a pair in another direction."""
    state = LazyStep().elsewhere(LazyState(expected=3.0, cuts=2))
    assert (state.expected, state.cuts) == (0.0, 2)


@pytest.mark.parametrize("method", ["lazy", "plane"])
def test_a_method_with_a_memory_warns_once_where_the_loss_changes(data, method):
    model = net()
    optimizer = ScaledGD(model.parameters(), method=method)
    chosen = optimizer.method
    optimizer.step(closure_of(model, batches(data)[0]))
    with pytest.warns(UserWarning, match=r"not the same function.*combines gradients"):
        optimizer.step(closure_of(model, batches(data)[1]))
    optimizer.step(closure_of(model, batches(data)[2]))
    assert optimizer.method == chosen


def test_a_new_dropout_mask_is_another_loss(data):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = ScaledGD(model.parameters())
    loss = lambda: model(torch.ones(4, 3)).square().mean() + 1  # noqa: E731
    optimizer.step(loss)
    with pytest.warns(UserWarning, match="not the same function"):
        optimizer.step(loss)

"""A module and its loss: which numbers are the vector, and what happens to the rest of it."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import firstish
from firstish import Armijo, ModuleObjective, ScaledGradient

GREEDY = ScaledGradient(line_search=Armijo(initial_step=4.0))  # first trials are refused


@pytest.fixture
def data():
    return torch.randn(12, 3), torch.randn(12, 2)


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def bits(module):
    return {name: t.clone() for name, t in module.state_dict().items()}


def same_bits(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


# The vector


def test_the_vector_is_the_parameters_in_order(data):
    model = net()
    objective = ModuleObjective(model, mse_loss, *data)
    assert torch.equal(objective.initial(), parameters_to_vector(model.parameters()).detach())
    point = objective.at(objective.initial())
    loss = mse_loss(model(data[0]), data[1])
    g = torch.autograd.grad(loss, list(model.parameters()))
    assert point.value == loss.item()
    torch.testing.assert_close(point.grad, parameters_to_vector(g), rtol=1e-14, atol=1e-15)


def test_it_shows_what_it_is_made_of(data):
    plain = ModuleObjective(net(), mse_loss, *data, weight_decay=0.5)
    assert repr(plain) == (
        "ModuleObjective(Sequential, mse_loss, inputs (12, 3), targets (12, 2), "
        "weight_decay=0.5): 26 parameters in float64"
    )
    whole = ModuleObjective(net(), lambda model: model(data[0]).sum())
    assert "Sequential, <lambda>): 26 parameters" in repr(whole)


def test_the_module_holds_the_new_point_in_a_callback_and_at_the_end(data):
    model = net()
    grads = [p.grad for p in model.parameters()]
    objective = ModuleObjective(model, mse_loss, *data)
    seen = []

    def callback(progress):
        assert torch.equal(parameters_to_vector(model.parameters()), progress.x)
        loss = mse_loss(model(data[0]), data[1]).item()
        assert loss == pytest.approx(progress.value, rel=1e-14)
        seen.append(loss)

    result = firstish.minimize(objective, model, max_iterations=3, callback=callback)
    assert len(set(seen)) == 3
    assert torch.equal(parameters_to_vector(model.parameters()), result.x)
    assert grads == [p.grad for p in model.parameters()] == [None] * 4
    assert mse_loss(model(data[0]), data[1]).item() == pytest.approx(result.value, rel=1e-14)


def test_a_callback_that_uses_the_module_changes_nothing(data):
    def meddle(progress):
        for module in (model, model[1]):
            module.eval()
        with torch.no_grad():
            model.train()(data[0] + 5)  # moves the statistics of BatchNorm
            model.eval()
            for parameter in model.parameters():
                parameter.zero_()

    results = []
    for callback in (None, meddle):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
        objective = ModuleObjective(model, mse_loss, *data)
        results.append(firstish.minimize(objective, model, max_iterations=5, callback=callback))
        assert all(module.training for module in model.modules())
        results.append(bits(model))
    assert torch.equal(results[0].x, results[2].x)
    assert same_bits(results[1], results[3])


def test_a_tensor_start_leaves_the_module_alone(data):
    model = net()
    before = bits(model)
    result = firstish.minimize(
        ModuleObjective(model, mse_loss, *data), torch.full((26,), 0.1), max_iterations=3
    )
    assert result.iterations == 3
    assert result.x.shape == (26,)
    assert same_bits(bits(model), before)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_the_module_holds_what_was_reached_also_after_an_interruption(data, error):
    model = net()
    reached = []

    def callback(progress):
        reached.append(progress.x.clone())
        if len(reached) == 4:
            raise error

    with pytest.raises(error):
        firstish.minimize(ModuleObjective(model, mse_loss, *data), model, callback=callback)
    assert torch.equal(parameters_to_vector(model.parameters()), reached[-1])


def test_an_interruption_inside_a_trial_leaves_the_last_accepted_point(data):
    model = net()
    accepted, calls = [], []

    def loss_fn(outputs, targets):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return mse_loss(outputs, targets)

    with pytest.raises(KeyboardInterrupt):
        firstish.minimize(
            ModuleObjective(model, loss_fn, *data),
            model,
            callback=lambda progress: accepted.append(progress.x.clone()),
        )
    assert len(accepted) > 2
    assert torch.equal(parameters_to_vector(model.parameters()), accepted[-1])


def test_it_runs_inside_no_grad(data):
    model = net()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        inside = firstish.minimize(ModuleObjective(model, mse_loss, *data), model, max_iterations=3)
    outside = firstish.minimize(ModuleObjective(twin, mse_loss, *data), twin, max_iterations=3)
    assert torch.equal(inside.x, outside.x)


# Tied, frozen and unused parameters


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.mix = nn.Linear(3, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.mix(self.embed(tokens)).tanh())


def test_tied_weights_count_once_and_both_uses_reach_the_gradient_and_the_product():
    model, tokens = Tied(), torch.tensor([0, 1, 2, 3, 4, 2])
    targets = tokens.roll(1)
    objective = ModuleObjective(model, cross_entropy, tokens, targets)
    x = objective.initial()
    assert x.numel() == 15 + 12

    def by_hand(x):
        E, W, b = x[:15].view(5, 3), x[15:24].view(3, 3), x[24:]
        return cross_entropy((E[tokens] @ W.T + b).tanh() @ E.T, targets)

    point = objective.at(x)
    torch.testing.assert_close(point.grad, torch.func.grad(by_hand)(x))
    torch.testing.assert_close(point.hvp(point.grad).vector, hessian(by_hand, x) @ point.grad)
    result = firstish.minimize(objective, model, max_iterations=20)
    assert model.head.weight is model.embed.weight
    assert torch.equal(model.head.weight.reshape(-1), result.x[:15])
    assert cross_entropy(model(tokens), targets).item() == pytest.approx(result.value)
    assert result.value < point.value


def test_a_layer_used_twice_counts_once(data):
    layer = nn.Linear(3, 3)
    model = nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), nn.Linear(3, 2))
    objective = ModuleObjective(model, mse_loss, *data)
    assert objective.initial().numel() == 12 + 8
    g = torch.autograd.grad(mse_loss(model(data[0]), data[1]), list(model.parameters()))
    torch.testing.assert_close(objective.at(objective.initial()).grad, parameters_to_vector(g))


def test_frozen_parameters_are_constants_to_the_bit(data):
    model = net()
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    frozen = model[0].weight.clone(), model[2].bias.clone()
    objective = ModuleObjective(model, mse_loss, *data)
    assert objective.initial().numel() == 4 + 8
    result = firstish.minimize(objective, model, max_iterations=10)
    assert result.value < result.history[0].value
    assert torch.equal(model[0].weight, frozen[0])
    assert torch.equal(model[2].bias, frozen[1])
    trained = (model[0].bias, model[2].weight)
    assert torch.equal(result.x, torch.cat([p.detach().reshape(-1) for p in trained]))


def test_unused_parameters_have_zero_gradient_and_stay(data):
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.spare, self.used = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, z):
            return self.used(z)

    model = Spare()
    spare = bits(model.spare)
    objective = ModuleObjective(model, mse_loss, *data)
    point = objective.at(objective.initial())
    assert not point.grad[:8].any()
    assert point.grad[8:].all()
    firstish.minimize(objective, model, max_iterations=5)
    assert same_bits(bits(model.spare), spare)


# Buffers


def batch_net():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))


def test_evaluating_a_point_leaves_the_buffers_and_accepting_it_commits_them_once(data):
    model = batch_net()
    twin = copy.deepcopy(model)
    objective = ModuleObjective(model, mse_loss, *data)
    before = bits(model)
    point = objective.at(objective.initial())
    _ = point.value, point.grad, point.hvp(point.grad)
    assert same_bits(bits(model), before)
    point.accept()
    point.accept()
    twin(data[0])  # one ordinary forward pass in train mode
    assert same_bits(bits(model), bits(twin))


@pytest.mark.parametrize("method", [ScaledGradient(), GREEDY], ids=["unit", "refusals"])
@pytest.mark.parametrize("product", ["auto", "difference"])
def test_batch_norm_statistics_are_those_of_one_forward_pass_per_accepted_point(
    data, method, product
):
    model = batch_net()
    twin = copy.deepcopy(model)
    path = [parameters_to_vector(model.parameters()).detach()]
    objective = ModuleObjective(model, mse_loss, *data, product=product)
    result = firstish.minimize(
        objective,
        model,
        method=method,
        max_iterations=6,
        callback=lambda progress: path.append(progress.x.clone()),
    )
    assert (sum(row.trials for row in result.history[:-1]) > 6) == (method is GREEDY)
    for x in path:
        vector_to_parameters(x, twin.parameters())
        twin(data[0])
    assert model[1].num_batches_tracked == 7
    assert same_bits(bits(model), bits(twin))


def test_buffers_that_a_module_replaces_are_committed_too(data):
    class Calls(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, z):
            self.calls = self.calls + 1
            return self.layer(z)

    model = Calls()
    result = firstish.minimize(ModuleObjective(model, mse_loss, *data), model, max_iterations=3)
    assert model.calls == result.iterations + 1


def test_in_eval_mode_batch_norm_is_frozen(data):
    model = batch_net().eval()
    model[1].running_mean.fill_(0.3)
    statistics = bits(model[1])["running_mean"]
    result = firstish.minimize(ModuleObjective(model, mse_loss, *data), model, max_iterations=4)
    assert torch.equal(model[1].running_mean, statistics)
    assert not model.training
    assert mse_loss(model(data[0]), data[1]).item() == pytest.approx(result.value)


# Randomness


def dropout_net():
    return nn.Sequential(nn.Linear(3, 16), nn.Dropout(0.5), nn.Tanh(), nn.Linear(16, 2))


@pytest.mark.filterwarnings("ignore:.*draws random numbers:UserWarning")
def test_dropout_has_one_mask_per_objective_that_of_the_random_state_at_its_construction(data):
    model = dropout_net()
    torch.manual_seed(7)
    objective = ModuleObjective(model, mse_loss, *data)
    state = torch.get_rng_state()
    x = objective.initial()
    values = [objective.at(x).value for _ in range(3)]
    assert torch.equal(torch.get_rng_state(), state)  # the user's generator is left alone
    torch.manual_seed(7)
    assert values == [mse_loss(model(data[0]), data[1]).item()] * 3
    torch.manual_seed(8)
    assert ModuleObjective(model, mse_loss, *data).at(x).value != values[0]


@pytest.mark.filterwarnings("ignore:.*draws random numbers:UserWarning")
def test_with_dropout_a_run_is_repeatable_and_descends(data):
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        model = dropout_net()
        objective = ModuleObjective(model, mse_loss, *data)
        torch.rand(5)  # what happens to the generator afterwards does not matter
        results.append(firstish.minimize(objective, model, max_iterations=15))
    assert torch.equal(results[0].x, results[1].x)
    values = [row.value for row in results[0].history]
    assert values == sorted(values, reverse=True)


class OwnDropout(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.3, self.training)


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (nn.Dropout(0.5), r"'1', Dropout\(p=0.5"),
        (nn.Sequential(nn.Tanh(), nn.AlphaDropout(0.1)), r"'1.1', AlphaDropout"),
        (OwnDropout(), r"'1', OwnDropout\(\)"),
        (nn.RReLU(), r"'1', RReLU"),
    ],
)
@pytest.mark.parametrize("door", ["module", "function of the module", "finite sum"])
def test_one_mask_for_a_whole_run_is_warned_of_by_the_name_of_the_module(data, layer, name, door):
    layer = copy.deepcopy(layer)  # not that of the next case
    model = nn.Sequential(nn.Linear(3, 16), layer, nn.Linear(16, 2)).double()
    inputs, targets = (part.double() for part in data)
    fun = {
        "module": lambda: ModuleObjective(model, mse_loss, inputs, targets),
        "function of the module": lambda: lambda m: mse_loss(m(inputs), targets),
        "finite sum": lambda: firstish.FiniteSum(model, mse_loss, (inputs, targets), chunk_size=5),
    }[door]
    with pytest.warns(UserWarning, match=rf"^{name}.*draws random numbers.*`model.eval\(\)`"):
        firstish.minimize(fun(), model, max_iterations=1)
    model.eval()  # and no warning, which would be an error
    firstish.minimize(fun(), model, max_iterations=1)


def test_a_sample_that_the_loss_draws_is_no_dropout_and_check_false_silences(data):
    def loss(m):
        torch.randn(3)
        return mse_loss(m(data[0]), data[1])

    model = net()
    with pytest.warns(UserWarning, match="^The loss draws random numbers.*that of one sample"):
        firstish.minimize(loss, model, max_iterations=1)
    model = dropout_net()
    objective = ModuleObjective(model, mse_loss, *data, check=False)
    firstish.minimize(objective, model, max_iterations=1)


@pytest.mark.parametrize("wrap", [lambda rows: rows, torch.utils.data.DataLoader])
def test_a_loader_as_inputs_is_answered_with_finite_sum(data, wrap):
    rows = torch.utils.data.TensorDataset(*data)
    with pytest.raises(TypeError, match=r"got a .*use `FiniteSum\(model, loss_fn, data\)`"):
        ModuleObjective(net(), mse_loss, wrap(rows))


# Forms of the loss


def test_weight_decay_is_half_lambda_times_the_square_of_the_vector(data):
    model = net()

    def by_hand(model):
        squares = sum((p**2).sum() for p in model.parameters())
        return mse_loss(model(data[0]), data[1]) + 0.3 / 2 * squares

    ours = ModuleObjective(model, mse_loss, *data, weight_decay=0.3)
    theirs = ModuleObjective(model, by_hand)
    x = ours.initial()
    one, two = ours.at(x), theirs.at(x)
    assert one.value == pytest.approx(two.value, rel=1e-14)
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-13, atol=1e-15)
    v = one.grad
    torch.testing.assert_close(one.hvp(v).vector, two.hvp(v).vector, rtol=1e-12, atol=1e-14)
    difference = ModuleObjective(model, mse_loss, *data, weight_decay=0.3, product="difference")
    torch.testing.assert_close(
        difference.at(x).hvp(v).vector, two.hvp(v).vector, rtol=1e-5, atol=1e-7
    )


def test_weight_decay_leaves_frozen_parameters_out(data):
    model = net()
    model[0].weight.requires_grad_(False)
    x = torch.cat([p.detach().reshape(-1) for p in model.parameters() if p.requires_grad])
    plain = ModuleObjective(model, mse_loss, *data).at(x).value
    decayed = ModuleObjective(model, mse_loss, *data, weight_decay=2.0).at(x).value
    assert decayed - plain == pytest.approx(float(x @ x), rel=1e-12)


def physics(model):
    """u'' = -u on [0, 1], u(0) = 0, u'(0) = 1, whose solution is sin."""
    t = torch.linspace(0, 1, 9).unsqueeze(1).requires_grad_()
    u = model(t)
    (du,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), t, create_graph=True)
    return ((ddu + u) ** 2).mean() + u[0, 0] ** 2 + (du[0, 0] - 1) ** 2


def test_a_loss_of_the_model_itself_may_differentiate_by_the_inputs():
    model = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1))
    objective = ModuleObjective(model, physics)
    x = objective.initial()
    shapes = {name: p.shape for name, p in model.named_parameters()}

    class At(nn.Module):
        def __init__(self, x):
            super().__init__()
            parts = x.split([s.numel() for s in shapes.values()])
            self.swapped = {n: p.view(s) for (n, s), p in zip(shapes.items(), parts, strict=True)}

        def forward(self, t):
            return functional_call(model, self.swapped, (t,))

    point = objective.at(x)
    H = hessian(lambda x: physics(At(x)), x)
    torch.testing.assert_close(point.hvp(point.grad).vector, H @ point.grad)
    result = firstish.minimize(objective, model, max_iterations=500)
    assert result.value < 1e-2
    t = torch.tensor([[0.5]])
    assert model(t).item() == pytest.approx(torch.sin(t).item(), abs=0.1)


def test_several_inputs_come_as_a_tuple():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 1), nn.Linear(3, 1)

        def forward(self, y, z):
            return self.a(y) + self.b(z)

    model, inputs = Sum(), (torch.randn(5, 2), torch.randn(5, 3))
    objective = ModuleObjective(model, mse_loss, inputs, torch.ones(5, 1))
    expected = mse_loss(model(*inputs), torch.ones(5, 1)).item()
    assert objective.at(objective.initial()).value == expected


def test_outputs_alone_are_passed_without_targets(data):
    model = net()
    objective = ModuleObjective(model, lambda z: (z**2).mean(), data[0])
    assert objective.at(objective.initial()).value == (model(data[0]) ** 2).mean().item()


def test_what_the_loss_returns_beside_its_value_is_that_of_the_last_point(data):
    model = net()

    def loss_fn(outputs, targets):
        return mse_loss(outputs, targets), {"outputs": outputs.detach()}

    result = firstish.minimize(ModuleObjective(model, loss_fn, *data), model, max_iterations=4)
    torch.testing.assert_close(result.aux["outputs"], model(data[0]), rtol=1e-14, atol=1e-14)


def test_a_loss_that_is_a_module_with_weights_of_its_own_keeps_them(data):
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([1.0, 3.0]))

        def forward(self, outputs, targets):
            return (self.weight * (outputs - targets) ** 2).mean()

    model, loss_fn = net(), Weighted()
    objective = ModuleObjective(model, loss_fn, *data)
    assert objective.initial().numel() == 26
    firstish.minimize(objective, model, max_iterations=3)
    assert loss_fn.weight.tolist() == [1.0, 3.0]


def test_minimize_finds_the_least_squares_solution(data):
    model = nn.Linear(3, 2)
    result = firstish.minimize(ModuleObjective(model, mse_loss, *data), model, gtol=1e-10)
    assert result.success
    design = torch.cat([data[0], torch.ones(12, 1)], dim=1)
    solution = torch.linalg.lstsq(design, data[1]).solution
    torch.testing.assert_close(model.weight.detach(), solution[:3].T, rtol=0, atol=1e-8)
    torch.testing.assert_close(model.bias.detach(), solution[3], rtol=0, atol=1e-8)


@pytest.mark.parametrize("release", ["2.4.0", "2.4.1+cu121"])
def test_a_compiled_module_is_refused_where_torch_would_not_see_the_trials(release, monkeypatch):
    model = nn.Sequential(torch.compile(nn.Linear(2, 2), backend="eager"), nn.Linear(2, 1))
    monkeypatch.setattr(torch, "__version__", release)
    with pytest.raises(RuntimeError, match=r"needs torch 2.5 or later here; this is 2\.4"):
        ModuleObjective(model, mse_loss, torch.ones(3, 2), torch.ones(3, 1))

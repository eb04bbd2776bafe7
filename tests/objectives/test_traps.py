"""What is known to bite: autocast's cache, `.data`, graphs that live too long."""

import ast
import copy
import gc
import weakref
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import firstish
from firstish import Armijo, FunctionObjective, ModuleObjective, ScaledGD, ScaledGradient

BF16 = torch.finfo(torch.bfloat16).eps
FLOAT32 = torch.finfo(torch.float32).eps
SOURCE = Path(firstish.__file__).parent

both = pytest.mark.parametrize("reuse", [True, False], ids=["reuse", "fresh"])


@pytest.fixture
def data():
    """In float32, the only dtype that autocast casts."""
    return torch.randn(12, 3, dtype=torch.float32), torch.randn(12, 2, dtype=torch.float32)


def net():
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).float()


def autocast():
    return torch.autocast("cpu", dtype=torch.bfloat16)


# Autocast


@both
@pytest.mark.parametrize("around", ["step", "loop"])
def test_inside_an_outer_autocast_every_trial_sees_its_own_parameters(data, reuse, around):
    model = net()
    seen = []

    def closure():
        loss = mse_loss(model(data[0]).float(), data[1])
        seen.append((copy.deepcopy(model.state_dict()), loss.item()))
        return loss

    optimizer = ScaledGD(model.parameters(), lr=16.0, reuse_value=reuse)
    if around == "loop":
        with autocast():
            for _ in range(3):
                optimizer.step(closure)
    else:
        for _ in range(3):
            with autocast():
                optimizer.step(closure)
    assert len({loss for _, loss in seen}) > 6
    for state, loss in seen:
        twin = net()
        twin.load_state_dict(state)
        with autocast():
            assert mse_loss(twin(data[0]).float(), data[1]).item() == loss


def test_without_clearing_the_cache_the_trials_would_be_equal(data):
    """Control: shows that torch still has the behaviour the test above guards against."""
    model = net()
    with autocast():
        before = model(data[0])
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(2)
        assert torch.equal(model(data[0]), before)
        torch.clear_autocast_cache()
        assert not torch.equal(model(data[0]), before)


class Cast(nn.Module):
    """Casts for itself, as models trained in mixed precision do."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, z):
        with autocast():
            return self.net(z)


def test_the_noise_level_is_that_of_the_dtype_computed_in(data):
    def noise(model, loss_fn):
        objective = ModuleObjective(model, loss_fn, *data)
        _ = objective.at(objective.initial()).value
        return objective.eps

    def loss_fn(z, y):
        return mse_loss(z.float(), y)

    assert noise(net(), loss_fn) == FLOAT32
    assert noise(Cast(), loss_fn) == BF16
    with autocast():
        assert noise(net(), loss_fn) == BF16


def test_the_noise_level_of_a_closure_is_that_of_the_dtype_computed_in(data):
    """A step whose change of f is bf16 noise is judged by slopes, not refused 60 times."""
    model = net()
    optimizer = ScaledGD(model.parameters())

    def closure():
        with autocast():
            outputs = model(data[0])
        return mse_loss(outputs.float(), data[1])

    trials = []
    for _ in range(30):
        optimizer.step(closure)  # silent: a search that fails would warn
        trials.append(optimizer.last_step.trials)
    assert max(trials) < 10


def test_the_noise_level_of_a_function_that_casts_is_seen_without_modules():
    A = torch.randn(6, 3, dtype=torch.float32)

    def fun(x):
        with autocast():
            z = A @ x
        return (z.float() ** 2).sum()

    x = torch.ones(3, dtype=torch.float32)
    objective = FunctionObjective(fun, x)
    _ = objective.at(x).value
    assert objective.eps == BF16


def test_a_loss_in_lower_precision_than_the_parameters_sets_the_noise_level():
    x = torch.ones(3)
    objective = FunctionObjective(lambda x: (x.float() ** 2).sum(), x)
    _ = objective.at(x).value
    assert objective.eps == FLOAT32


# Writes to the parameters

CORE = [
    path
    for path in SOURCE.rglob("*.py")
    if path.relative_to(SOURCE).parts[0]
    in {"objectives", "methods", "optim.py", "minimize.py", "loop.py", "vectors.py"}
]


def test_nothing_in_the_core_touches_data():
    assert len(CORE) > 12
    for path in CORE:
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        assert not [n.lineno for n in nodes if isinstance(n, ast.Attribute) and n.attr == "data"]


@both
def test_every_write_is_seen_by_autograd(data, reuse):
    """A graph of the user's own over the old values raises instead of giving wrong gradients."""
    model = net()
    mine = model(data[0]).square().sum()
    ScaledGD(model.parameters(), reuse_value=reuse).step(lambda: mse_loss(model(data[0]), data[1]))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        mine.backward()


def graph_nodes(root):
    names, seen, stack = Counter(), set(), [root]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            names[node.name()] += 1
            stack += [following for following, _ in node.next_functions]
    return names


def test_the_vector_is_split_once(data):
    losses = []

    def loss_fn(z, y):
        losses.append(mse_loss(z, y))
        return losses[-1]

    objective = ModuleObjective(net(), loss_fn, *data, check=False)
    _ = objective.at(objective.initial()).value
    names = graph_nodes(losses[0].grad_fn)
    assert sum(n for name, n in names.items() if "Split" in name) == 1
    assert not [name for name in names if "Slice" in name or "Narrow" in name or "Select" in name]
    assert names["torch::autograd::AccumulateGrad"] == 1  # one leaf, the vector


# What is kept


class Tracked(torch.autograd.Function):
    """Ties a token to its node: the token lives as long as a graph through here."""

    @staticmethod
    def forward(ctx, z, token):
        ctx.token = token
        return z.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Token:
    pass


class Ward:
    def __init__(self):
        self.alive = weakref.WeakSet()

    def __call__(self, z):
        token = Token()
        self.alive.add(token)
        return Tracked.apply(z, token)


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()  # what lives in a cycle counts as a leak
    yield
    gc.enable()


def live_tensors():
    return sum(issubclass(type(o), Tensor) for o in gc.get_objects())


def valley(x):
    """Takes the GM scale more than 300 iterations."""
    return (torch.logspace(0, 5, 6) * (x - 1) ** 2).sum() + 1


@pytest.mark.parametrize("product", ["double-backward", "difference"])
@pytest.mark.usefixtures("no_collector")
def test_minimize_keeps_one_graph_and_no_tensors(product):
    ward, graphs, tensors = Ward(), [], []

    def callback(progress):
        graphs.append(len(ward.alive))
        if progress.row.iteration in (9, 299):
            tensors.append(live_tensors())

    x0 = torch.full((6,), -0.5)
    objective = FunctionObjective(lambda x: valley(ward(x)), x0, product=product)
    method = ScaledGradient(scaling="GM")
    result = firstish.minimize(objective, x0, method=method, max_iterations=300, callback=callback)
    assert result.iterations == 300
    assert max(graphs) <= 1
    assert tensors[1] <= tensors[0]
    assert len(ward.alive) == 0


@both
@pytest.mark.parametrize("kind", ["loss", "backward"])
@pytest.mark.usefixtures("no_collector")
def test_the_optimizer_keeps_one_graph_at_most_and_no_tensors(reuse, kind):
    ward = Ward()
    w = nn.Parameter(torch.full((6,), -0.5))
    optimizer = ScaledGD([w], method="GM", reuse_value=reuse)

    def closure():
        loss = valley(ward(w))
        if kind == "backward":
            loss.backward()
        return loss

    tensors = []
    for k in range(300):
        optimizer.step(closure)
        assert len(ward.alive) <= 1
        if k in (9, 299):
            tensors.append(live_tensors())
    assert tensors[1] <= tensors[0]


@pytest.mark.usefixtures("no_collector")
def test_the_graph_is_gone_before_a_trial_is_built_and_that_of_a_refused_trial_too():
    ward, alive = Ward(), []

    def fun(x):
        alive.append(len(ward.alive))
        return (torch.arange(1.0, 7.0) * ward(x) ** 4).sum()

    x0 = torch.ones(6)
    objective = FunctionObjective(fun, x0, product="double-backward", check=False)
    method = ScaledGradient(line_search=Armijo(initial_step=8.0))
    result = firstish.minimize(objective, x0, method=method, max_iterations=5)
    trials = sum(row.trials for row in result.history[:-1])
    assert trials > 5
    assert alive == [0] * (1 + trials)


def tensors_in(value):
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from tensors_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tensors_in(inner)


@both
@pytest.mark.filterwarnings("ignore:.*draws random numbers:UserWarning")
def test_state_holds_detached_tensors_only(data, reuse):
    model = nn.Sequential(net(), nn.Dropout(0.2))
    optimizer = ScaledGD(model.parameters(), reuse_value=reuse, method="CGMR")
    for _ in range(3):
        optimizer.step(lambda: mse_loss(model(data[0]), data[1]))
    held = list(tensors_in(optimizer.state_dict()["state"]))
    assert len(held) == (1 if reuse else 0)  # the random state of the run
    assert not any(t.requires_grad for t in held)
    assert not list(tensors_in(optimizer.last_step.to_dict()))


def test_results_and_progress_hold_detached_tensors_only(data):
    model, seen = net(), []
    objective = ModuleObjective(model, mse_loss, *data)
    result = firstish.minimize(objective, model, max_iterations=3, callback=seen.append)
    assert not result.x.requires_grad
    assert not any(progress.x.requires_grad for progress in seen)
    rows = [row.to_dict() for row in result.history]
    assert not list(tensors_in(rows))


# Closures: only the newest graph is valid


@pytest.mark.parametrize("product", ["double-backward", "difference"])
def test_forward_tracking_through_a_closure_evaluates_the_returned_point_again_and_counts_it(
    product,
):
    def fun(x):
        return (x**4).sum() / 4 - (x**2).sum() / 2

    x0 = torch.tensor([0.05, -0.1])
    calls = []
    w = nn.Parameter(x0.clone())
    optimizer = ScaledGD([w], reuse_value=True, product=product, check=False, method="CGMR")

    def closure():
        calls.append(w.detach().clone())
        return fun(w)

    optimizer.step(closure)
    row = optimizer.last_step
    assert row.curvature is firstish.Curvature.NC
    assert row.trials >= 3
    assert torch.equal(calls[-1], w)  # the refused trial came before
    extra = {"double-backward": 0, "difference": 1}[product]
    assert len(calls) == 1 + extra + row.trials + 1
    optimizer.step(closure)
    gradients = {"double-backward": 2, "difference": 3}[product]
    products = {"double-backward": 2, "difference": 0}[product]
    assert optimizer.last_step.passes == 1 + extra + row.trials + 1 + gradients + products

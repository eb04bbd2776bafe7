"""Chunked = full batch: f, g and Hg at 50 points, iterates over 5 steps, steps over 50."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import firstish
from firstish import FiniteSum, ModuleObjective, ScaledGradient, Summed

# The paper's method is what these tests are about, not the default one.
minimize = partial(firstish.minimize, method="CGMR")

ROWS = 53
CHUNKS = (20, 52, 1000)


def logistic():
    return nn.Linear(6, 4).double()


def mlp():
    layers = nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 4)
    return nn.Sequential(*layers).double()


@pytest.fixture(params=[logistic, mlp], ids=["logistic", "mlp"])
def model(request):
    torch.manual_seed(1)
    return request.param()


@pytest.fixture
def data():
    torch.manual_seed(2)
    return torch.randn(ROWS, 6, dtype=torch.float64), torch.randint(4, (ROWS,))


def random_points(objective, count=50):
    generator = torch.Generator().manual_seed(3)
    x0 = objective.initial()
    return [x0 + torch.randn(len(x0), generator=generator, dtype=x0.dtype) for _ in range(count)]


def assert_same_points(one, two, points, rel=1e-13):
    for x in points:
        a, b = one.at(x), two.at(x)
        assert b.value == pytest.approx(a.value, rel=rel)
        scale = a.grad.abs().max()
        assert (a.grad - b.grad).abs().max() <= rel * scale
        Ha, Hb = a.hvp(a.grad).vector, b.hvp(b.grad).vector
        assert (Ha - Hb).abs().max() <= rel * Ha.abs().max()


def assert_same_runs(one, two):
    x0 = one.initial()
    method = ScaledGradient()
    a, b = (minimize(o, x0, method=method, gtol=0, max_iterations=5) for o in (one, two))
    assert (a.x - b.x).norm() <= 1e-12 * a.x.norm()
    a, b = (minimize(o, x0, method=method, gtol=0, max_iterations=50) for o in (one, two))
    keys = ("curvature", "scaling", "step_size", "trials", "oracle_calls")
    assert [[getattr(r, k) for k in keys] for r in a.history] == [
        [getattr(r, k) for k in keys] for r in b.history
    ]


@pytest.mark.parametrize("chunk_size", CHUNKS)
def test_chunks_equal_the_full_batch(model, data, chunk_size):
    whole = ModuleObjective(model, F.cross_entropy, *data, weight_decay=1e-2)
    chunked = FiniteSum(model, F.cross_entropy, data, chunk_size=chunk_size, weight_decay=1e-2)
    assert_same_points(whole, chunked, random_points(whole))
    assert_same_runs(whole, chunked)


def smoothed(outputs, targets):
    return (F.log_softmax(outputs, 1)[torch.arange(len(targets)), targets] ** 2).mean()


WEIGHT = torch.tensor([1.0, 0.1, 3.0, 2.0], dtype=torch.float64)
LOSSES = {
    "class weights": nn.CrossEntropyLoss(weight=WEIGHT),
    "ignored": nn.CrossEntropyLoss(ignore_index=2),
    "weights, ignored, smoothed": nn.CrossEntropyLoss(WEIGHT, ignore_index=1, label_smoothing=0.1),
    "partial": partial(F.cross_entropy, weight=WEIGHT, ignore_index=3),
    "sum": nn.CrossEntropyLoss(reduction="sum"),
    "nll": lambda o, t: F.nll_loss(F.log_softmax(o, 1), t),
    "mean of one's own": smoothed,
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("chunk_size", [1, 20])
def test_sum_and_denominator_of_every_loss(data, name, chunk_size):
    torch.manual_seed(1)
    model, loss_fn = mlp(), LOSSES[name]
    whole = ModuleObjective(model, loss_fn, *data)
    chunked = FiniteSum(model, loss_fn, data, chunk_size=chunk_size)
    assert_same_points(whole, chunked, random_points(whole, 3), rel=1e-12)


REGRESSION = {
    "mse": F.mse_loss,
    "mse module": nn.MSELoss(),
    "huber": partial(F.huber_loss, delta=0.5),
    "bce": lambda o, t: F.binary_cross_entropy_with_logits(o, (t > 0).double()),
    "poisson": nn.PoissonNLLLoss(),
    "kl batchmean": lambda o, t: F.kl_div(
        F.log_softmax(o, 1), F.softmax(t, 1), reduction="batchmean"
    ),
    "probabilities": lambda o, t: F.cross_entropy(o, F.softmax(t, 1)),
}


@pytest.mark.parametrize("name", REGRESSION)
def test_losses_with_real_targets(data, name):
    torch.manual_seed(1)
    model, loss_fn = mlp(), REGRESSION[name]
    targets = torch.randn(ROWS, 4, dtype=torch.float64)
    whole = ModuleObjective(model, loss_fn, data[0], targets)
    chunked = FiniteSum(model, loss_fn, (data[0], targets), chunk_size=20)
    assert_same_points(whole, chunked, random_points(whole, 3), rel=1e-12)


def test_probability_targets_of_the_module(data):
    model, targets = mlp(), F.softmax(torch.randn(ROWS, 4, dtype=torch.float64), 1)
    loss_fn = nn.CrossEntropyLoss(weight=WEIGHT)
    whole = ModuleObjective(model, loss_fn, data[0], targets)
    chunked = FiniteSum(model, loss_fn, (data[0], targets), chunk_size=20)
    # With class probabilities torch divides by the number of rows, whatever the weights.
    assert chunked.at(chunked.initial()).value == pytest.approx(
        whole.at(whole.initial()).value, rel=1e-13
    )


def test_a_loss_that_weighs_rows_goes_through_summed(data):
    inputs, labels = data
    weights = torch.rand(ROWS, dtype=torch.float64)

    def weighed(outputs, targets):
        labels, w = targets
        losses = F.cross_entropy(outputs, labels, reduction="none")
        return (w * losses).sum(), w.sum()

    def mean(outputs, targets):
        total, denominator = weighed(outputs, targets)
        return total / denominator

    model = mlp()
    whole = ModuleObjective(model, mean, inputs, (labels, weights))
    chunked = FiniteSum(model, Summed(weighed), (inputs, (labels, weights)), chunk_size=9)
    assert_same_points(whole, chunked, random_points(whole, 5))


def test_tuples_and_dicts_of_inputs(data):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 4).double()

        def forward(self, one, two):
            return self.layer(one * two)

    model, inputs = Two(), (data[0], data[0].exp())
    whole = ModuleObjective(model, F.cross_entropy, inputs, data[1])
    chunked = FiniteSum(model, F.cross_entropy, (inputs, data[1]), chunk_size=20)
    assert_same_points(whole, chunked, random_points(whole, 3))


def test_inputs_without_targets(data):
    model = nn.Linear(6, 6).double()

    def spread(outputs):
        return (outputs**2).mean()

    whole = ModuleObjective(model, spread, data[0])
    chunked = FiniteSum(model, spread, (data[0],), chunk_size=20)
    assert_same_points(whole, chunked, random_points(whole, 3))


class Rows(Dataset):
    def __init__(self, inputs, targets):
        self.inputs, self.targets = inputs, targets

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, i):
        return self.inputs[i], self.targets[i]


@pytest.mark.parametrize(
    "pack",
    [
        lambda *data: Rows(*data),
        lambda *data: TensorDataset(*data),
        lambda *data: DataLoader(Rows(*data), batch_size=11),
        lambda *data: DataLoader(Rows(*data), batch_sampler=[[*range(20)], [*range(20, ROWS)]]),
    ],
    ids=["dataset", "tensor dataset", "loader", "batch sampler"],
)
def test_datasets_and_loaders_equal_tensors(model, data, pack):
    whole = ModuleObjective(model, F.cross_entropy, *data, weight_decay=1e-2)
    chunked = FiniteSum(model, F.cross_entropy, pack(*data), chunk_size=25, weight_decay=1e-2)
    assert_same_points(whole, chunked, random_points(whole, 3))
    assert_same_runs(whole, chunked)


def test_memory_mapped_equals_in_memory(model, data, tmp_path):
    inputs = np.memmap(tmp_path / "rows", dtype="float64", mode="w+", shape=tuple(data[0].shape))
    inputs[:] = data[0].numpy()
    inputs.flush()
    mapped = torch.from_numpy(np.memmap(tmp_path / "rows", np.float64, "r+", shape=inputs.shape))
    whole = ModuleObjective(model, F.cross_entropy, *data)
    chunked = FiniteSum(model, F.cross_entropy, (mapped, data[1]), chunk_size=20)
    assert_same_points(whole, chunked, random_points(whole))
    assert_same_runs(whole, chunked)


def test_gradient_difference_products(model, data):
    exact = ModuleObjective(model, F.cross_entropy, *data)
    chunked = FiniteSum(model, F.cross_entropy, data, chunk_size=8, product="difference")
    x = exact.initial()
    a, b = exact.at(x), chunked.at(x)
    Ha, Hb = a.hvp(a.grad), b.hvp(b.grad)
    assert (Ha.vector - Hb.vector).norm() <= 1e-6 * Ha.vector.norm()
    assert Hb.relative_error > 0
    assert chunked.meter.oracle_calls == 4
    assert chunked.meter.passes == 4  # two gradients: no second graph


def test_an_operation_without_second_derivative_falls_back(data):
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].cos()

    class Sine(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 4).double()

        def forward(self, x):
            return Once.apply(self.layer(x))

    for chunk_size in (8, 100):
        objective = FiniteSum(Sine(), F.cross_entropy, data, chunk_size=chunk_size)
        with pytest.warns(UserWarning, match="gradient differences from now on"):
            result = minimize(objective, objective.initial(), max_iterations=3)
        assert result.iterations == 3
        assert objective.product.mode == "difference"


def test_float32_sums_are_kept_in_float64(data):
    torch.manual_seed(1)
    model = mlp().float()
    inputs = data[0].float().repeat(10, 1)
    labels = data[1].repeat(10)
    whole = ModuleObjective(mlp(), F.cross_entropy, inputs.double(), labels)
    one = FiniteSum(model, F.cross_entropy, (inputs, labels), chunk_size=5)
    x = one.initial()
    exact = whole.at(x.double())
    assert one.at(x).value == pytest.approx(exact.value, rel=1e-7)
    error = (one.at(x).grad.double() - exact.grad).abs().max() / exact.grad.abs().max()
    assert error <= 3e-7
    assert one.at(x).grad.dtype is torch.float32


@pytest.mark.filterwarnings("ignore:.*draws random numbers:UserWarning")
def test_dropout_is_one_mask_for_all_evaluations(data):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.5), nn.Linear(9, 4)).double().train()
    objective = FiniteSum(model, F.cross_entropy, data, chunk_size=8)
    x = objective.initial()
    assert objective.at(x).value == objective.at(x).value
    point, step = objective.at(x), 1e-6
    g = point.grad
    Hg = point.hvp(g).vector
    further = objective.at(x + step * g).grad
    assert (Hg - (further - g) / step).norm() <= 1e-4 * Hg.norm()


def test_the_module_holds_the_result(model, data):
    objective = FiniteSum(model, F.cross_entropy, data, chunk_size=8, weight_decay=1e-2)
    result = minimize(objective, model, max_iterations=10)
    assert result.iterations == 10
    assert torch.equal(objective.initial(), result.x)
    loss = F.cross_entropy(model(data[0]), data[1]) + 0.5e-2 * result.x.dot(result.x)
    assert loss.item() == pytest.approx(result.value, rel=1e-13)


def test_costs_in_calls_and_in_passes(model, data):
    for chunk_size, passes in ((8, 6), (100, 4)):  # a single chunk keeps its graph
        objective = FiniteSum(
            model, F.cross_entropy, data, chunk_size=chunk_size, product="double-backward"
        )
        result = minimize(objective, model, gtol=0, max_iterations=4)
        for a, b in pairwise(result.history[1:]):
            extra = a.trials - 1
            assert b.oracle_calls - a.oracle_calls == 4 + extra
            assert b.passes - a.passes == passes + 2 * extra  # a refused trial's gradient is lost

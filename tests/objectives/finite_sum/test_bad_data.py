"""Data and losses that would make f another function each time are refused, by name."""

import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from firstish import (
    FiniteSum,
    HessianSample,
    LinearModel,
    ModuleObjective,
    NondeterministicError,
    RankError,
    Summed,
    families,
    minimize,
)

INPUTS, LABELS = torch.randn(20, 3, dtype=torch.float64), torch.arange(20) % 2


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def look(objective):
    return objective.at(objective.initial()).value


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"chunk_size": 0}, ValueError, "`FiniteSum(chunk_size=...)` must be at least 1, got 0"),
        ({"chunk_size": 2.5}, TypeError, "must be an int, got 2.5"),
        ({"weight_decay": -1.0}, ValueError, "at least 0 and finite, got -1.0"),
        ({"product": "gauss-newton"}, ValueError, "Use 'auto'"),
        ({"product": "newton"}, ValueError, "unknown"),
        ({"hessian_sample": 0}, ValueError, "count of at least 1 or a fraction in (0, 1], got 0"),
        ({"hessian_sample": 1.5}, ValueError, "got 1.5"),
        ({"hessian_sample": "all"}, TypeError, "a count, a fraction"),
    ],
)
def test_settings(arguments, error, words):
    with pytest.raises(error) as caught:
        FiniteSum(net(), F.cross_entropy, (INPUTS, LABELS), **arguments)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ((INPUTS[:0], LABELS[:0]), ValueError, "is empty"),
        ((INPUTS, LABELS[:-1]), ValueError, "different numbers of rows: 20, 19"),
        ((INPUTS.numpy(), LABELS.numpy()), TypeError, "Use `torch.as_tensor`"),
        ({"x": INPUTS}, TypeError, "a Dataset or a DataLoader, got dict"),
        (TensorDataset(INPUTS[:0], LABELS[:0]), ValueError, "is empty"),
    ],
)
def test_data(data, error, words):
    with pytest.raises(error) as caught:
        FiniteSum(net(), F.cross_entropy, data)
    assert words in str(caught.value)


def test_model_and_loss():
    with pytest.raises(TypeError, match=r"must be an nn\.Module"):
        FiniteSum(lambda x: x, F.cross_entropy, (INPUTS, LABELS))
    with pytest.raises(TypeError, match="must be callable"):
        FiniteSum(net(), "mse", (INPUTS, LABELS))
    with pytest.raises(ValueError, match="`reduction='none'`, but f is one number"):
        FiniteSum(net(), nn.CrossEntropyLoss(reduction="none"), (INPUTS, LABELS))
    with pytest.raises(TypeError, match=r"must return \(sum, denominator\), got Tensor"):
        look(FiniteSum(net(), Summed(F.cross_entropy), (INPUTS, LABELS)))


@pytest.mark.parametrize("label", [2, -1])
def test_labels_out_of_range(label):
    labels = LABELS.clone()
    labels[13] = label
    with pytest.raises(ValueError, match=rf"has the label {label}, .* labels must be 0 to 1"):
        look(FiniteSum(net(), F.cross_entropy, (INPUTS, labels), chunk_size=7))


def test_every_target_ignored():
    with pytest.raises(ValueError, match="nothing to average over"):
        look(FiniteSum(net(), F.cross_entropy, (INPUTS, torch.full((20,), -100)), check=False))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"shuffle": True}, "has a RandomSampler. Use `shuffle=False`"),
        ({"drop_last": True, "batch_size": 3}, "`drop_last=True`"),
        (
            {"sampler": torch.utils.data.SubsetRandomSampler(range(20))},
            "has a SubsetRandomSampler",
        ),
        (
            {
                "sampler": torch.utils.data.DistributedSampler(
                    TensorDataset(INPUTS), num_replicas=3, rank=0, shuffle=False
                )
            },
            "DistributedSampler repeats some",
        ),
    ],
)
def test_loaders_that_do_not_give_every_row_in_order(settings, words):
    loader = DataLoader(TensorDataset(INPUTS, LABELS), **settings)
    with pytest.raises(ValueError, match=r"FiniteSum") as caught:
        FiniteSum(net(), F.cross_entropy, loader)
    assert words in str(caught.value)


class Augmented(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, i):
        return INPUTS[i] + 0.01 * torch.randn(3, dtype=torch.float64), LABELS[i]


class Stream(IterableDataset):
    """Used up after one pass."""

    def __init__(self):
        self.rows = iter(zip(INPUTS, LABELS, strict=True))

    def __iter__(self):
        return self.rows


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Augmented(), "chunk 0 differs"),
        (DataLoader(Augmented(), batch_size=5), "random augmentation"),
        (DataLoader(Stream(), batch_size=5), "4 chunks the first time and 0 the second"),
    ],
)
def test_data_that_changes(data, words):
    with pytest.raises(NondeterministicError) as caught:
        look(FiniteSum(net(), F.cross_entropy, data))
    assert words in str(caught.value)


def test_an_iterable_dataset_needs_a_loader():
    with pytest.raises(TypeError, match="Wrap it in `DataLoader"):
        FiniteSum(net(), F.cross_entropy, Stream())


def test_batch_norm_in_train_mode_is_named():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    with pytest.raises(ValueError, match=r"depends on the chunk: '1', BatchNorm1d"):
        look(FiniteSum(model, F.cross_entropy, (INPUTS, LABELS)))
    look(FiniteSum(model.eval(), F.cross_entropy, (INPUTS, LABELS)))
    model = nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 2)).double()
    with pytest.raises(ValueError, match=r"depends on the chunk: '0'"):
        look(FiniteSum(model.eval(), F.cross_entropy, (INPUTS, LABELS)))


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


@pytest.mark.parametrize("of_halves", [False, True])
def test_a_loss_function_that_returns_a_sum_is_told_from_rows_that_mix(of_halves):
    model = nn.Linear(3, 1)
    X, Y = torch.randn(10, 3), torch.randn(10, 1)
    settings = {"chunk_size": 5} if of_halves else {}
    objective = FiniteSum(model, lambda o, t: ((o - t) ** 2).sum(), (X, Y), **settings)
    with pytest.raises(ValueError, match=r"returns the sum over its rows.*must return the mean"):
        minimize(objective, model)


def test_rows_that_depend_on_each_other():
    model = nn.Sequential(nn.Linear(3, 2), Centred()).double()
    with pytest.raises(ValueError, match="rows are not independent"):
        look(FiniteSum(model, F.cross_entropy, (INPUTS, LABELS)))

    def weighed(outputs, labels):
        return F.cross_entropy(outputs, labels, weight=torch.tensor([1.0, 9.0]).double())

    uneven = torch.cat([LABELS[:15], torch.zeros(5, dtype=torch.int64)])
    with pytest.raises(ValueError, match=r"through `firstish.Summed\(fn\)`"):
        look(FiniteSum(net(), weighed, (INPUTS, uneven)))


def test_a_loss_that_differs_between_two_evaluations():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(3, 2).double(), 0

        def forward(self, x):
            self.calls += 1
            return self.layer(x) * self.calls

    with pytest.raises(NondeterministicError, match="Counting"):
        look(FiniteSum(Counting(), F.cross_entropy, (INPUTS, LABELS)))


def test_a_loss_without_parameters():
    with pytest.raises(ValueError, match="does not depend on the parameters"):
        look(FiniteSum(net(), lambda o, t: torch.tensor(1.0), (INPUTS, LABELS)))


@pytest.mark.filterwarnings("ignore:.*draws random numbers:UserWarning")
def test_samples_need_rows_and_no_dropout():
    loader = DataLoader(Stream(), batch_size=5)
    with pytest.raises(ValueError, match="needs rows by index"):
        FiniteSum(net(), F.cross_entropy, loader, hessian_sample=5)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2)).double().train()
    objective = FiniteSum(model, F.cross_entropy, (INPUTS, LABELS), hessian_sample=5)
    point = objective.at(objective.initial())
    with pytest.raises(ValueError, match=r"Use `model.eval\(\)`"):
        point.hvp(point.grad)
    with pytest.raises(ValueError, match="error"):
        HessianSample(error=0.0, failure_probability=0.1, max_lipschitz=1.0)


def test_a_model_wrapped_in_data_parallel_is_unwrapped():
    model = net()
    with pytest.warns(UserWarning, match="DataParallel, which does not support second derivatives"):
        objective = FiniteSum(nn.DataParallel(model), F.cross_entropy, (INPUTS, LABELS))
    assert objective.model is model


def test_a_process_group_needs_torchrun():
    with pytest.raises(ValueError, match="start the script with `torchrun`"):
        FiniteSum(net(), F.cross_entropy, (INPUTS, LABELS), process_group=object())


def test_a_destroyed_process_group_is_let_go_of_and_named():
    """A thread of a group that outlives `destroy_process_group` can abort the interpreter's end."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    group = weakref.ref(torch.distributed.group.WORLD)
    objective = FiniteSum(
        net(), F.cross_entropy, (INPUTS, LABELS), process_group=torch.distributed.group.WORLD
    )
    minimize(objective, objective.initial(), max_iterations=2)
    torch.distributed.destroy_process_group()
    assert group() is None
    with pytest.raises(RankError, match="was destroyed"):
        _ = objective.group.process_group


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ignored", [[13], list(range(5)), [0]])
def test_a_loss_of_ones_own_that_ignores_rows_is_refused(dtype, ignored):
    """Wherever they are, and however few: the halves of the first chunk may not show it."""
    inputs, labels = INPUTS.to(dtype), LABELS.clone()
    labels[ignored] = -100
    model = net().to(dtype)

    def own(outputs, targets):
        return F.cross_entropy(outputs, targets)

    objective = FiniteSum(model, own, (inputs, labels), chunk_size=5)
    with pytest.raises(ValueError, match="leaves rows with negative labels out of its mean"):
        look(objective)
    look(FiniteSum(model, F.cross_entropy, (inputs, labels), chunk_size=5))


def test_negative_labels_that_count_like_others_are_fine():
    labels = LABELS * 2 - 1  # -1 and 1, as for a margin

    def hinge(outputs, targets):
        return F.softplus(-outputs[:, 0] * targets).mean()

    assert look(FiniteSum(net(), hinge, (INPUTS, labels), chunk_size=5)) > 0


def test_a_loader_of_single_samples_is_refused():
    loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=None)
    with pytest.raises(TypeError, match="`batch_size=None` gives single samples"):
        look(FiniteSum(net(), F.cross_entropy, loader))


@pytest.mark.parametrize("make", [FiniteSum, lambda m, loss, data: ModuleObjective(m, loss, *data)])
def test_the_class_of_a_loss_is_refused(make):
    with pytest.raises(TypeError, match=r"is the class CrossEntropyLoss. Pass an instance"):
        make(net(), nn.CrossEntropyLoss, (INPUTS, LABELS))


def test_batch_norm_that_keeps_no_statistics_is_not_told_to_eval():
    model = nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 2)).double()
    with pytest.raises(ValueError, match=r"It keeps no statistics\. Use another normalisation"):
        look(FiniteSum(model.eval(), F.cross_entropy, (INPUTS, LABELS)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: FiniteSum(net(), F.cross_entropy, (INPUTS, LABELS)),
        lambda: LinearModel(INPUTS, LABELS, families.Logistic()),
    ],
)
def test_one_of_several_processes_without_a_group_is_told_so(make, monkeypatch):
    """`process_group=dist.group.WORLD` is None before `init_process_group`."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match="this is one of 2 processes: each minimises over its own"):
        make()

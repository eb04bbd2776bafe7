"""skorch: its training step is a closure already, and takes the steps of a bare loop."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from firstish import ScaledGD

skorch = pytest.importorskip("skorch", reason="make test-all installs skorch")
from skorch.callbacks import Checkpoint, GradientNormClipping, LRScheduler  # noqa: E402
from skorch.helper import predefined_split  # noqa: E402
from torch.optim.lr_scheduler import StepLR  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
EPOCHS = 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))

    def forward(self, x):
        return self.layers(x)


class Exact(skorch.NeuralNetClassifier):
    """A training step without `backward()`: exact products."""

    def train_step_single(self, batch, **fit_params):
        self._set_training(True)
        x, y = batch
        y_pred = self.infer(x, **fit_params)
        return {"loss": self.get_loss(y_pred, y, X=x, training=True), "y_pred": y_pred}


@pytest.fixture
def data():
    x = np.random.default_rng(1).normal(size=(24, 3)).astype(np.float32)
    return x, (x[:, 0] * x[:, 1] > 0).astype(np.int64)


def build(kind, epochs=EPOCHS, **options):
    settings = {
        "criterion": nn.CrossEntropyLoss,
        "optimizer": ScaledGD,
        "lr": 1.0,
        "max_epochs": epochs,
        "batch_size": -1,
        "train_split": None,
        "verbose": 0,
    }
    return kind(Net, **{**settings, **options})


def bare(data, kind, epochs=EPOCHS, scheduled=False):
    x, y = map(torch.from_numpy, data)
    model = Net()
    optimizer = ScaledGD(model.parameters())
    scheduler = StepLR(optimizer, 2, gamma=0.5) if scheduled else None
    losses = []
    for _ in range(epochs):

        def closure():
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            if kind is not Exact:
                loss.backward()
            return loss

        losses.append(optimizer.step(closure).item())
        if scheduler is not None:
            scheduler.step()
    return model, losses


def same(one, two):
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))


kinds = pytest.mark.parametrize("kind", [skorch.NeuralNetClassifier, Exact])


@kinds
@pytest.mark.parametrize("scheduled", [False, True])
def test_it_takes_the_steps_of_a_bare_loop_to_the_bit(data, kind, scheduled):
    callbacks = [LRScheduler(StepLR, step_size=2, gamma=0.5)] if scheduled else []
    net = build(kind, callbacks=callbacks).fit(*data)
    model, losses = bare(data, kind, scheduled=scheduled)
    assert net.history[:, "train_loss"] == losses  # the loss before each step, of one evaluation
    assert same(net.module_, model)
    assert losses[-1] < losses[0]
    mode = "auto" if kind is Exact else "difference"
    assert net.optimizer_._objective.product.mode == mode


@kinds
def test_saved_parameters_go_on_to_the_same_numbers(tmp_path, data, kind):
    whole = build(kind).fit(*data)
    files = {"f_params": tmp_path / "p.pt", "f_optimizer": tmp_path / "o.pt"}
    half = build(kind, epochs=3).fit(*data)
    half.save_params(**files)
    rest = build(kind, epochs=EPOCHS - 3).initialize()
    rest.load_params(**files)
    rest.partial_fit(*data)
    losses = half.history[:, "train_loss"] + rest.history[:, "train_loss"]
    assert losses == whole.history[:, "train_loss"]
    assert same(rest.module_, whole.module_)


@kinds
def test_a_pickled_net_goes_on_to_the_same_numbers(data, kind):
    whole = build(kind).fit(*data)
    half = build(kind, epochs=3).fit(*data)
    rest = pickle.loads(pickle.dumps(half))
    rest.set_params(max_epochs=EPOCHS - 3)
    rest.partial_fit(*data)
    assert rest.history[:, "train_loss"] == whole.history[:, "train_loss"]
    assert same(rest.module_, whole.module_)


def test_validation_and_checkpoints_work(tmp_path, data):
    valid = skorch.dataset.Dataset(*data)
    net = build(
        skorch.NeuralNetClassifier,
        train_split=predefined_split(valid),
        callbacks=[Checkpoint(monitor="valid_loss_best", dirname=tmp_path)],
    ).fit(*data)
    assert (tmp_path / "optimizer.pt").exists()
    before = net.history[:, "train_loss"]
    after = net.history[:, "valid_loss"]  # of the same rows, after the step
    assert after[:-1] == pytest.approx(before[1:], rel=1e-6)


def test_the_learning_rate_of_skorch_is_a_short_first_trial_step(data):
    """Its default is 0.01: pass lr=1.0."""
    net = skorch.NeuralNetClassifier(
        Net, criterion=nn.CrossEntropyLoss, optimizer=ScaledGD, train_split=None, verbose=0
    )
    net.set_params(max_epochs=1, batch_size=-1)
    with pytest.warns(UserWarning, match="not a learning rate. Leave it at 1.0"):
        net.fit(*data)
    assert net.optimizer_.last_step.step_size == 0.01


def test_settings_are_passed_on(data):
    net = build(Exact, optimizer__method="MR", optimizer__reuse_value=True).fit(*data)
    assert net.optimizer_.last_step.scaling == "MR"
    assert net.optimizer_.last_step.iteration == EPOCHS - 1


def test_clipped_gradients_are_refused(data):
    net = build(skorch.NeuralNetClassifier, callbacks=[GradientNormClipping(0.01)])
    with pytest.raises(ValueError, match="not those of the loss"):
        net.fit(*data)


def test_micro_batches_in_one_closure_are_the_whole_batch(data):
    """Gradient accumulation: a batch holds all, and one training step walks through it."""

    class Chunks(skorch.NeuralNetClassifier):
        def train_step_single(self, batch, **fit_params):
            parts = zip(*(t.split(6) for t in batch), strict=True)
            steps = [super(Chunks, self).train_step_single(p, **fit_params) for p in parts]
            return {
                "loss": sum(step["loss"].detach() for step in steps),
                "y_pred": torch.cat([step["y_pred"] for step in steps]),
            }

        def get_loss(self, y_pred, y_true, *args, training=False, **kwargs):
            loss = super().get_loss(y_pred, y_true, *args, training=training, **kwargs)
            return loss / 4 if training else loss

    net = build(Chunks).fit(*data)
    _, losses = bare(data, Chunks)
    assert net.history[:, "train_loss"] == pytest.approx(losses, rel=1e-3)

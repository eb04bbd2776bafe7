"""Lightning: automatic and manual optimization take the steps of a bare loop."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from firstish import ScaledGD

lightning = pytest.importorskip("lightning", reason="make test-all installs lightning")
from lightning.pytorch.plugins import MixedPrecision  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*number of training batches"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
EPOCHS = 6
BATCH = 8


@pytest.fixture
def data():
    torch.manual_seed(1)
    return torch.randn(16, 3), torch.randn(16, 2)


def net(*layers):
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 5), *layers, nn.Tanh(), nn.Linear(5, 2))


class Automatic(lightning.LightningModule):
    """As for any other optimizer: Lightning's closure runs training_step and backward."""

    def __init__(self, model, scheduled=False, **settings):
        super().__init__()
        self.model, self.scheduled, self.settings = model, scheduled, settings
        self.losses = []

    def training_step(self, batch, index):
        return mse_loss(self.model(batch[0]), batch[1])

    def on_train_batch_start(self, batch, index):
        torch.manual_seed(100 * self.current_epoch + index)  # loaders and checks draw numbers too

    def on_train_batch_end(self, outputs, batch, index):
        row = self.trainer.optimizers[0].last_step
        if row is None:  # no step yet
            return
        self.log_dict({"loss": row.value, "step_size": row.step_size})
        self.losses.append(row.value)

    def configure_optimizers(self):
        optimizer = ScaledGD(self.model.parameters(), **{"method": "CGMR", **self.settings})
        if not self.scheduled:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": StepLR(optimizer, 2, gamma=0.5)}


class Manual(Automatic):
    """A closure without backward: exact products."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.automatic_optimization = False

    def training_step(self, batch, index):
        self.optimizers().step(lambda: mse_loss(self.model(batch[0]), batch[1]))

    def on_train_epoch_end(self):
        if self.scheduled:
            self.lr_schedulers().step()


def trainer(folder, epochs=EPOCHS, **options):
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    options = {**quiet, "accelerator": "cpu", "devices": 1, **options}
    return lightning.Trainer(default_root_dir=folder, max_epochs=epochs, **options)


def loader(data):
    return DataLoader(TensorDataset(*data), batch_size=BATCH)


def bare(model, data, kind, epochs=EPOCHS, scheduled=False, around=None, **settings):
    """The same without Lightning: the losses before each step."""
    optimizer = ScaledGD(model.parameters(), **{"method": "CGMR", **settings})
    scheduler = StepLR(optimizer, 2, gamma=0.5) if scheduled else None
    losses = []
    batches = list(zip(*(t.split(BATCH) for t in data), strict=True))
    for epoch in range(epochs):
        for index, (x, y) in enumerate(batches):
            torch.manual_seed(100 * epoch + index)

            def closure(x=x, y=y):
                optimizer.zero_grad()
                if around is None:
                    loss = mse_loss(model(x), y)
                else:
                    with around():
                        loss = mse_loss(model(x), y)
                if kind is Automatic:
                    loss.backward()
                    return loss.detach()
                return loss

            losses.append(optimizer.step(closure).item())
        if scheduler is not None:
            scheduler.step()
    return losses


def same(one, two):
    mine, theirs = one.state_dict(), two.state_dict()
    assert mine.keys() == theirs.keys()
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


kinds = pytest.mark.parametrize("kind", [Automatic, Manual])


@kinds
@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("layer", [nn.Identity(), nn.Dropout(0.2), nn.BatchNorm1d(5)], ids=repr)
def test_it_takes_the_steps_of_a_bare_loop_to_the_bit(tmp_path, data, kind, scheduled, layer):
    module = kind(net(copy.deepcopy(layer)), scheduled)
    twin = net(copy.deepcopy(layer))
    job = trainer(tmp_path)
    job.fit(module, loader(data))
    assert module.losses == bare(twin, data, kind, scheduled=scheduled)
    assert job.optimizers[0].last_step.step_size == (0.25 if scheduled else 1)
    assert same(module.model, twin)


def test_manual_products_are_exact_and_automatic_ones_differences(tmp_path, data):
    for kind, mode in ((Automatic, "difference"), (Manual, "double-backward")):
        module = kind(net())
        job = trainer(tmp_path)
        job.fit(module, loader(data))
        assert job.optimizers[0]._objective.product.mode == mode
        assert module.losses[-1] < module.losses[0]


@kinds
def test_metrics_are_those_of_the_steps_however_often_the_closure_ran(tmp_path, data, kind):
    module = kind(net())
    job = trainer(tmp_path)
    job.fit(module, loader(data))
    assert job.global_step == EPOCHS * 2
    assert job.logged_metrics["loss"].item() == pytest.approx(module.losses[-1], rel=1e-6)
    assert job.logged_metrics["step_size"] == 1


@kinds
@pytest.mark.parametrize("method", ["CGMR", "CGMRGM"])
def test_a_checkpoint_goes_on_to_the_same_numbers(tmp_path, data, kind, method):
    whole = kind(net(), scheduled=True, method=method)
    trainer(tmp_path).fit(whole, loader(data))
    half = kind(net(), scheduled=True, method=method)
    job = trainer(tmp_path, epochs=3)
    job.fit(half, loader(data))
    job.save_checkpoint(tmp_path / "half.ckpt")
    rest = kind(net(), scheduled=True, method=method)
    trainer(tmp_path).fit(rest, loader(data), ckpt_path=tmp_path / "half.ckpt")
    assert half.losses + rest.losses == whole.losses
    assert same(rest.model, whole.model)


@kinds
def test_bf16_mixed_trains_float32_parameters_and_its_noise_is_noticed(tmp_path, data, kind):
    module, twin = kind(net()), net()
    job = trainer(tmp_path, precision="bf16-mixed")
    job.fit(module, loader(data))
    assert job.optimizers[0]._objective.eps == torch.finfo(torch.bfloat16).eps
    assert {p.dtype for p in module.parameters()} == {torch.float32}

    def around():
        return torch.autocast("cpu", dtype=torch.bfloat16)

    assert module.losses == bare(twin, data, kind, around=around)
    assert same(module.model, twin)
    assert module.losses[-2] < module.losses[0]


def scaled(folder):
    plugin = MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu", init_scale=2.0))
    return trainer(folder, plugins=[plugin])


def test_a_grad_scaler_is_refused_with_advice(tmp_path, data):
    with pytest.raises(RuntimeError, match=r"GradScaler.*bfloat16.*inside the closure"):
        scaled(tmp_path).fit(Automatic(net()), loader(data))


def test_in_manual_optimization_the_scaler_itself_refuses(tmp_path, data):
    """Nothing was scaled, as there was no `manual_backward`: torch's error comes before ours."""
    with pytest.raises(AssertionError, match=r"did not use scaler\.scale"):
        scaled(tmp_path).fit(Manual(net()), loader(data))


def test_accumulated_batches_are_refused_with_the_remedy(tmp_path, data):
    with pytest.raises(ValueError, match=r"accumulate_grad_batches"):
        trainer(tmp_path, accumulate_grad_batches=2).fit(Automatic(net()), loader(data))


def test_clipped_gradients_are_refused_with_the_remedy(tmp_path, data):
    with pytest.raises(ValueError, match=r"gradient_clip_val"):
        trainer(tmp_path, gradient_clip_val=0.01).fit(Automatic(net()), loader(data))


def test_step_without_a_closure_is_refused(tmp_path, data):
    class Forgetful(Manual):
        def training_step(self, batch, index):
            self.manual_backward(mse_loss(self.model(batch[0]), batch[1]))
            self.optimizers().step()

    with pytest.raises(TypeError, match=r"`step\(\)` without a closure"):
        trainer(tmp_path).fit(Forgetful(net()), loader(data))


@pytest.mark.filterwarnings(
    "ignore:`training_step` returned `None`", "ignore:The closure returned None"
)
def test_a_batch_may_be_skipped_by_none(tmp_path, data):
    class Picky(Automatic):
        def training_step(self, batch, index):
            loss = super().training_step(batch, index)
            return loss if loss.isfinite() else None

    spoilt = (data[0].clone(), data[1])
    spoilt[0][-1] = math.nan  # the second batch of each epoch
    module, twin = Picky(net()), net()
    job = trainer(tmp_path)
    job.fit(module, loader(spoilt))
    bare(twin, [t[:BATCH] for t in data], Automatic)
    assert same(module.model, twin)
    assert job.optimizers[0].last_step.iteration == EPOCHS - 1


def test_a_whole_batch_over_several_micro_batches_is_one_closure(tmp_path, data):
    """Gradient accumulation: the batch of a loader holds all; the closure walks through it."""

    class Chunks(Manual):
        def training_step(self, batch, index):
            optimizer = self.optimizers()

            def closure():
                optimizer.zero_grad()
                total = 0.0
                for x, y in zip(*(t.split(4) for t in batch), strict=True):
                    loss = mse_loss(self.model(x), y) * len(x) / len(batch[0])
                    self.manual_backward(loss)
                    total += loss.detach()
                return total

            optimizer.step(closure)

    module, twin = Chunks(net()), net()
    trainer(tmp_path).fit(module, DataLoader(TensorDataset(*data), batch_size=16))
    optimizer = ScaledGD(twin.parameters(), method="CGMR")
    for _ in range(EPOCHS):
        optimizer.step(lambda: mse_loss(twin(data[0]), data[1]))
    for mine, theirs in zip(module.model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-3)


@pytest.mark.filterwarnings("ignore:.*minimises the loss of this process alone:UserWarning")
def test_ddp_is_refused(tmp_path, data):
    """Two processes: each would take its own step."""
    module = Automatic(net())
    job = trainer(tmp_path, strategy="ddp_fork", devices=2, use_distributed_sampler=False)
    with pytest.raises(Exception, match=r"DistributedDataParallel on 2 processes"):
        job.fit(module, loader(data))

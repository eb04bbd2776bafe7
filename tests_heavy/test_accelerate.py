"""Hugging Face Accelerate: a prepared optimizer takes the steps of a bare one."""

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from firstish import ScaledGD

accelerate = pytest.importorskip("accelerate", reason="make test-all installs accelerate")
from accelerate.optimizer import AcceleratedOptimizer  # noqa: E402
from accelerate.state import AcceleratorState, GradientState, PartialState  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
STEPS = 8


@pytest.fixture(autouse=True)
def alone():
    """Its settings are global: each test begins without any."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    PartialState._reset_state()


@pytest.fixture
def data():
    torch.manual_seed(1)
    return torch.randn(16, 3), torch.randn(16, 2)


def net():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def vector(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def run(accelerator, data, kind, steps=STEPS, resume=None, save=None):
    """The recipe: prepare, then a closure for each batch; the losses before each step."""
    model = net()
    optimizer = ScaledGD(model.parameters(), method="CGMR")
    scheduler = StepLR(optimizer, 3, gamma=0.5)
    batches = DataLoader(TensorDataset(*data), batch_size=8)
    model, optimizer, scheduler, batches = accelerator.prepare(model, optimizer, scheduler, batches)
    if resume is not None:
        accelerator.load_state(resume)
    losses = []
    while len(losses) < steps:
        for x, y in batches:

            def closure(x=x, y=y):
                optimizer.zero_grad()
                loss = mse_loss(model(x), y)
                if kind == "backward":
                    accelerator.backward(loss)
                return loss

            optimizer.step(closure)
            scheduler.step()
            losses.append(optimizer.optimizer.last_step.value)
    if save is not None:
        accelerator.save_state(save)
    return model, optimizer, losses


def bare(data, kind, steps=STEPS, around=None):
    model = net()
    optimizer = ScaledGD(model.parameters(), method="CGMR")
    scheduler = StepLR(optimizer, 3, gamma=0.5)
    batches = list(zip(*(t.split(8) for t in data), strict=True))
    losses = []
    for k in range(steps):
        x, y = batches[k % 2]

        def closure(x=x, y=y):
            optimizer.zero_grad()
            if around is None:
                loss = mse_loss(model(x), y)
            else:
                with around():
                    outputs = model(x)
                loss = mse_loss(outputs.float(), y)
            if kind == "backward":
                loss.backward()
            return loss

        losses.append(optimizer.step(closure).item())
        scheduler.step()
    return model, losses


kinds = pytest.mark.parametrize("kind", ["loss", "backward"])


@kinds
def test_it_takes_the_steps_of_a_bare_loop_to_the_bit(data, kind):
    model, optimizer, losses = run(accelerate.Accelerator(cpu=True), data, kind)
    twin, expected = bare(data, kind)
    assert losses == expected
    assert torch.equal(vector(model), vector(twin))
    assert losses[-2] < losses[0]
    assert optimizer.optimizer.last_step.step_size == 0.25  # the schedule's: 1, 1/2, 1/4
    mode = {"loss": "double-backward", "backward": "difference"}[kind]
    assert optimizer.optimizer._objective.product.mode == mode


@kinds
def test_a_saved_state_goes_on_to_the_same_numbers(tmp_path, data, kind):
    _, _, whole = run(accelerate.Accelerator(cpu=True), data, kind)
    _, _, half = run(accelerate.Accelerator(cpu=True), data, kind, steps=4, save=tmp_path / "s")
    _, _, rest = run(accelerate.Accelerator(cpu=True), data, kind, steps=4, resume=tmp_path / "s")
    assert half + rest == whole


@kinds
def test_bf16_is_that_of_autocast_in_the_closure(data, kind):
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
    model, optimizer, losses = run(accelerator, data, kind)
    twin, expected = bare(data, kind, around=lambda: torch.autocast("cpu", dtype=torch.bfloat16))
    assert losses == expected
    assert torch.equal(vector(model), vector(twin))
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert optimizer.optimizer._objective.eps == torch.finfo(torch.bfloat16).eps


@kinds
def test_micro_batches_in_one_closure_are_the_whole_batch(data, kind):
    """Instead of `accelerator.accumulate`, which would keep the closure from being called."""
    accelerator = accelerate.Accelerator(cpu=True)
    model = net()
    model, optimizer = accelerator.prepare(model, ScaledGD(model.parameters(), method="CGMR"))
    micro = list(zip(*(t.split(4) for t in data), strict=True))

    def closure():
        optimizer.zero_grad()
        total = 0.0
        for x, y in micro:
            loss = mse_loss(model(x), y) / len(micro)
            if kind == "backward":
                accelerator.backward(loss)
                loss = loss.detach()
            total = total + loss
        return total

    twin = net()
    other = ScaledGD(twin.parameters(), method="CGMR")
    for _ in range(5):
        optimizer.step(closure)
        other.step(lambda: mse_loss(twin(data[0]), data[1]))
    torch.testing.assert_close(vector(model), vector(twin), rtol=2e-2, atol=2e-3)


def test_gradients_divided_by_the_accumulation_steps_are_noticed(data):
    """`Accelerator(gradient_accumulation_steps=4).backward` divides; the loss returned is whole."""
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    with pytest.raises(ValueError, match="not those of the loss it returns"):
        run(accelerator, data, "backward")


@pytest.mark.parametrize("given", [True, False], ids=["closure", "none"])
def test_a_grad_scaler_is_refused_with_advice(data, given):
    accelerate.Accelerator(cpu=True)
    model = net()
    scaler = torch.amp.GradScaler("cpu")
    optimizer = AcceleratedOptimizer(ScaledGD(model.parameters(), method="CGMR"), scaler=scaler)
    scaler.scale(mse_loss(model(data[0]), data[1])).backward()
    closure = (lambda: mse_loss(model(data[0]), data[1])) if given else None
    with pytest.raises(RuntimeError, match=r"GradScaler.*bfloat16.*inside the closure"):
        optimizer.step(closure)


def test_step_without_a_closure_is_refused(data):
    accelerator = accelerate.Accelerator(cpu=True)
    model = net()
    optimizer = accelerator.prepare(ScaledGD(model.parameters(), method="CGMR"))
    accelerator.backward(mse_loss(model(data[0]), data[1]))
    with pytest.raises(ValueError, match="needs a closure"):
        optimizer.step()

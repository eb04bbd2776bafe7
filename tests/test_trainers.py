"""What trainers do to an optimizer and its closure, without the trainers: tests_heavy has those."""

import copy
import math
import os
import subprocess
import sys
import warnings
from collections import namedtuple
from functools import partial
from pathlib import Path

import pytest
import torch
from marks import AOT
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_, parameters_to_vector

import firstish
from firstish import (
    Armijo,
    FunctionObjective,
    ModuleObjective,
    ProductError,
    ScaledGD,
    ScaledGradient,
)

# The paper's method is what these tests are about, not the default one.
minimize = partial(firstish.minimize, method="CGMR")

BF16 = torch.finfo(torch.bfloat16).eps
FLOAT32 = torch.finfo(torch.float32).eps
both = pytest.mark.parametrize("reuse", [True, False], ids=["reuse", "fresh"])


def net(*layers):
    return nn.Sequential(nn.Linear(3, 4), *layers, nn.Tanh(), nn.Linear(4, 2))


def vector(model):
    return parameters_to_vector(model.parameters()).detach().clone()


@pytest.fixture
def data():
    return torch.randn(12, 3), torch.randn(12, 2)


# step() without a closure, and a GradScaler


def test_step_without_a_closure_names_the_trainer_that_does_so():
    optimizer = ScaledGD(net().parameters())
    with pytest.raises(ValueError, match=r"needs a closure.*Hugging Face.*docs/trainers\.md"):
        optimizer.step()


def scaled_step(scaler, optimizer, *closure, unscale=False):
    """The usual lines with a scaler, as in torch's documentation."""
    loss = sum((p**2).sum() for group in optimizer.param_groups for p in group["params"])
    scaler.scale(loss).backward()
    if unscale:
        scaler.unscale_(optimizer)
    return scaler.step(optimizer, *closure)


@pytest.mark.parametrize("unscale", [True, False])
@pytest.mark.parametrize("given", [True, False], ids=["closure", "none"])
def test_a_grad_scaler_is_refused_with_advice_and_leaves_no_trace(data, given, unscale):
    model = net()
    twin = copy.deepcopy(model)
    before = vector(model)
    optimizer = ScaledGD(model.parameters())
    closure = [lambda: mse_loss(model(data[0]), data[1])] * given
    scaler = torch.amp.GradScaler("cpu")
    advice = r"GradScaler.*bfloat16, which needs no scaler.*inside the closure"
    with pytest.raises(RuntimeError, match=advice):
        scaled_step(scaler, optimizer, *closure, unscale=unscale)
    assert torch.equal(vector(model), before)
    optimizer.zero_grad()
    optimizer.step(lambda: mse_loss(model(data[0]), data[1]))  # without one it works
    ScaledGD(twin.parameters()).step(lambda: mse_loss(twin(data[0]), data[1]))
    assert torch.equal(vector(model), vector(twin))


def test_a_disabled_grad_scaler_is_none(data):
    model = net()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    optimizer = ScaledGD(model.parameters())
    before = mse_loss(model(data[0]), data[1])
    loss = scaler.step(optimizer, lambda: mse_loss(model(data[0]), data[1]))
    assert torch.equal(loss, before.detach())


# Gradients that are not those of the loss


def backward_closure(model, optimizer, data, zero=True, factor=1.0, clip=None, to_none=True):
    def closure():
        if zero:
            optimizer.zero_grad(set_to_none=to_none)
        loss = mse_loss(model(data[0]), data[1])
        (factor * loss).backward()
        if clip is not None:
            clip_grad_norm_(model.parameters(), clip)
        return loss

    return closure


@pytest.mark.parametrize("wrong", [{"factor": 65536.0}, {"factor": 0.5}, {"clip": 1e-2}])
@both
def test_gradients_that_are_not_those_of_the_loss_are_refused(data, wrong, reuse):
    model = net()
    before = vector(model)
    optimizer = ScaledGD(model.parameters(), reuse_value=reuse)
    message = r"not those of the loss.*gradient_clip_val.*loss scaling"
    with pytest.raises(ValueError, match=message):
        optimizer.step(backward_closure(model, optimizer, data, **wrong))
    assert torch.equal(vector(model), before)


@pytest.mark.parametrize("method", ["lazy", "CGMR"])
@both
def test_the_gradients_are_compared_with_the_loss_by_one_evaluation(data, method, reuse):
    """That of the first product, or where there is none one of its own."""
    model, calls = net(), []
    optimizer = ScaledGD(model.parameters(), method=method, reuse_value=reuse)
    closure = backward_closure(model, optimizer, data)
    optimizer.step(lambda: calls.append(1) or closure())
    start, twice, compared = 1, 1, 1
    assert len(calls) == start + twice + compared + optimizer.last_step.trials


@pytest.mark.parametrize("harmless", [{}, {"factor": 1.1}, {"clip": 1e3}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_that_are_those_of_the_loss_are_not(data, harmless, dtype):
    """Nor small deviations: a ridge outside of the returned loss is not ours to judge."""
    model, data = net().to(dtype), [t.to(dtype) for t in data]
    optimizer = ScaledGD(model.parameters())
    for _ in range(40):
        optimizer.step(backward_closure(model, optimizer, data, **harmless))
    assert optimizer.last_step.failure is None


def test_unchecked_gradients_are_taken_as_they_are(data):
    model = net()
    optimizer = ScaledGD(model.parameters(), check=False)
    first = optimizer.step(backward_closure(model, optimizer, data, clip=0.1))
    assert mse_loss(model(data[0]), data[1]) < first


@both
@pytest.mark.parametrize("step", [0, 2])
def test_gradients_accumulated_outside_of_the_closure_are_refused(data, reuse, step):
    """As Lightning's accumulate_grad_batches does: one zero_grad for several batches."""
    model = net()
    optimizer = ScaledGD(model.parameters(), reuse_value=reuse)
    for _ in range(step):
        optimizer.step(backward_closure(model, optimizer, data))
    optimizer.zero_grad()
    mse_loss(model(data[0]), data[1]).backward()
    before, grads = vector(model), [p.grad.clone() for p in model.parameters()]
    with pytest.raises(ValueError, match=r"adds to them.*all of them in one closure"):
        optimizer.step(backward_closure(model, optimizer, data, zero=False))
    assert torch.equal(vector(model), before)
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), grads, strict=True))


@both
@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_the_closure_zeroes_or_never_makes_may_be_anything(data, reuse, to_none):
    ends = []
    for others in (False, True):
        for backward in (False, True):
            torch.manual_seed(3)
            model = net()
            optimizer = ScaledGD(model.parameters(), reuse_value=reuse, product="difference")
            for _ in range(3):
                if others:
                    (100 * mse_loss(model(data[0]), data[1])).backward()
                closure = backward_closure(model, optimizer, data, to_none=to_none)
                if not backward:
                    closure = lambda model=model: mse_loss(model(data[0]), data[1])  # noqa: E731
                optimizer.step(closure)
            ends.append(vector(model))
    for end in ends[1:]:
        torch.testing.assert_close(end, ends[0], rtol=1e-12, atol=1e-14)


def test_the_gradient_a_step_left_is_not_anothers_after_an_error_either(data):
    model = net()
    optimizer = ScaledGD(model.parameters())
    closure = backward_closure(model, optimizer, data, zero=False)
    optimizer.step(closure)

    def broken():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(broken)
    optimizer.step(closure)
    assert optimizer.last_step.iteration == 1


def test_micro_batches_in_one_closure_are_the_whole_batch(data):
    model, twin = net(), net()
    twin.load_state_dict(model.state_dict())
    optimizer, other = ScaledGD(model.parameters()), ScaledGD(twin.parameters())
    parts = [(x, y) for x, y in zip(*(t.split(3) for t in data), strict=True)]

    def closure():  # a graph at a time
        optimizer.zero_grad()
        total = 0.0
        for x, y in parts:
            loss = mse_loss(model(x), y) / len(parts)
            loss.backward()
            total += loss.detach()
        return total

    for _ in range(6):
        optimizer.step(closure)
        other.step(lambda: mse_loss(twin(data[0]), data[1]))
    torch.testing.assert_close(vector(model), vector(twin), rtol=1e-4, atol=1e-5)


# None skips a step


@both
def test_none_in_the_first_step_is_an_error_that_knows_of_lightning(data, reuse):
    optimizer = ScaledGD(net().parameters(), reuse_value=reuse)
    with pytest.raises(TypeError, match=r"returned None. Return the loss.*Lightning"):
        optimizer.step(lambda: None)


@pytest.mark.parametrize("backward", [False, True])
def test_none_at_the_start_of_a_later_step_skips_it(data, backward):
    model = net(nn.BatchNorm1d(4), nn.Dropout(0.2))
    optimizer = ScaledGD(model.parameters(), method="CGMR")

    def closure():
        optimizer.zero_grad()
        loss = mse_loss(model(data[0]), data[1])
        if backward:
            loss.backward()
        return loss

    def skipping():
        model(data[0])

    optimizer.step(closure)
    row, state = optimizer.last_step, copy.deepcopy(optimizer.state_dict()["state"])
    before = copy.deepcopy(model.state_dict())
    random = torch.get_rng_state()
    with pytest.warns(UserWarning, match="returned None.*Return the loss"):
        assert math.isnan(optimizer.step(skipping))
    after = model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert optimizer.last_step is row
    assert repr(optimizer.state_dict()["state"]) == repr(state)
    assert not torch.equal(torch.get_rng_state(), random)  # the next mask is another
    assert optimizer.step(closure) > 0
    assert optimizer.last_step.iteration == 1
    optimizer.step(skipping)  # warned of once


@both
def test_none_on_a_trial_refuses_it(reuse):
    """A closure that returns None for a loss that is not finite."""
    w = nn.Parameter(torch.tensor([1.0]))

    def closure():
        loss = (w - 2 * w.log()).sum()  # 2 is the minimiser; far steps leave the domain
        return loss if loss.isfinite() else None

    optimizer = ScaledGD([w], lr=1.0, reuse_value=reuse)
    optimizer.step(closure)
    optimizer.param_groups[0]["lr"] = 1024.0
    with torch.no_grad():
        w.fill_(3.0)
    optimizer.step(closure)
    assert optimizer.last_step.trials > 3
    assert 0 < w.item() < 3


# Replicas in other processes

REPLICAS = """
import sys, torch, torch.distributed as dist
from torch import nn
import firstish
rank = int(sys.argv[2])
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
model = nn.Linear(3, 1)
wrapped = nn.parallel.DistributedDataParallel(model)
optimizer = firstish.ScaledGD(model.parameters())
def closure():
    loss = wrapped(torch.ones(4, 3)).square().mean()
    loss.backward()
    return loss
try:
    optimizer.step(closure)
except RuntimeError as error:
    print(error)
data = torch.ones(4, 3), torch.ones(4, 1)
for make in (firstish.FiniteSum, lambda m, loss, data: firstish.ModuleObjective(m, loss, *data)):
    try:
        make(wrapped, nn.functional.mse_loss, data)
    except ValueError as error:
        print(error)
dist.destroy_process_group()
"""


def test_a_model_in_ddp_is_refused_on_every_rank(tmp_path):
    source = str(Path(firstish.__file__).parents[1])
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": source}
    command = [sys.executable, "-c", REPLICAS, tmp_path / "meet"]
    ranks = [
        subprocess.Popen([*command, str(rank)], env=environment, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for process in ranks:
        said, _ = process.communicate(timeout=1000)
        assert "DistributedDataParallel on 2 processes" in said
        assert "process_group=" in said
        assert "`FiniteSum(model=...)` is wrapped in DistributedDataParallel" in said
        assert "`ModuleObjective(model=...)` is wrapped in DistributedDataParallel" in said


# bfloat16 inside of the closure


def mixed(model, data, kind="loss"):
    """Autocast around the model alone; the loss in float32."""

    def closure():
        for p in model.parameters():
            p.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = model(data[0])
        assert outputs.dtype is torch.bfloat16
        loss = mse_loss(outputs.float(), data[1])
        if kind == "loss":
            return loss
        loss.backward()
        return loss if kind == "backward" else loss.detach()

    return closure


@both
@pytest.mark.parametrize("kind", ["loss", "backward", "detached"])
def test_bfloat16_in_the_closure_trains_float32_parameters(data, kind, reuse):
    data = [t.float() for t in data]
    model = net().float()
    twin = copy.deepcopy(model)
    optimizer, full = (ScaledGD(m.parameters(), reuse_value=reuse) for m in (model, twin))
    start = mse_loss(model(data[0]), data[1]).item()
    for _ in range(25):
        loss = optimizer.step(mixed(model, data, kind))
        full.step(lambda: mse_loss(twin(data[0]), data[1]))
        assert loss.dtype is torch.float32
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not all(torch.equal(p, p.bfloat16().float()) for p in model.parameters())
    fallen, possible = (start - mse_loss(m(data[0]), data[1]).item() for m in (model, twin))
    assert fallen > 0.7 * possible


@pytest.mark.parametrize("kind", ["loss", "backward", "detached"])
def test_the_noise_of_bfloat16_is_noticed_whatever_the_closure_returns(data, kind):
    """Lightning's closure returns the loss without its graph; the modules' outputs have one."""
    data = [t.float() for t in data]
    model = net().float()
    plain = copy.deepcopy(model)
    optimizer = ScaledGD(model.parameters())
    optimizer.step(mixed(model, data, kind))
    assert optimizer._objective.eps == BF16
    optimizer = ScaledGD(plain.parameters())
    optimizer.step(backward_closure(plain, optimizer, data))
    assert optimizer._objective.eps == FLOAT32


def test_the_noise_of_bfloat16_is_in_the_error_of_a_product(data):
    data = [t.float() for t in data]
    model = net().float()

    def loss_fn(outputs, targets):
        return mse_loss(outputs.float(), targets)

    def product(around, mode):
        objective = ModuleObjective(model, loss_fn, *data, product=mode)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=around):
            point = objective.at(objective.initial())
            return point.hvp(point.grad)

    for mode in ("double-backward", "difference"):
        low, high = product(True, mode), product(False, mode)
        assert low.relative_error >= 10 * high.relative_error
        assert low.vector.dtype is torch.float32
    exact, low = product(False, "double-backward"), product(True, "double-backward")
    off = torch.linalg.norm(low.vector - exact.vector) / torch.linalg.norm(exact.vector)
    assert FLOAT32 < off <= low.relative_error  # it is as wrong as it says, and no more


# Attention and compiled models, from end to end


class Encoder(nn.Module):
    """A small transformer for sequences, with the attention kernel torch chooses."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 1)

    def forward(self, sequences):
        return self.head(self.encoder(sequences).mean(dim=1))


def attention_case():
    sequences = torch.randn(10, 5, 8)
    return Encoder(), sequences, sequences[:, :, :1].amax(dim=1)


def test_a_transformer_trains_by_minimize_and_by_the_optimizer_alike():
    model, inputs, targets = attention_case()
    twin, start = copy.deepcopy(model), mse_loss(model(inputs), targets).item()
    with pytest.warns(UserWarning, match="attention.*cannot be differentiated twice") as told:
        result = minimize(
            ModuleObjective(model, mse_loss, inputs, targets), model, max_iterations=15
        )
    assert len(told) == 1
    assert result.value < 0.2 * start
    optimizer = ScaledGD(
        twin.parameters(), product="difference", method="CGMR"
    )  # as the warning says: silent
    for row in result.history[:-1]:
        loss = optimizer.step(lambda: mse_loss(twin(inputs), targets))
        assert loss.item() == pytest.approx(row.value, rel=1e-3)


def test_a_transformer_takes_the_steps_of_its_math_kernel():
    """Which can be differentiated twice: differences against exact products."""
    model, inputs, targets = attention_case()
    x = ModuleObjective(model, mse_loss, inputs, targets).initial()
    ends = []
    for math_kernel in (False, True):
        torch.backends.cuda.enable_flash_sdp(not math_kernel)  # the CPU's kernel goes by it too
        try:
            mode = "double-backward" if math_kernel else "difference"
            objective = ModuleObjective(model, mse_loss, inputs, targets, product=mode)
            ends.append(minimize(objective, x, max_iterations=5))
        finally:
            torch.backends.cuda.enable_flash_sdp(True)
    one, two = ends
    assert one.iterations == two.iterations == 5
    torch.testing.assert_close(one.x, two.x, rtol=1e-4, atol=1e-5)


AHEAD = pytest.param("aot_eager", marks=[AOT, pytest.mark.compiles])
COMPILED = pytest.mark.parametrize("backend", ["eager", AHEAD])
OLD = torch.__version__.startswith("2.4.")


@COMPILED
@both
def test_a_compiled_model_takes_the_steps_of_the_plain_one_in_a_closure(data, backend, reuse):
    torch._dynamo.reset()
    model = net(nn.BatchNorm1d(4))
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend=backend)
    optimizer = ScaledGD(compiled.parameters(), reuse_value=reuse, method="CGMR")
    plain = ScaledGD(twin.parameters(), reuse_value=reuse, method="CGMR")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(6):
            optimizer.step(lambda: mse_loss(compiled(data[0]), data[1]))
            plain.step(lambda: mse_loss(twin(data[0]), data[1]))
    said = [str(w.message) for w in told]
    if backend == "aot_eager":  # no double backward: said once, then by differences
        assert len(said) == 1
        assert "torch.compile cannot be differentiated twice" in said[0]
        assert optimizer._objective.product.mode == "difference"
    else:
        assert not said
    torch.testing.assert_close(vector(model), vector(twin), rtol=1e-4, atol=1e-5)
    assert int(model[1].num_batches_tracked) == int(twin[1].num_batches_tracked)


@COMPILED
def test_a_compiled_model_takes_the_steps_of_the_plain_one_in_minimize(data, backend):
    torch._dynamo.reset()
    model = net()
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend=backend)
    if OLD:  # a compiled module keeps to its own parameters there, whatever is put in their place
        with pytest.raises(RuntimeError, match=r"needs torch 2\.5 or later"):
            ModuleObjective(compiled, mse_loss, *data)
        return
    mode = "difference" if backend == "aot_eager" else "auto"
    objective = ModuleObjective(compiled, mse_loss, *data, product=mode)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")  # as errors, dynamo's own looks at tensors would stop it
        minimize(objective, compiled, max_iterations=6)
    assert not told
    minimize(ModuleObjective(twin, mse_loss, *data), twin, max_iterations=6)
    torch.testing.assert_close(vector(model), vector(twin), rtol=1e-4, atol=1e-5)


@AOT
@pytest.mark.compiles
def test_insisting_on_double_backward_of_a_compiled_model_is_an_error(data):
    torch._dynamo.reset()
    model = torch.compile(net(), backend="aot_eager")
    optimizer = ScaledGD(model.parameters(), product="double-backward", method="CGMR")
    with pytest.raises(ProductError, match=r"torch.compile.*product='difference'"):
        optimizer.step(lambda: mse_loss(model(data[0]), data[1]))


# aux


@pytest.mark.parametrize("product", ["double-backward", "difference", "auto"])
def test_a_callback_sees_the_aux_of_the_accepted_point(product):
    x0 = torch.tensor([0.05, -0.1])  # negative curvature: forward tracking refuses a last trial
    fun = FunctionObjective(
        lambda x: ((x**4).sum() / 4 - (x**2).sum() / 2, x * 1), x0, product=product
    )
    seen = []
    result = minimize(fun, x0, max_iterations=6, callback=seen.append)
    assert len(seen) == result.iterations > 3
    assert result.history[0].curvature is firstish.Curvature.NC
    assert all(torch.equal(progress.aux, progress.x) for progress in seen)
    assert torch.equal(result.aux, result.x)


@both
@pytest.mark.parametrize("kind", ["loss", "backward"])
@pytest.mark.parametrize("lr", [1.0, 6.0], ids=["unit", "refusals"])
def test_the_optimizer_keeps_the_aux_of_where_it_went(reuse, kind, lr):
    w = nn.Parameter(torch.tensor([0.05, -0.1]))
    optimizer = ScaledGD([w], lr=lr, reuse_value=reuse, method="CGMR")
    assert optimizer.last_aux is None

    def closure():
        loss = (w**4).sum() / 4 - (w**2).sum() / 2
        if kind == "backward":
            w.grad = None
            loss.backward()
        return loss, {"w": w.detach().clone()}

    cases = set()
    for _ in range(4):
        optimizer.step(closure)
        assert torch.equal(optimizer.last_aux["w"], w)
        cases.add((optimizer.last_step.curvature.name, optimizer.last_step.trials > 1))
    assert ("NC", True) in cases


def test_a_step_that_does_not_move_keeps_the_aux_of_its_start(data):
    model = net()
    optimizer = ScaledGD(
        model.parameters(), lr=1e6, method=ScaledGradient(line_search=Armijo(max_trials=3))
    )
    with pytest.warns(UserWarning, match="did not move"):
        optimizer.step(lambda: (mse_loss(model(data[0]), data[1]), vector(model)))
    assert torch.equal(optimizer.last_aux, vector(model))


Pair = namedtuple("Pair", ["outputs", "note"])


@pytest.mark.parametrize(
    "pack",
    [lambda z: z, lambda z: {"a": [z]}, lambda z: (1, z), lambda z: Pair(z, "n")],
    ids=["tensor", "dict", "tuple", "namedtuple"],
)
def test_aux_holds_no_graph(data, pack):
    model = net()

    def loss_fn(outputs, targets):
        return mse_loss(outputs, targets), pack(outputs)

    result = minimize(ModuleObjective(model, loss_fn, *data), model, max_iterations=2)
    optimizer = ScaledGD(model.parameters())
    optimizer.step(lambda: loss_fn(model(data[0]), data[1]))
    for aux in (result.aux, optimizer.last_aux):
        assert type(aux) is type(pack(data[0]))
        held = torch.utils._pytree.tree_leaves(aux)
        tensors = [t for t in held if isinstance(t, torch.Tensor)]
        assert len(tensors) == 1
        assert not tensors[0].requires_grad
    torch.testing.assert_close(tensors[0], model(data[0]), rtol=1e-12, atol=1e-12)

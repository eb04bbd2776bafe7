"""An error or Ctrl-C inside of a step: all is as it was, and the next step is the same one."""

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.modules import module as torch_modules

from firstish import FiniteSum, FunctionObjective, ScaledGD, minimize
from firstish.objectives.flatten import Layout


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    return model, torch.randn(8, 3), torch.randn(8, 1)


def state(model):
    return [t.detach().clone() for t in (*model.parameters(), *model.buffers())]


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("method", [None, "lazy", "plane"])
@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("at", range(1, 7))
def test_ctrl_c_in_the_middle_of_a_write_leaves_no_half_written_parameters(
    method, reuse, at, monkeypatch
):
    model, rows, targets = network()
    optimizer = ScaledGD(model.parameters(), method=method, reuse_value=reuse)
    closure = lambda: mse_loss(model(rows), targets)  # noqa: E731
    optimizer.step(closure)
    before, calls, write = state(model), [], Layout.write

    def interrupted(self, x, parameters):
        calls.append(x)
        if len(calls) == at:
            with torch.no_grad():
                parameters[0].fill_(7.0)
            raise KeyboardInterrupt
        write(self, x, parameters)

    monkeypatch.setattr(Layout, "write", interrupted)
    try:
        optimizer.step(closure)
    except KeyboardInterrupt:
        assert same(state(model), before)
    else:
        assert len(calls) < at  # no such write


@pytest.mark.parametrize("method", [None, "lazy", "plane"])
@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, MemoryError])
def test_a_step_that_fails_is_as_if_it_had_not_been_tried(method, reuse, error):
    """Buffers too: the evaluation at the start of the step is undone with the rest."""
    model, optimizer, closure, _ = begun(method, reuse, error)
    optimizer.step(closure)
    expected = state(model)
    model, optimizer, closure, failing = begun(method, reuse, error)
    before, at = state(model), 0
    while True:  # at every call of the step in turn
        at += 1
        failing[:] = [at]
        try:
            optimizer.step(closure)
            break
        except error:
            assert same(state(model), before)
    assert at > 1
    assert same(state(model), expected)
    assert optimizer.state_dict()["state"][0]["iterations"] == 3


def begun(method, reuse, error):
    """Two steps taken; the closure raises at the call whose number is in `failing`."""
    model, rows, targets = network()
    optimizer = ScaledGD(model.parameters(), method=method, reuse_value=reuse)
    failing = [0]

    def closure():
        failing[0] -= 1
        if failing[0] == 0:
            raise error("boom")
        return mse_loss(model(rows), targets)

    for _ in range(2):
        optimizer.step(closure)
    return model, optimizer, closure, failing


def test_ctrl_c_in_the_first_forward_pass_leaves_no_hook_behind():
    model, rows, targets = network()
    optimizer = ScaledGD(model.parameters())
    fails = model[2].register_forward_pre_hook(raise_interrupt)
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(lambda: mse_loss(model(rows), targets))
    fails.remove()
    assert not torch_modules._global_forward_pre_hooks
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert optimizer.step(lambda: mse_loss(model(rows), targets)) > 0


def raise_interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("at", range(1, 20, 2))
def test_a_users_error_is_not_taken_for_a_missing_second_derivative(at):
    model, rows, targets = nn.Linear(3, 1), torch.randn(8, 3), torch.randn(8, 1)
    calls = []

    def loss(outputs, targets):
        calls.append(at)
        if len(calls) == at:
            raise RuntimeError("out of luck")
        return mse_loss(outputs, targets)

    objective = FiniteSum(model, loss, (rows, targets), chunk_size=3)
    with pytest.raises(RuntimeError, match=r"^out of luck$"):
        minimize(objective, objective.initial(), method="CGMR", max_iterations=3)


def test_an_interrupted_first_look_is_made_again():
    calls = []

    def fun(x):
        calls.append(x)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return (x**2).sum() + len(calls)  # another function each time

    x0 = torch.ones(2)
    objective = FunctionObjective(fun, x0)
    with pytest.raises(KeyboardInterrupt):
        minimize(objective, x0)
    with pytest.raises(ValueError, match="differ"):
        minimize(objective, x0)

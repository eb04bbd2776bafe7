"""torch.compile with inductor, which needs a C++ compiler: the steps of the plain model."""

import copy
import shutil
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import firstish
from firstish import ModuleObjective, ScaledGD

pytestmark = [
    pytest.mark.skipif(
        not any(map(shutil.which, ("g++", "clang++"))), reason="inductor needs a C++ compiler"
    ),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def data():
    torch.manual_seed(1)
    return torch.randn(16, 3).double(), torch.randn(16, 2).double()


@pytest.fixture
def model():
    torch._dynamo.reset()
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2)).double()


def same(one, two):
    for mine, theirs in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reuse", [True, False], ids=["reuse", "fresh"])
def test_in_a_closure(model, data, reuse):
    twin, compiled = copy.deepcopy(model), torch.compile(model)
    optimizer = ScaledGD(compiled.parameters(), method="CGMR", reuse_value=reuse)
    plain = ScaledGD(twin.parameters(), method="CGMR", reuse_value=reuse)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(6):
            optimizer.step(lambda: mse_loss(compiled(data[0]), data[1]))
            plain.step(lambda: mse_loss(twin(data[0]), data[1]))
    ours = [str(w.message) for w in told if w.filename == __file__]  # at the line of the call
    assert len(ours) == 1
    assert "torch.compile cannot be differentiated twice" in ours[0]
    same(model, twin)


def test_in_minimize(model, data):
    twin, compiled = copy.deepcopy(model), torch.compile(model)
    objective = ModuleObjective(compiled, mse_loss, *data, product="difference")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, while it compiles
        firstish.minimize(objective, compiled, method="CGMR", max_iterations=6)
    firstish.minimize(ModuleObjective(twin, mse_loss, *data), twin, method="CGMR", max_iterations=6)
    same(model, twin)

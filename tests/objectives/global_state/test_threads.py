"""Runs in several threads at once: each ends at the bits of the same run alone, or is refused.

A run that draws a new dropout mask in every step is the exception: threads share torch's generator.
"""

import copy
import itertools
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from firstish import (
    FiniteSum,
    FunctionObjective,
    LinearModel,
    ModuleObjective,
    ScaledGD,
    families,
    minimize,
)
from firstish.objectives import global_state
from firstish.objectives.global_state import RandomState, alone, ignored

pytestmark = pytest.mark.filterwarnings("ignore:.*draws random numbers:UserWarning")

THREADS = 4
SECONDS = 600  # after which a test that hangs fails


class Meeting(nn.Module):
    """Waits for the other threads in the midst of one forward pass."""

    def __init__(self, barrier, call):
        super().__init__()
        self.barrier, self.call = barrier, call

    def forward(self, x):
        self.call -= 1
        if self.call == 0:
            self.barrier.wait(SECONDS)
        return x


def network(kind, seed, meeting=None):
    """A network with two layers of the kind, and its data."""
    middle = {"norm": nn.BatchNorm1d(6), "drop": nn.Dropout(0.3), "plain": nn.Identity()}[kind]
    meeting = nn.Identity() if meeting is None else meeting
    layers = (nn.Linear(4, 6), middle, meeting, nn.Tanh(), copy.deepcopy(middle))
    model = nn.Sequential(*layers, nn.Linear(6, 1)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    X = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    return model, X, X.sum(1, keepdim=True).sin()


def together(tasks):
    """What each of the tasks returned or raised, all begun at once, each in its thread."""
    start = threading.Barrier(len(tasks))

    def one(task):
        start.wait(SECONDS)
        try:
            return task()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(one, tasks))


def same(one, two):
    return len(one) == len(two) and all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.fixture(autouse=True)
def often_switched():
    """Threads switched every few microseconds, so that they meet inside of every call."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def training(kind, seed, **settings):
    """A task that trains a network; it is built here, because building draws random numbers."""
    model, X, y = network(kind, seed)

    def train():
        optimizer = ScaledGD(model.parameters(), method="CGMR", **settings)
        for _ in range(6):
            optimizer.step(lambda: nn.functional.mse_loss(model(X), y))
        return list(model.state_dict().values())

    return train


def alone_in_one_thread(task):
    torch.manual_seed(5)
    return task()


def at_once(tasks):
    torch.manual_seed(5)
    return together(tasks)


def the_lock_is_free():
    """Whether another thread can take it."""
    taken = []

    def take():
        taken.append(alone().acquire(blocking=False))
        if taken[0]:
            alone().release()

    in_a_thread(take)
    return taken[0]


@pytest.mark.parametrize("kind", ["norm", "plain"])
def test_a_model_trains_to_the_same_bits_whatever_other_threads_do(kind):
    found = at_once([training(kind, seed) for seed in range(THREADS)])
    for seed, mine in enumerate(found):
        assert not isinstance(mine, Exception), mine
        assert same(mine, alone_in_one_thread(training(kind, seed)))


def test_a_model_that_draws_trains_beside_others_that_do_not():
    kinds = ["drop", "norm", "plain", "norm"]
    before = torch.nn.modules.module._global_forward_pre_hooks.copy()
    found = at_once([training(kind, seed) for seed, kind in enumerate(kinds)])
    for seed, mine in enumerate(found):
        assert not isinstance(mine, Exception), mine
        assert same(mine, alone_in_one_thread(training(kinds[seed], seed)))
    assert torch.nn.modules.module._global_forward_pre_hooks == before


def test_losses_that_draw_nothing_are_evaluated_at_the_same_time():
    barrier = threading.Barrier(THREADS)
    tasks = []
    for seed in range(THREADS):
        model, X, y = network("plain", seed, Meeting(barrier, call=5))
        objective = ModuleObjective(model, nn.functional.mse_loss, X, y)
        tasks.append(lambda o=objective, m=model: minimize(o, m, max_iterations=6).iterations)
    assert together(tasks) == [6] * THREADS


def in_a_thread(task):
    worker = threading.Thread(target=task)
    worker.start()
    worker.join(SECONDS)
    assert not worker.is_alive()


def test_a_step_leaves_the_modules_that_another_thread_calls_alone():
    model, X, y = network("norm", 0)
    other = nn.BatchNorm1d(4)
    calls = []

    def closure():
        in_a_thread(lambda: other(X))  # while the step looks out for modules
        calls.append(1)
        return nn.functional.mse_loss(model(X), y)

    ScaledGD(model.parameters()).step(closure)
    assert other.num_batches_tracked == len(calls)


def mask_of_a_step(kind):
    """The masks that a model sees in one step, each evaluation its own."""
    model, X, y = network(kind, 0)
    masks = []
    model[1].register_forward_hook(lambda module, args, output: masks.append(output == 0))
    optimizer = ScaledGD(model.parameters(), method="CGMR")

    def step():
        masks.clear()
        optimizer.step(lambda: nn.functional.mse_loss(model(X), y))
        return list(masks)

    return lambda: [step() for _ in range(6)]


def test_of_threads_that_all_draw_each_has_one_mask_in_a_step_and_another_in_the_next():
    for steps in at_once([mask_of_a_step("drop") for _ in range(THREADS)]):
        assert not isinstance(steps, Exception), steps
        for masks in steps:
            assert len(masks) > 1
            assert all(torch.equal(mask, masks[0]) for mask in masks)
        assert not any(torch.equal(one[0], two[0]) for one, two in itertools.pairwise(steps))
    assert the_lock_is_free()


def door(name, kind, seed):
    """A run through one of the doors that replay one random state, built but not begun."""
    model, X, y = network(kind, seed)
    loss = nn.functional.mse_loss
    torch.manual_seed(9)  # an objective replays the state that it was built in
    if name == "module":
        objective = ModuleObjective(model, loss, X, y)
    elif name == "sum":
        objective = FiniteSum(model.eval() if kind == "norm" else model, loss, (X, y), chunk_size=5)
    elif name == "loader":
        rows = torch.utils.data.TensorDataset(X, y)
        loader = torch.utils.data.DataLoader(rows, batch_size=5)
        objective = FiniteSum(model.eval() if kind == "norm" else model, loss, loader)
    elif name == "optimizer":
        optimizer = ScaledGD(model.parameters(), reuse_value=True)

        def steps():
            for _ in range(6):
                optimizer.step(lambda: loss(model(X), y))
            return list(model.state_dict().values())

        return steps
    else:
        drop = nn.Dropout(0.3) if kind == "drop" else nn.Identity()
        x0 = torch.full((4,), 0.1, dtype=torch.float64)
        fun = lambda x: ((drop(X) @ x - y[:, 0]) ** 2).mean()  # noqa: E731
        return lambda: [minimize(FunctionObjective(fun, x0), x0, max_iterations=6).x]
    return lambda: [minimize(objective, model, max_iterations=6).x, *model.buffers()]


@pytest.mark.parametrize("kind", ["drop", "norm"])
@pytest.mark.parametrize("name", ["module", "sum", "loader", "function", "optimizer"])
def test_every_door_ends_at_the_same_bits_in_a_thread(name, kind):
    if (name, kind) == ("function", "norm"):
        kind = "plain"
    found = at_once([door(name, kind, seed) for seed in range(3)])
    for seed, mine in enumerate(found):
        assert not isinstance(mine, Exception), mine
        assert same(mine, alone_in_one_thread(door(name, kind, seed)))


def test_a_state_is_not_captured_while_another_thread_replays_one(monkeypatch):
    monkeypatch.setattr(global_state, "PATIENCE", 0.05)
    outside, found = RandomState.capture(), []

    def capture():
        try:
            found.append(RandomState.capture())
        except RuntimeError as error:
            found.append(error)

    with RandomState(torch.Generator().manual_seed(77).get_state()).replayed() as drew:
        assert not drew()
        torch.rand(3)
        assert drew()
        in_a_thread(capture)
    in_a_thread(capture)
    assert isinstance(found[0], RuntimeError)
    assert found[1].same_as(outside)


def test_a_loss_that_waits_for_one_that_waits_for_it_does_not_hang(monkeypatch):
    monkeypatch.setattr(global_state, "PATIENCE", 0.05)
    model, X, y = network("norm", 0)
    optimizer, raised = ScaledGD(model.parameters()), []

    def other():
        try:
            minimize(lambda x: (x**2).sum(), torch.ones(2))
        except RuntimeError as error:
            raised.append(str(error))

    def closure():
        in_a_thread(other)
        return nn.functional.mse_loss(model(X), y)

    optimizer.step(closure)
    assert "Another thread has been evaluating a loss for 0.05 s" in raised[0]
    assert "process of its own" in raised[0]
    assert the_lock_is_free()


def test_a_thread_waits_on_as_long_as_others_take_the_lock():
    class Busy(global_state.ProcessLock):
        waits = 0

        def acquire(self, timeout):
            self.waits += 1
            self.entries += self.waits < 4  # another thread, the first three times
            return self.waits == 4 and super().acquire(timeout=timeout)

    with Busy() as _, Busy() as _:
        pass

    class Stuck(Busy):
        def acquire(self, timeout):
            return False

    with pytest.raises(RuntimeError, match="Another thread has been evaluating"), Stuck():
        pass


def test_parameters_are_one_threads_at_a_time():
    model, X, y = network("plain", 0)
    one, two = ScaledGD(model.parameters()), ScaledGD(model.parameters())
    raised = []

    def other():
        try:
            two.step(lambda: nn.functional.mse_loss(model(X), y))
        except RuntimeError as error:
            raised.append(str(error))

    def closure():
        in_a_thread(other)
        return nn.functional.mse_loss(model(X), y)

    one.step(closure)
    assert "Another thread is using parameters of this `ScaledGD`" in raised[0]
    assert "copy.deepcopy(model)" in raised[0]
    raised.clear()
    other()  # afterwards they are free
    assert not raised


def test_a_model_and_an_objective_are_one_threads_at_a_time():
    model, X, y = network("plain", 0)
    objective, shared = (ModuleObjective(model, nn.functional.mse_loss, X, y) for _ in range(2))
    raised = []

    def other(run):
        def attempt():
            try:
                run()
            except RuntimeError as error:
                raised.append(str(error))

        in_a_thread(attempt)

    class Elsewhere(nn.Module):
        def forward(self, x):
            if len(raised) < 1:
                other(lambda: minimize(shared, shared.initial()))
            return x

    assert shared.at(shared.initial()).value > 0  # it draws nothing, so it need not wait
    model[2] = Elsewhere()
    again = ModuleObjective(model, nn.functional.mse_loss, X, y)
    minimize(again, model, max_iterations=1)
    assert "Another thread is using the model of `ModuleObjective`" in raised[0]
    minimize(
        objective,
        model,
        max_iterations=1,
        callback=lambda _: other(lambda: minimize(objective, objective.initial())),
    )
    assert "Another thread is using the objective of this `minimize(fun, x0)`" in raised[1]
    assert minimize(objective, model, max_iterations=1).iterations == 1


def test_estimators_and_linear_models_in_threads_end_at_the_same_bits():
    from firstish.sklearn import ScaledLogisticRegression, ScaledRidge

    rng = np.random.RandomState(0)
    X, noise = sp.csr_array(rng.randn(60, 5)), rng.randn(60)

    def logistic():
        fitted = ScaledLogisticRegression().fit(X, noise > 0)
        return [torch.from_numpy(fitted.coef_)]

    def ridge():
        return [torch.from_numpy(ScaledRidge(alpha=0.1).fit(X, noise).coef_)]

    def linear():
        objective = LinearModel(X, torch.from_numpy(noise), families.LeastSquares())
        return [minimize(objective, objective.initial(), max_iterations=9).x]

    tasks = [logistic, ridge, linear, logistic]
    before = list(warnings.filters)
    for task, mine in zip(tasks, at_once(tasks), strict=True):
        assert not isinstance(mine, Exception), mine
        assert same(mine, alone_in_one_thread(task))
    assert warnings.filters == before


@pytest.mark.parametrize("form", [sp.csr_array, np.asarray])
def test_estimators_change_the_filters_of_warnings_only_with_the_lock(form, monkeypatch):
    from firstish.sklearn import ScaledLogisticRegression, ScaledRidge

    rng = np.random.RandomState(0)
    X, noise, weights = form(rng.randn(60, 5)), rng.randn(60), rng.rand(60)
    enter = warnings.catch_warnings.__enter__
    held = []

    def watched(self):
        held.append(alone()._is_owned())
        return enter(self)

    monkeypatch.setattr(warnings.catch_warnings, "__enter__", watched)
    ScaledLogisticRegression().fit(X, noise > 0, weights).predict(X)
    ScaledRidge(alpha=0.1).fit(X, noise, weights).predict(X)
    assert held
    assert all(held)


def test_ignored_warnings_leave_the_filters_as_they_were():
    before = list(warnings.filters)

    def ignore():
        for _ in range(50):
            with ignored("two"):
                warnings.warn("two, and ignored", stacklevel=1)
        return True

    assert together([ignore] * THREADS) == [True] * THREADS
    assert warnings.filters == before
    with pytest.warns(UserWarning, match="two"):
        warnings.warn("two", stacklevel=1)

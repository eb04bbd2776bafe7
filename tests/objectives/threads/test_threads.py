"""Runs in several threads at once: each ends at the bits of the same run alone, or is refused."""

import copy
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
from firstish.objectives import turns
from firstish.objectives.rng import RandomState
from firstish.objectives.shared import ignored

THREADS = 4
SECONDS = 600  # after which a test that hangs fails


class Meeting(nn.Module):
    """Waits for the other threads in the midst of a forward pass, as often as asked."""

    def __init__(self, barrier, often=3):
        super().__init__()
        self.barrier, self.often = barrier, often

    def __deepcopy__(self, memo):
        return Meeting(self.barrier, self.often)

    def forward(self, x):
        if self.barrier is not None and self.often > 0:
            self.often -= 1
            self.barrier.wait(SECONDS)
        return x


def network(kind, seed, barrier=None):
    """A network whose layers before and after `Meeting` are those of the kind."""
    middle = {"norm": nn.BatchNorm1d(6), "drop": nn.Dropout(0.3), "plain": nn.Identity()}[kind]
    layers = (nn.Linear(4, 6), middle, Meeting(barrier), nn.Tanh(), copy.deepcopy(middle))
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


def training(kind, seed, barrier=None, **settings):
    """A task that trains a network; it is built here, because building draws random numbers."""
    model, X, y = network(kind, seed, barrier)

    def train():
        optimizer = ScaledGD(model.parameters(), **settings)
        for _ in range(6):
            optimizer.step(lambda: nn.functional.mse_loss(model(X), y))
        return list(model.state_dict().values())

    return train


def alone(task):
    torch.manual_seed(5)
    return task()


def at_once(tasks):
    torch.manual_seed(5)
    return together(tasks)


@pytest.mark.parametrize("kind", ["norm", "plain"])
def test_a_model_trains_to_the_same_bits_whatever_other_threads_do(kind):
    barrier = threading.Barrier(THREADS)  # the first forward passes overlap, module by module
    found = at_once([training(kind, seed, barrier) for seed in range(THREADS)])
    for seed, mine in enumerate(found):
        assert not isinstance(mine, Exception), mine
        assert same(mine, alone(training(kind, seed)))


def test_a_model_that_draws_trains_beside_others_that_do_not():
    kinds = ["drop", "norm", "plain", "norm"]
    before = torch.nn.modules.module._global_forward_pre_hooks.copy()
    found = at_once([training(kind, seed) for seed, kind in enumerate(kinds)])
    for seed, mine in enumerate(found):
        assert not isinstance(mine, Exception), mine
        assert same(mine, alone(training(kinds[seed], seed)))
    assert torch.nn.modules.module._global_forward_pre_hooks == before


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


def test_steps_that_draw_in_two_threads_are_refused_and_change_nothing():
    model, X, y = network("drop", 0)
    other, *_ = network("drop", 1)
    first = ScaledGD(model.parameters())
    first.step(lambda: nn.functional.mse_loss(model(X), y))
    second = ScaledGD(other.parameters())
    in_a_thread(lambda: second.step(lambda: nn.functional.mse_loss(other(X), y)))
    held = [p.detach().clone() for p in model.parameters()]
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match=r"`ScaledGD.step\(closure\)` draws.*process of its own"):
        first.step(lambda: nn.functional.mse_loss(model(X), y))
    assert same([p.detach() for p in model.parameters()], held)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(RuntimeError, match="draws random numbers"):  # so did its steps lie
        second.step(lambda: nn.functional.mse_loss(other(X), y))


def test_of_threads_that_all_draw_anew_in_each_step_those_that_end_are_right():
    found = at_once([training("drop", seed) for seed in range(THREADS)])
    for seed, mine in enumerate(found):
        if isinstance(mine, Exception):
            assert "draws random numbers" in str(mine)
        else:
            assert same(mine, alone(training("drop", seed)))


def two_steps_of_runs_by_turns():
    """Two optimizers that draw, stepped by turns."""
    torch.manual_seed(3)
    runs = []
    for seed in (0, 1):
        model, X, y = network("drop", seed)
        optimizer = ScaledGD(model.parameters())
        runs.append((model, optimizer, lambda m=model, X=X, y=y: nn.functional.mse_loss(m(X), y)))
    for _ in range(3):
        for _, optimizer, loss in runs:
            optimizer.step(loss)
    return [p.detach() for model, *_ in runs for p in model.parameters()]


def test_runs_that_draw_by_turns_in_one_thread_are_not_refused():
    found = together([two_steps_of_runs_by_turns])
    assert same(found[0], two_steps_of_runs_by_turns())


def door(name, kind, seed, barrier=None):
    """A run through one of the doors that replay one random state, built but not begun."""
    model, X, y = network(kind, seed, barrier)
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
        assert same(mine, alone(door(name, kind, seed)))


def test_a_state_asked_for_while_another_thread_replays_one_is_the_one_outside():
    outside = RandomState.capture()
    torch.manual_seed(77)
    inner = RandomState.capture()
    outside.restore()
    moved = RandomState(torch.manual_seed(78).get_state())
    outside.restore()
    inside, done, seen = threading.Event(), threading.Event(), []

    def replay():
        with inner.replayed() as drew:
            torch.rand(3)
            seen.append(drew())
            inside.set()
            done.wait(SECONDS)

    worker = threading.Thread(target=replay)
    worker.start()
    inside.wait(SECONDS)
    assert seen == [True]
    assert RandomState.capture().same_as(outside)
    moved.restore()  # to be put back by the other thread
    assert RandomState.capture().same_as(moved)
    done.set()
    worker.join(SECONDS)
    assert RandomState.capture().same_as(moved)
    outside.restore()


def test_a_loss_that_waits_for_one_that_draws_in_another_thread_does_not_hang(monkeypatch):
    monkeypatch.setattr(turns, "PATIENCE", 0.05)
    state, raised = RandomState.capture(), []

    def draw():
        try:
            with state.replayed():
                torch.rand(3)
        except RuntimeError as error:
            raised.append(str(error))

    with state.replayed():
        in_a_thread(draw)
    assert "another thread has been evaluating a loss" in raised[0]
    assert "process of its own" in raised[0]


def test_the_numbers_of_a_generator_of_ones_own_need_no_turn(monkeypatch):
    monkeypatch.setattr(turns, "PATIENCE", 0.05)
    state, found = RandomState.capture(), []

    def draw():
        generator = torch.Generator().manual_seed(0)
        with state.replayed() as drew:
            found.append(torch.rand(3, generator=generator))
            found.append(drew())

    with state.replayed():
        in_a_thread(draw)
    assert torch.equal(found[0], torch.rand(3, generator=torch.Generator().manual_seed(0)))
    assert found[1] is False


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
        assert same(mine, alone(task))
    assert warnings.filters == before


def test_ignoring_a_warning_in_one_thread_leaves_the_filters_of_others():
    before = list(warnings.filters)
    with ignored("one"):
        outer = ignored("two")
        outer.__enter__()  # as another thread would, to leave after this one
    warnings.warn("two, and ignored", stacklevel=1)
    outer.__exit__(None, None, None)
    assert warnings.filters == before
    with pytest.warns(UserWarning, match="two"):
        warnings.warn("two", stacklevel=1)

"""A process forked while other threads are inside a step works as if it were alone."""

import os
import pickle
import select
import subprocess
import sys
import threading
import traceback

import pytest
import torch
from torch import nn

from firstish import FunctionObjective, ModuleObjective, ScaledGD, minimize
from firstish.objectives.global_state import alone

SECONDS = 600  # after which a child that hangs fails the test

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*draws random numbers:UserWarning"),
]


@pytest.fixture(autouse=True)
def one_thread():
    """A child of a process with several of torch's threads warns, and waits for those it lost."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def in_a_child(task):
    """What the task returned in a forked process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with os.fdopen(write, "wb") as file:
                pickle.dump(task(), file)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        ready, _, _ = select.select([file], [], [], SECONDS)
        if not ready:
            os.kill(child, 9)
        found = file.read()
    _, status = os.waitpid(child, 0)
    assert ready, "the child hangs"
    assert status == 0, f"the child ended with {status}"
    return pickle.loads(found)


def network():
    torch.manual_seed(1)
    layers = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 1)
    model = nn.Sequential(*layers).double()
    X = torch.randn(12, 4, dtype=torch.float64)
    return model, X, X.sum(1, keepdim=True).sin()


def work():
    """Numbers from each door."""
    model, X, y = network()
    optimizer = ScaledGD(model.parameters(), method="CGMR")  # each step has a mask of its own
    for _ in range(4):
        optimizer.step(lambda: nn.functional.mse_loss(model(X), y))
    other, *_ = network()
    found = minimize(ModuleObjective(other, nn.functional.mse_loss, X, y), other, max_iterations=4)
    x0 = torch.ones(3, dtype=torch.float64)
    fun = lambda x: ((nn.functional.dropout(x, 0.2) - 2) ** 2).sum() + (x**4).sum()  # noqa: E731
    least = minimize(FunctionObjective(fun, x0), x0, max_iterations=4)
    return [t.tolist() for t in (*model.state_dict().values(), found.x, least.x)]


class Busy:
    """Another thread, inside the forward pass of a step until the block ends."""

    def __init__(self, draws):
        self._layer = nn.Dropout(0.5) if draws else nn.BatchNorm1d(2)
        self._inside, self._leave = threading.Event(), threading.Event()

    def _run(self):
        model = nn.Linear(2, 1).double()
        optimizer = ScaledGD(model.parameters())
        x = torch.tensor([[1.0, 2.0], [2.0, 5.0]], dtype=torch.float64)

        def closure():
            y = self._layer.double()(x)
            self._inside.set()
            self._leave.wait(SECONDS)
            return model(y).square().sum()

        optimizer.step(closure)

    def __enter__(self):
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._inside.wait(SECONDS)

    def __exit__(self, *error):
        self._leave.set()
        self._thread.join(SECONDS)


@pytest.mark.parametrize("draws", [True, False])
def test_a_child_forked_inside_another_threads_step_works_as_alone(draws):
    alone = work()
    with Busy(draws):
        assert in_a_child(work) == alone
    assert in_a_child(work) == alone


def test_a_child_finds_the_lock_free():
    held, leave = threading.Event(), threading.Event()

    def hold():
        with alone():
            held.set()
            leave.wait(SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(SECONDS)
    try:
        assert in_a_child(work) is not None
    finally:
        leave.set()
        thread.join(SECONDS)


def test_a_step_in_the_child_of_its_own_closure_goes_on():
    """A closure that forks, and returns in both processes."""
    model, X, y = network()
    alone = network()[0]
    optimizer, other = ScaledGD(model.parameters()), ScaledGD(alone.parameters())
    torch.manual_seed(2)
    other.step(lambda: nn.functional.mse_loss(alone(X), y))
    torch.manual_seed(2)
    children = []

    def closure():
        if not children:
            children.append(os.fork())
        return nn.functional.mse_loss(model(X), y)

    try:
        optimizer.step(closure)
        same = all(map(torch.equal, model.state_dict().values(), alone.state_dict().values()))
    finally:
        if children == [0]:
            os._exit(0 if same else 1)
    assert same
    assert os.waitpid(children[0], 0)[1] == 0


def test_workers_of_a_loader_are_forked_inside_an_evaluation():
    from firstish import FiniteSum

    model, X, y = network()
    rows = torch.utils.data.TensorDataset(X, y)
    loader = torch.utils.data.DataLoader(
        rows, batch_size=5, num_workers=1, multiprocessing_context="fork"
    )
    plain = torch.utils.data.DataLoader(rows, batch_size=5)
    model.eval()
    one, two = (
        FiniteSum(model, nn.functional.mse_loss, data).at(
            torch.linspace(-1, 1, 49, dtype=torch.float64)
        )
        for data in (loader, plain)
    )
    assert one.value == two.value
    assert torch.equal(one.grad, two.grad)


THREADED = """
import os, warnings, torch, firstish
torch.set_num_threads(2)
A = torch.randn(400, 400, generator=torch.Generator().manual_seed(0))
def run():
    return firstish.minimize(lambda x: ((A.exp() @ x - 1) ** 2).mean(), torch.zeros(400),
                             max_iterations=2).iterations
assert run() == 2
child = os.fork()
if child == 0:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        done = run() == 2
    told = any("forked from one in which torch computes with 2 threads" in str(w.message)
               for w in said)
    os._exit(0 if done and told and torch.get_num_threads() == 1 else 1)
assert os.waitpid(child, 0)[1] == 0
assert torch.get_num_threads() == 2
"""


def test_a_child_does_not_wait_for_threads_of_torch_that_did_not_survive_the_fork():
    subprocess.run([sys.executable, "-c", THREADED], check=True, timeout=2 * SECONDS)

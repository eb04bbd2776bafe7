"""Runs in several threads at once: each ends at the bits of the same run alone, or is refused.

`ScaledGD` with dropout is the exception: it draws a new mask in each step from torch's generator,
which all threads share. Beside another one it must end, at whatever masks it got.

Threads are switched every few microseconds, so that they meet inside of every call.
"""

from __future__ import annotations

import copy
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import firstish
from attacks.tally import Tally

ROUNDS = 150
LONGEST = 120.0  # seconds after which a round counts as hanging

Task = Callable[[], list[Tensor]]
KINDS = ("plain", "norm", "drop", "tied")
DOORS = ("ScaledGD", "ScaledGD, reused", "module", "function", "sum", "linear", "estimator")


class Tied(nn.Module):
    """One layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(x)))


def network(kind: str, seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A model and its data, the same for a seed whatever the random state is."""
    middle = {"plain": nn.Tanh, "norm": lambda: nn.BatchNorm1d(6), "tied": Tied}
    layer = nn.Dropout(0.3) if kind == "drop" else middle[kind]()
    model = nn.Sequential(nn.Linear(4, 6), layer, nn.GELU(), nn.Linear(6, 1)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    X = torch.randn(15, 4, generator=generator, dtype=torch.float64)
    return model, X, X.sum(1, keepdim=True).sin()


def stepped(model: nn.Module, X: Tensor, y: Tensor, reuse: bool) -> Task:
    def run() -> list[Tensor]:
        optimizer = firstish.ScaledGD(model.parameters(), method="CGMR", reuse_value=reuse)
        for _ in range(5):
            optimizer.step(lambda: F.mse_loss(model(X), y))
        return list(model.state_dict().values())

    return run


def task(door: str, kind: str, seed: int) -> Task:
    """A run through a door, built but not begun."""
    model, X, y = network(kind, seed)
    torch.manual_seed(seed)  # an objective replays the state that it is built in
    if door.startswith("ScaledGD"):
        return stepped(model, X, y, "reused" in door)
    if door == "module":
        objective: Any = firstish.ModuleObjective(model, F.mse_loss, X, y)
        return lambda: [firstish.minimize(objective, model, max_iterations=5).x, *model.buffers()]
    if door == "sum":
        whole = firstish.FiniteSum(
            model.eval() if kind == "norm" else model, F.mse_loss, (X, y), chunk_size=4
        )
        return lambda: [firstish.minimize(whole, model, max_iterations=5).x]
    if door == "function":
        x0 = torch.full((4,), 0.1, dtype=torch.float64)
        noise = nn.Dropout(0.3) if kind == "drop" else nn.Identity()
        f = firstish.FunctionObjective(lambda x: ((noise(X) @ x - y[:, 0]) ** 2).mean(), x0)
        return lambda: [firstish.minimize(f, x0, max_iterations=5).x]
    if door == "linear":
        family = firstish.families.LeastSquares()
        linear = firstish.LinearModel(X.to_sparse(), y[:, 0], family)
        return lambda: [firstish.minimize(linear, linear.initial(), max_iterations=5).x]
    return lambda: [_fitted(X.numpy(), y[:, 0].numpy())]


def _fitted(X: np.ndarray, y: np.ndarray) -> Tensor:
    from firstish.sklearn import ScaledLogisticRegression

    return torch.from_numpy(ScaledLogisticRegression().fit(X, y > 0).coef_)


def together(tasks: list[Task]) -> list[Any]:
    """What each task returned or raised, each in its thread; None for one that hangs."""
    found: list[Any] = [None] * len(tasks)
    start = threading.Barrier(len(tasks))

    def one(k: int) -> None:
        start.wait(LONGEST)
        try:
            found[k] = tasks[k]()
        except Exception as error:
            found[k] = error

    threads = [threading.Thread(target=one, args=(k,), daemon=True) for k in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST)
    return found


def judge(tally: Tally, found: Any, alone: list[Tensor], may_refuse: str, what: str) -> None:
    """Count one thread's result."""
    if isinstance(found, RuntimeError) and may_refuse and may_refuse in str(found):
        tally.refused += 1
    elif found is None or isinstance(found, Exception):
        tally.lost.append(f"{what}: {'hangs' if found is None else repr(found)[:200]}")
    else:
        same = len(found) == len(alone) and all(map(torch.equal, found, alone))
        tally.expect(same, f"{what}: other numbers than alone")


def _separate(rng: random.Random, tally: Tally) -> None:
    """Threads with models of their own."""
    chosen = [
        (rng.choice(DOORS), rng.choice(KINDS), rng.randrange(10**6))
        for _ in range(rng.randrange(2, 7))
    ]
    tasks = [task(*choice) for choice in chosen]
    moving = [(door, kind) for door, kind, _ in chosen].count(("ScaledGD", "drop"))
    torch.manual_seed(1)
    found = together(tasks)
    for (door, kind, seed), result in zip(chosen, found, strict=True):
        again = task(door, kind, seed)
        torch.manual_seed(1)
        alone, what = again(), f"{door}, {kind}, seed {seed}, beside {chosen}"
        if door.startswith("ScaledGD") and kind == "drop" and moving > (door == "ScaledGD"):
            alone = result if isinstance(result, list) else alone
        judge(tally, result, alone, "", what)


def _shared(rng: random.Random, tally: Tally) -> None:
    """Threads that share one model: right, by luck of their times, or refused."""
    seed = rng.randrange(10**6)
    model, X, y = network("plain", seed)
    start = copy.deepcopy(model.state_dict())
    objectives = [firstish.ModuleObjective(model, F.mse_loss, X, y) for _ in range(3)]
    x0 = objectives[0].initial()
    runs: list[Task] = [
        lambda o=o: [firstish.minimize(o, x0, max_iterations=5).x]  # type: ignore[misc]
        for o in objectives
    ]
    fresh, *_ = network("plain", seed)
    alone = firstish.minimize(
        firstish.ModuleObjective(fresh, F.mse_loss, X, y), x0, max_iterations=5
    )
    for result in together(runs):
        judge(tally, result, [alone.x], "Another thread is using the model", f"seed {seed}, shared")
    kept = all(map(torch.equal, model.state_dict().values(), start.values()))
    tally.expect(kept, f"seed {seed}: the shared model was changed")


def attack(seed: int, effort: float) -> list[Tally]:
    """Rounds of two to six threads."""
    rng = random.Random(seed)
    own, shared = Tally("threads, each with its model"), Tally("threads on one model")
    before, interval = torch.get_rng_state(), sys.getswitchinterval()
    try:
        for _ in range(max(2, round(ROUNDS * effort))):
            sys.setswitchinterval(10 ** rng.uniform(-6, -3))
            _separate(rng, own)
            _shared(rng, shared)
    finally:
        sys.setswitchinterval(interval)
        torch.set_rng_state(before)
    return [own, shared]

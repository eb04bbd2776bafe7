"""Processes forked while other threads are inside a step: the child works as if it were alone."""

from __future__ import annotations

import os
import pickle
import random
import select
import signal
import threading
import time
import traceback
import warnings
from typing import Any

import torch
from torch.nn import functional as F

import firstish
from attacks.tally import Tally
from attacks.threads import network, task

FORKS = 150
LONGEST = 60.0  # seconds after which a child counts as hanging


class Busy:
    """Another thread that steps without end.

    A process cannot be forked at any moment while another thread draws: torch holds a lock then,
    which the child would wait for. So a model that draws halts, between two operations, for the
    fork; one that does not is never halted.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, self._seed = kind, seed
        self._ends = False
        self._asked, self._halted, self._go_on = (threading.Event() for _ in range(3))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        model, X, y = network(self._kind, self._seed)
        optimizer = firstish.ScaledGD(model.parameters(), method="CGMR")

        def closure() -> torch.Tensor:
            out = X
            for layer in model:  # type: ignore[attr-defined]
                out = layer(out)
                if self._asked.is_set():
                    self._halted.set()
                    self._go_on.wait(LONGEST)
            return F.mse_loss(out, y)

        while not self._ends:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it does not move any more
                optimizer.step(closure)

    def __enter__(self) -> None:
        self._thread.start()
        if self._kind == "drop":
            self._asked.set()
            self._halted.wait(LONGEST)

    def __exit__(self, *error: object) -> None:
        self._ends = True
        self._asked.clear()
        self._go_on.set()
        self._thread.join(LONGEST)


def in_a_child(work: Any) -> Any:
    """What the work returned in a forked process, or a sentence on what went wrong."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that threads and forks are at odds
        child = os.fork()
    if child == 0:
        try:
            with os.fdopen(write, "wb") as file:
                pickle.dump([t.tolist() for t in work()], file)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        ready, _, _ = select.select([file], [], [], LONGEST)
        if not ready:
            os.kill(child, signal.SIGKILL)
        found = file.read()
    os.waitpid(child, 0)
    if not ready:
        return "the child hangs"
    return pickle.loads(found) if found else "the child failed"


def attack(seed: int, effort: float) -> list[Tally]:
    """Forks at random moments of another thread's steps."""
    tally = Tally("forks inside a step")
    if not hasattr(os, "fork"):
        return [tally]
    rng = random.Random(seed)
    threads, before = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)  # as a forked process computes
    doors = ("ScaledGD", "module", "function", "sum", "linear")
    try:
        for _ in range(max(3, round(FORKS * effort))):
            door, kind = rng.choice(doors), rng.choice(("plain", "norm", "drop", "tied"))
            number, busy = rng.randrange(10**6), rng.choice(("plain", "norm", "drop"))

            def work(door: str = door, kind: str = kind, number: int = number) -> Any:
                run = task(door, kind, number)
                torch.manual_seed(1)
                return run()

            alone = [t.tolist() for t in work()]
            with Busy(busy, rng.randrange(10**6)):
                time.sleep(rng.uniform(0, 0.02))
                found = in_a_child(work)
            what = f"{door}, {kind}, seed {number}, beside {busy}"
            wrong = found if isinstance(found, str) else "other numbers than alone"
            tally.expect(found == alone, f"{what}: {wrong}")
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(before)
    return [tally]

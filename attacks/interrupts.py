"""Exceptions at every call of the user's functions, and Ctrl-C at every line of ours, in a step.

Every line that runs in some case is interrupted the first time it runs there; some more are chosen
at random. (At every line of every case: --effort 30.)

After each one the parameters must be exactly those of before the step, or those of the whole step;
and so must buffers, `.grad`, flags, hooks, the random state and the lock on it. The next step must
be the one that would have been taken without the interruption.
"""

from __future__ import annotations

import linecache
import math
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

import firstish
from attacks.tally import Tally
from firstish.objectives.global_state import ProcessLock, alone

SOURCE = str(Path(firstish.__file__).parent)
MORE = 100  # lines of each case, besides those that no case before it has run
HANGS = 60  # seconds
ERRORS = (RuntimeError, KeyboardInterrupt, MemoryError)


class Interrupted(KeyboardInterrupt):
    """A Ctrl-C that is not the user's own."""


class Bomb:
    """Counts the calls of the user's functions, and raises at one of them."""

    def __init__(self) -> None:
        self.calls, self.at, self.error = 0, 0, Exception("unused")

    def set(self, at: int, error: BaseException) -> None:
        self.calls, self.at, self.error = 0, at, error

    def tick(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise self.error


class Spy:
    """Counts the lines of firstish that run, and raises Ctrl-C at one of them."""

    def __init__(self, at: int = 0) -> None:
        self.lines, self.at = 0, at
        self.where = ""
        self.path: list[tuple[str, int]] = []  # file and line of all of them

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        if event == "line" and not only_traced(frame):
            self.lines += 1
            if not self.at:
                self.path.append((frame.f_code.co_filename, frame.f_lineno))
            if self.lines == self.at:
                name = Path(frame.f_code.co_filename).name
                self.where = f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
                raise Interrupted
        return self

    @contextmanager
    def watching(self) -> Iterator[None]:
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(None)


def only_traced(frame: FrameType) -> bool:
    """Whether a trace can raise at this line, but Ctrl-C cannot.

    `try:` is an instruction that does nothing, and in Python 3.11 belongs to no block; and there is
    an event between the block of `with alone()` and the `__exit__` of the lock, which is in C.
    """
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return line == "try:" or "alone()" in line


@dataclass(frozen=True)
class Case:
    """A way to take steps.

    Args:
        name: as the table shows it.
        make: from a bomb to the module that holds the parameters, and one step that returns f.
        before: steps taken before the one that is interrupted.
        reached: for a run of `minimize`, which may end after any of its iterations: parameters and
            buffers after each.
    """

    name: str
    make: Callable[[Bomb], tuple[nn.Module, Callable[[], float]]]
    before: int = 0
    reached: list[tuple[list[Tensor], list[Tensor]]] | None = None


def network(dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Tensor, Tensor]:
    """A small network with everything that a step must leave alone, and its data."""
    torch.manual_seed(0)
    layers = (nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1))
    model = nn.Sequential(*layers).to(dtype)
    model[4].bias.requires_grad_(False)  # frozen
    return model, torch.randn(8, 3, dtype=dtype), torch.randn(8, 1, dtype=dtype)


def optimizer_case(method: Any, reuse: bool, backward: bool, before: int) -> Case:
    """`ScaledGD` on the network, by a closure that calls backward() or not."""

    def make(bomb: Bomb) -> tuple[nn.Module, Callable[[], float]]:
        model, rows, targets = network()
        optimizer = firstish.ScaledGD(model.parameters(), method=method, reuse_value=reuse)

        def closure() -> Tensor:
            bomb.tick()
            loss = nn.functional.mse_loss(model(rows), targets)
            bomb.tick()
            if backward:
                optimizer.zero_grad()
                loss.backward()
                bomb.tick()
            return loss

        return model, lambda: float(optimizer.step(closure))

    name = method if isinstance(method, str) else type(method).__name__
    words = ["ScaledGD", "CGMR" if method is None else name]
    words += ["reuse"] * reuse + ["backward"] * backward
    words += ["first step" if before == 0 else "later step"]
    return Case(", ".join(words), make, before=before)


def run_case(name: str, objective: Callable[[nn.Module, Bomb], Any], method: Any) -> Case:
    """`minimize` over a module's own parameters, a few iterations a call."""
    reached: list[tuple[list[Tensor], list[Tensor]]] = []

    def make(bomb: Bomb) -> tuple[nn.Module, Callable[[], float]]:
        model = network()[0]
        made = objective(model, bomb)

        def note(progress: firstish.Progress) -> None:
            reached.append(parts_of(progress.x, model))

        def step() -> float:
            options = {"gtol": 0, "max_iterations": 3, "callback": note}
            return firstish.minimize(made, model, method=method, **options).value

        return model, step

    started = network()[0]  # the buffers of a run that has accepted its start
    made = objective(started, Bomb())
    firstish.minimize(made, started, max_iterations=0)
    reached.append(parts_of(made.initial(), started))
    return Case(f"minimize, {name}", make, reached=reached)


def parts_of(x: Tensor, model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """The parameters that x holds and the frozen one, and the buffers."""
    parameters = list(model.parameters())
    parts = torch.split(x, [p.numel() for p in parameters[:-1]])
    return [*(p.clone() for p in parts), parameters[-1]], [b.clone() for b in model.buffers()]


def _loss(bomb: Bomb) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        bomb.tick()
        return nn.functional.mse_loss(outputs, targets)

    return loss


def _module(model: nn.Module, bomb: Bomb) -> Any:
    _, rows, targets = network()
    return firstish.ModuleObjective(model, _loss(bomb), rows, targets)


def _finite_sum(chunk_size: int) -> Callable[[nn.Module, Bomb], Any]:
    def make(model: nn.Module, bomb: Bomb) -> Any:
        _, rows, targets = network()
        model[1].eval()  # BatchNorm ties rows together
        return firstish.FiniteSum(model, _loss(bomb), (rows, targets), chunk_size=chunk_size)

    return make


def scipy_case() -> Case:
    """SciPy's `minimize`: f, its gradient and its products are NumPy functions."""

    def make(bomb: Bomb) -> tuple[nn.Module, Callable[[], float]]:
        from scipy.optimize import minimize, rosen, rosen_der, rosen_hess_prod

        def ticking(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                bomb.tick()
                return function(*args)

            return call

        holder = nn.Module()
        holder.x0 = nn.Parameter(torch.tensor([-1.2, 1.0], dtype=torch.float64))

        def step() -> float:
            found = minimize(
                ticking(rosen),
                holder.x0.detach().numpy(),
                jac=ticking(rosen_der),
                hessp=ticking(rosen_hess_prod),
                method=firstish.scipy_method,
                options={"maxiter": 3},
            )
            return float(found.fun)

        return holder, step

    return Case("scipy_method", make)


CASES = (
    *(
        optimizer_case(method, reuse, backward, before)
        for before in (0, 2)
        for method in (None, "lazy", "plane", firstish.ScaledDirection())
        for reuse in (False, True)
        for backward in ((False, True) if method in (None, "lazy") else (False,))
    ),
    run_case("ModuleObjective", _module, "lazy"),
    run_case("ModuleObjective, CGMR", _module, "CGMR"),
    run_case("FiniteSum", _finite_sum(3), "CGMR"),
    run_case("FiniteSum, one chunk", _finite_sum(100), "lazy"),
    scipy_case(),
)


def looks(model: nn.Module) -> dict[str, Any]:
    """All of a module, and of the process, that a step may change."""
    return {
        "parameters": [p.detach().clone() for p in model.parameters()],
        "buffers": [b.clone() for b in model.buffers()],
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "flags": [
            *(p.requires_grad for p in model.parameters()),
            *(m.training for m in model.modules()),
        ],
        "random state": [torch.get_rng_state()],
        "hooks": [
            len(torch_modules._global_forward_pre_hooks),
            len(torch_modules._global_forward_hooks),
            *(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()),
        ],
        "grad mode": [torch.is_grad_enabled()],
        "lock": [is_free(alone())],
    }


def is_free(lock: ProcessLock) -> bool:
    """Whether another thread can take the lock."""
    taken: list[bool] = []

    def take() -> None:
        taken.append(lock.acquire(blocking=False))
        if taken[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken[0]


def differ(one: dict[str, Any], two: dict[str, Any]) -> list[str]:
    """The names of what is not the same, to the bit."""

    def same(a: Any, b: Any) -> bool:
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return torch.equal(a.nan_to_num(), b.nan_to_num())
        return a is b or (not isinstance(a, Tensor) and a == b)

    return [
        name
        for name in one
        if not all(same(a, b) for a, b in zip(one[name], two[name], strict=True))
    ]


@dataclass
class Story:
    """What happens without an interruption: before and after the step, and during it."""

    before: dict[str, Any]
    after: dict[str, Any]
    value: float
    calls: int
    path: list[tuple[str, int]]


def undisturbed(case: Case) -> Story:
    """Take the steps, and count the user's calls and our lines in the last."""
    bomb, spy = Bomb(), Spy()
    model, step = begun(case, bomb)
    before = looks(model)
    bomb.calls = 0
    with spy.watching():
        value = step()
    return Story(before, looks(model), value, bomb.calls, spy.path)


def begun(case: Case, bomb: Bomb) -> tuple[nn.Module, Callable[[], float]]:
    """The case, its first steps taken."""
    model, step = case.make(bomb)
    for _ in range(case.before):
        step()
    return model, step


def interrupted(case: Case, story: Story, error: BaseException, at: int, spy: Spy) -> str | None:
    """Interrupt the step at the user's call `at`, or where the spy does; what is wrong after it."""
    bomb = Bomb()
    model, step = begun(case, bomb)
    bomb.set(at, error)
    try:
        with spy.watching():
            step()
    except type(error) as raised:
        if not spy.at and raised is not error:
            return f"another error: {raised!r}"
    except BaseException as other:
        return f"{type(other).__name__}: {other}"
    now = looks(model)
    bomb.set(0, error)
    changed = differ(now, story.before)
    if changed and not differ(now, story.after):
        return None  # the whole step was taken
    if case.reached is not None:
        for k, name in enumerate(("parameters", "buffers")):
            one_of = [{name: [t.reshape(-1) for t in reached[k]]} for reached in case.reached]
            here = {name: [t.reshape(-1) for t in now[name]]}
            if name in changed and any(not differ(here, there) for there in one_of):
                changed.remove(name)
        return f"changed: {', '.join(changed)}" if changed else None
    if changed:
        return f"changed: {', '.join(changed)}"
    value = step()
    if value != story.value or "parameters" in differ(looks(model), story.after):
        return f"the next step is another: f = {value!r} instead of {story.value!r}"
    return None


@contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    """TimeoutError in place of a hang."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"hung for {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attack(seed: int, effort: float) -> list[Tally]:
    """Every case: each of the user's calls with each error, then lines of ours."""
    rng = random.Random(seed)
    tallies, seen = dict[str, Tally](), set[tuple[str, int]]()
    for case in rng.sample(CASES, max(1, round(len(CASES) * min(1.0, 10 * effort)))):
        door = case.name.split(",")[0]
        names = f"error in a call of the loss, {door}", f"Ctrl-C at a line, {door}"
        calls, lines = (tallies.setdefault(name, Tally(name)) for name in names)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            story = undisturbed(case)
            for at in range(1, story.calls + 1):
                for kind in ERRORS:
                    attempt(calls, case, story, kind("boom"), at, Spy(), f"{kind.__name__}, {at}")
            new = [k + 1 for k, line in enumerate(story.path) if line not in seen]
            new = [k for k in new if story.path.index(story.path[k - 1]) == k - 1]
            new = rng.sample(new, math.ceil(len(new) * min(1.0, effort)))
            seen.update(story.path)
            more = rng.choices(range(1, len(story.path) + 1), k=math.ceil(MORE * effort))
            for at in sorted({*new, *more}):
                attempt(lines, case, story, Interrupted(), 0, Spy(at), f"line {at}")
    return list(tallies.values())


def attempt(
    tally: Tally, case: Case, story: Story, error: BaseException, at: int, spy: Spy, what: str
) -> None:
    """Interrupt once, and count how it ended."""
    try:
        with no_longer_than(HANGS):
            fault = interrupted(case, story, error, at, spy)
    except Exception as raised:
        fault = f"the next step raised {type(raised).__name__}: {raised}"
    tally.expect(fault is None, f"{case.name}, {what} {spy.where}: {fault}")

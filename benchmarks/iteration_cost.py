"""Time of `minimize` per iteration over the bare autograd calls it cannot avoid.

    .venv/bin/python benchmarks/iteration_cost.py [--blocks 25]

Bare calls of one unit-step iteration: the forward pass, the backward pass with its graph, and the
product on that graph. Each block takes the median iteration of both, one after the other, so that
the noise of the machine falls on both; the ratio is the median over blocks of (ours / bare). The
lazy step, the default, makes no product: its bare calls are a forward and a backward pass. It is
measured with 100 curvature pairs on the network, and with the first 40 on the digits, where it
needs no more; the bare calls are made where the run is then, for on the network they take longer
there than at its start. Then the growth of the process's memory over 1,000 iterations is printed.
"""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import firstish
from firstish.loop import Limits, Run

BARS = {"digits logistic": 1.15, "MLP 784-100-100-10, 10,000 rows": 1.05}
LAZY_BARS = {"digits logistic": 1.5, "MLP 784-100-100-10, 10,000 rows": 1.1}
PAIRS = {"digits logistic": 10, "MLP 784-100-100-10, 10,000 rows": 100}  # when measuring begins
NO_LIMITS = Limits()


def digits_logistic() -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Multinomial logistic regression on scikit-learn's digits, lambda = 1e-3."""
    pixels, labels = load_digits(return_X_y=True)
    rows = torch.tensor(pixels / 16, dtype=torch.float64)
    rows = torch.cat([rows, torch.ones(len(rows), 1, dtype=torch.float64)], 1)
    targets = torch.tensor(labels)
    last = torch.zeros(len(rows), 1, dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        logits = torch.cat([rows @ x.view(9, -1).T, last], 1)
        return F.cross_entropy(logits, targets) + 0.5e-3 * x.dot(x)

    return loss, torch.zeros(9 * rows.shape[1], dtype=torch.float64)


def mlp() -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """A GELU network on random rows, its parameters as one vector."""
    torch.manual_seed(0)
    rows, targets = torch.rand(10_000, 784, dtype=torch.float64), torch.randint(10, (10_000,))
    sizes = [784, 100, 100, 10]
    shapes = [s for a, b in pairwise(sizes) for s in ((b, a), (b,))]
    layers = [nn.Linear(a, b).double() for a, b in pairwise(sizes)]
    x0 = torch.cat([p.detach().reshape(-1) for layer in layers for p in layer.parameters()])

    def loss(x: Tensor) -> Tensor:
        parts = torch.split(x, [torch.Size(s).numel() for s in shapes])
        w1, b1, w2, b2, w3, b3 = (p.view(s) for p, s in zip(parts, shapes, strict=True))
        hidden = F.gelu(F.linear(F.gelu(F.linear(rows, w1, b1)), w2, b2))
        return F.cross_entropy(F.linear(hidden, w3, b3), targets)

    return loss, x0


def bare_gradient(loss: Callable[[Tensor], Tensor], x0: Tensor, iterations: int) -> float:
    """Seconds of a forward and a backward pass, the median."""
    spent = []
    for _ in range(iterations):
        start = time.perf_counter()
        x = x0.detach().requires_grad_()
        torch.autograd.grad(loss(x), x)
        spent.append(time.perf_counter() - start)
    return statistics.median(spent)


class Lazy:
    """The lazy step on a problem, from the iteration on that has so many pairs.

    It begins anew when the run has come to 40 iterations more.
    """

    def __init__(self, loss: Callable[[Tensor], Tensor], x0: Tensor, pairs: int) -> None:
        self.loss, self.x0, self.pairs = loss, x0, pairs
        self.run = self._begin()

    def _begin(self) -> Run:
        objective = firstish.FunctionObjective(self.loss, self.x0)
        run = Run(objective, self.x0, firstish.LazyStep(memory=100))
        for _ in range(self.pairs + 1):
            run.advance(NO_LIMITS)
        return run

    def seconds(self, iterations: int) -> float:
        """The median unit-step iteration's."""
        spent: list[float] = []
        while len(spent) < iterations:
            if self.run.iterations > self.pairs + 40:
                self.run = self._begin()
            start = time.perf_counter()
            entry = self.run.advance(NO_LIMITS)
            end = time.perf_counter()
            if isinstance(entry, firstish.Status):
                self.run = self._begin()
            elif entry.step is not None and entry.step.trials == 1:
                spent.append(end - start)
        return statistics.median(spent)


def bare(loss: Callable[[Tensor], Tensor], x0: Tensor, iterations: int) -> float:
    """Seconds of the autograd calls alone, the median iteration's."""
    spent = []
    for _ in range(iterations):
        start = time.perf_counter()
        x = x0.detach().requires_grad_()
        (g,) = torch.autograd.grad(loss(x), x, create_graph=True)
        torch.autograd.grad(g, x, g.detach())
        del g, x  # freeing the graph is part of the cost
        spent.append(time.perf_counter() - start)
    return statistics.median(spent)


def ours(loss: Callable[[Tensor], Tensor], x0: Tensor, iterations: int) -> float:
    """Seconds of `minimize`, its median unit-step iteration's; without the first one's checks."""
    result = firstish.minimize(
        loss, x0, method="CGMR", gtol=0, max_oracle_calls=None, max_iterations=iterations + 1
    )
    spent = [
        after.seconds - before.seconds
        for before, after in pairwise(result.history[1:])
        if before.trials == 1 and before.step_size == 1
    ]
    return statistics.median(spent)


def compare(name: str, problem: tuple[Callable[[Tensor], Tensor], Tensor], blocks: int) -> bool:
    """Print one line; True if the bar is met."""
    loss, x0 = problem
    once = bare(loss, x0, 3)
    iterations = max(3, min(100, int(0.5 / once)))
    pairs = [(ours(loss, x0, iterations), bare(loss, x0, iterations)) for _ in range(blocks)]
    return _told(name, pairs, BARS[name])


def compare_lazy(
    name: str, problem: tuple[Callable[[Tensor], Tensor], Tensor], blocks: int
) -> bool:
    """The same for the lazy step."""
    loss, x0 = problem
    once = bare_gradient(loss, x0, 3)
    iterations, lazy = max(3, min(30, int(0.3 / once))), Lazy(loss, x0, PAIRS[name])
    pairs = [
        (lazy.seconds(iterations), bare_gradient(loss, lazy.run.point.x, iterations))
        for _ in range(blocks)
    ]
    return _told(f"{name}, lazy", pairs, LAZY_BARS[name])


def _told(name: str, pairs: list[tuple[float, float]], bar: float) -> bool:
    ratio = statistics.median(a / b for a, b in pairs)
    spread = sorted(a / b for a, b in pairs)
    low, high = spread[len(spread) // 4], spread[3 * len(spread) // 4]
    met = ratio <= bar
    best_ours, best_bare = (min(times) * 1e3 for times in zip(*pairs, strict=True))
    print(f"{name}: ours {best_ours:.3f} ms, bare {best_bare:.3f} ms at best")
    print(
        f"  ratio {ratio:.3f} (quartiles {low:.3f} to {high:.3f}), bar {bar}: "
        f"{'met' if met else 'MISSED'}"
    )
    return met


def anonymous_memory() -> float:
    """MiB of anonymous memory of this process."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = (
        x for x in status.read_text(encoding="utf-8").splitlines() if x.startswith("RssAnon")
    )
    return int(line.split()[1]) / 1024


def memory_growth() -> float:
    """MiB by which 1,000 iterations after the first 100 grow the process."""
    loss, x0 = digits_logistic()
    seen: list[float] = []

    def observe(progress: firstish.Progress) -> None:
        if progress.row.iteration in (100, 1100):
            gc.collect()
            seen.append(anonymous_memory())

    method = firstish.ScaledGradient(scaling="GM")  # slow enough to keep going for so long
    firstish.minimize(
        loss,
        x0,
        method=method,
        gtol=0,
        max_oracle_calls=None,
        max_iterations=1101,
        callback=observe,
    )
    return seen[1] - seen[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=25)
    blocks = parser.parse_args().blocks
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {blocks} blocks")
    met = [
        compare(name, problem, blocks)
        for name, problem in zip(BARS, (digits_logistic(), mlp()), strict=True)
    ]
    met += [
        compare_lazy(name, problem, blocks)
        for name, problem in zip(BARS, (digits_logistic(), mlp()), strict=True)
    ]
    growth = memory_growth()
    print(f"memory growth over 1,000 iterations: {growth:.2f} MiB (the history's rows included)")
    raise SystemExit(0 if all(met) and growth < 5 else 1)


if __name__ == "__main__":
    main()

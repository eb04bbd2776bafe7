"""ScaledGD on mini-batches against Adam with a cosine schedule, over batch size and epochs.

    .venv/bin/python benchmarks/mini_batches.py [--seeds 3] [--data DIR]

Work is counted in epochs of Adam: an epoch costs Adam 2 oracle calls a row (value and gradient),
ScaledGD 4 + trials (value, gradient, product, trials), so that it takes 2 of Adam's 5 steps. Adam's
step size is the best of five by the final training loss (the other four runs are not counted), and
torch's default. The full-batch lines are `minimize` with its defaults, at the same number of calls.
FashionMNIST is skipped where its files are absent. Prints the tables of docs/mini-batches.md.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import firstish
from firstish.problems.datasets.errors import MissingDataError
from firstish.problems.datasets.readers.idx import load_fashion_mnist

EPOCHS = (5, 20, 80)
BATCHES = (32, 128, 512)
RATES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)
DEFAULT = 1e-3  # torch's


class Data(NamedTuple):
    """Rows to train on and rows held out."""

    name: str
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


class Outcome(NamedTuple):
    """The training loss over all rows, and the share of the held-out rows that are right."""

    loss: float
    accuracy: float


def digits() -> Data:
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x, y = torch.from_numpy(pixels).float()[order] / 16, torch.from_numpy(labels)[order]
    return Data("digits, 1,437 rows", x[:1437], y[:1437], x[1437:], y[1437:])


def fashion(folder: Path | None, rows: int = 6000) -> Data:
    def of(split: str, count: int) -> tuple[Tensor, Tensor]:
        found = load_fashion_mnist(split, folder)
        images = torch.from_numpy(found.images[:count].reshape(count, -1)).float() / 255
        return images, torch.from_numpy(found.labels[:count])

    return Data(f"FashionMNIST, {rows:,} rows", *of("train", rows), *of("test", 2000))


def network(data: Data, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(data.x.shape[1], 64), nn.Tanh(), nn.Linear(64, 10))


def batches(data: Data, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of shuffled rows, epoch after epoch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        for rows in torch.randperm(len(data.y), generator=generator).split(size):
            yield data.x[rows], data.y[rows]


def judged(model: nn.Module, data: Data) -> Outcome:
    with torch.no_grad():
        right = (model(data.test_x).argmax(1) == data.test_y).float().mean()
        return Outcome(cross_entropy(model(data.x), data.y).item(), right.item())


def adam(data: Data, size: int, epochs: int, seed: int, rate: float) -> Outcome:
    model = network(data, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    steps = epochs * math.ceil(len(data.y) / size)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _, (x, y) in zip(range(steps), batches(data, size, seed), strict=False):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        scheduler.step()
    return judged(model, data)


def scaled(data: Data, size: int, epochs: int, seed: int) -> Outcome:
    model = network(data, seed)
    optimizer = firstish.ScaledGD(model.parameters(), method="CGMR")
    left = 2.0 * epochs * len(data.y)
    for x, y in batches(data, size, seed):
        if left <= 0:
            return judged(model, data)
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x), y))
        left -= (4 + optimizer.last_step.trials) * len(y)
    raise AssertionError("the batches never end")


def full(data: Data, epochs: int, seed: int) -> Outcome:
    model = network(data, seed)
    objective = firstish.ModuleObjective(model, cross_entropy, data.x, data.y)
    firstish.minimize(objective, model, max_oracle_calls=2 * epochs)
    return judged(model, data)


def mean(run: Callable[[int], Outcome], seeds: int) -> Outcome:
    outcomes = [run(seed) for seed in range(seeds)]
    return Outcome(*(statistics.fmean(part) for part in zip(*outcomes, strict=True)))


def adams(data: Data, size: int, epochs: int, seeds: int) -> tuple[Outcome, Outcome]:
    """Adam with the best step size, and with torch's default."""
    tried = {r: mean(lambda s, r=r: adam(data, size, epochs, s, r), seeds) for r in RATES}
    return min(tried.values(), key=lambda outcome: outcome.loss), tried[DEFAULT]


def line(name: str, size: str, outcomes: Sequence[Outcome]) -> str:
    shown = [f"{o.loss:.2g} | {100 * o.accuracy:.1f} %" for o in outcomes]
    return f"| {name} | {size} | {' | '.join(shown)} |"


def show(data: Data, size: int, title: str, seeds: int, name: str, ours: list[Outcome]) -> None:
    best, default = zip(*(adams(data, size, e, seeds) for e in EPOCHS), strict=True)
    print(line("Adam, best of five", title, best))
    print(line(f"Adam, {DEFAULT:g}", title, default))
    print(line(name, title, ours), flush=True)


def table(data: Data, seeds: int) -> None:
    titles = " | ".join(f"loss, {e} epochs | right" for e in EPOCHS)
    print(f"\n{data.name}, mean of {seeds} seeds:\n\n| optimizer | batch | {titles} |")
    print("|---|--:|" + "--:|" * 2 * len(EPOCHS), flush=True)
    for size in BATCHES:
        ours = [mean(lambda s, e=e, n=size: scaled(data, n, e, s), seeds) for e in EPOCHS]
        show(data, size, str(size), seeds, "`ScaledGD`", ours)
    ours = [mean(lambda s, e=e: full(data, e, s), seeds) for e in EPOCHS]
    show(data, len(data.y), "all", seeds, "`minimize`", ours)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="a folder with data sets")
    args = parser.parse_args()
    table(digits(), args.seeds)
    try:
        data = fashion(args.data)
    except MissingDataError as error:
        print(f"\nFashionMNIST is skipped: {error}")
        return
    table(data, args.seeds)


if __name__ == "__main__":
    main()

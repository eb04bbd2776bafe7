"""Collocation points drawn anew during a fit: what becomes of the curvature pairs, measured.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/pinn_resampling.py [--every inf 300]

Poisson's equation in one dimension (race/learning/pinns/poisson.py) with 100 random points. The
points stay, or are drawn anew each time that so many calls are spent. Each way has the same calls.
Printed: the median relative error of the solution, and of the loss at 1,000 points.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from race.learning.making import glorot, shapes, split
from race.learning.physics import network
from torch import Tensor

import firstish

WIDTHS = (1, 20, 20, 1)
LAYOUT = shapes(WIDTHS)
ENDS = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
FINE = torch.linspace(-1, 1, 1000, dtype=torch.float64)[:, None]


def loss(x: Tensor, points: Tensor) -> Tensor:
    """The mean square of u'' + pi^2 sin(pi x), and that of u at the ends."""
    u, _, second = network(split(x, LAYOUT), torch.cat([points, ENDS])).unbind()
    residual = second[:-2] + math.pi**2 * torch.sin(math.pi * points[:, 0])
    return residual.square().mean() + u[-2:].square().mean()


def error(x: Tensor) -> float:
    """|u - sin(pi x)| over |sin(pi x)|."""
    exact = torch.sin(math.pi * FINE[:, 0])
    return float((network(split(x, LAYOUT), FINE)[0] - exact).norm() / exact.norm())


class Points:
    """100 random points, drawn anew each time that `every` calls are spent."""

    def __init__(self, seed: int, every: float) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self.every, self._next = every, every
        self.here = self._draw()

    def _draw(self) -> Tensor:
        return 2 * torch.rand(100, 1, generator=self._generator, dtype=torch.float64) - 1

    def after(self, calls: float) -> Tensor:
        """Those to use once so many calls are spent."""
        if calls >= self._next:
            self.here, self._next = self._draw(), self._next + self.every
        return self.here


def forgotten(x: Tensor, points: Points, calls: float) -> Tensor:
    """A run of `minimize` for each draw: the pairs are forgotten."""
    spent = 0.0
    while spent < calls:
        fun = partial(loss, points=points.after(spent))
        budget = min(points.every, calls - spent)
        done = firstish.minimize(fun, x, gtol=0.0, max_oracle_calls=budget)
        x, spent = done.x, spent + done.oracle_calls
    return x


def optimizer(method: str | None) -> Callable[[Tensor, Points, float], Tensor]:
    """`ScaledGD` throughout: with "lazy" the pairs are kept."""

    def run(x: Tensor, points: Points, calls: float) -> Tensor:
        parameter = torch.nn.Parameter(x.clone())
        settings = {} if method is None else {"method": method}
        steps = firstish.ScaledGD([parameter], **settings)
        spent = 0.0
        while spent < calls:
            steps.step(partial(loss, parameter, points.after(spent)))
            spent = steps.last_step.oracle_calls
        return parameter.detach()

    return run


def adam(x: Tensor, points: Points, calls: float) -> Tensor:
    """torch's, step size 1e-3, 2 calls a step."""
    parameter = torch.nn.Parameter(x.clone())
    steps = torch.optim.Adam([parameter], lr=1e-3)
    for k in range(int(calls) // 2):
        steps.zero_grad()
        loss(parameter, points.after(2 * k)).backward()
        steps.step()
    return parameter.detach()


WAYS = {
    "a run for each draw, pairs forgotten": forgotten,
    'ScaledGD(method="lazy"), pairs kept': optimizer("lazy"),
    "ScaledGD, its default": optimizer(None),
    "Adam": adam,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--every", type=float, nargs="+", default=[math.inf, 300])
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # that the loss changes is what is measured
    for every in args.every:
        print("points stay" if every == math.inf else f"points drawn anew every {every:g} calls")
        for name, way in WAYS.items():
            ends = [
                way(glorot(1_000 * (seed + 1), WIDTHS), Points(seed, every), args.calls)
                for seed in range(args.seeds)
            ]
            errors, losses = [error(x) for x in ends], [float(loss(x, FINE)) for x in ends]
            print(f"  {name:38} error {median(errors):.1e}  loss {median(losses):.1e}", flush=True)


if __name__ == "__main__":
    main()

"""Oracle calls that products on a sample of the rows save, on FashionMNIST's network.

    .venv/bin/python benchmarks/hessian_sample.py [--subset 6000] [--share 0.1] [--data DIR]

The exact run spends 1,000 oracle calls. A sampled run, whose products use a share of the rows drawn
anew at each point, goes on until it reaches the objective at which the exact one ended, or has
spent twice as much. A product then costs 2 calls times the share. Without `--subset`, all 60,000
rows: hours. Bar: every sampled run gets there with fewer calls.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch.nn import functional as F

import firstish
from firstish.problems.datasets.readers.idx import load_fashion_mnist
from firstish.problems.mlp import mlp

WIDTHS, WEIGHT_DECAY = (784, 100, 100, 10), 1e-3  # as in the problem fashion-mlp


def run(
    data: tuple[torch.Tensor, torch.Tensor],
    calls: int,
    target: float,
    sample: float | None,
    seed: int,
) -> firstish.Result:
    """A run of the default method until the target or the calls are reached."""
    model = mlp(WIDTHS, seed=0).double()
    objective = firstish.FiniteSum(
        model,
        F.cross_entropy,
        data,
        chunk_size=2000,
        weight_decay=WEIGHT_DECAY,
        hessian_sample=sample,
        seed=seed,
    )
    return firstish.minimize(
        objective,
        model,
        method="CGMR",  # a product at every step
        gtol=0,
        max_oracle_calls=calls,
        callback=lambda progress: progress.value <= target,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subset", type=int, help="the first so many rows; all by default")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="a folder with data sets")
    args = parser.parse_args()
    fashion = load_fashion_mnist("train", args.data)
    rows = len(fashion.labels) if args.subset is None else args.subset
    pixels = torch.from_numpy(fashion.images[:rows].reshape(rows, -1)).double() / 255
    data = (pixels, torch.from_numpy(fashion.labels[:rows]))

    exact = run(data, args.calls, -1.0, None, 0)
    target, spent = exact.value, exact.oracle_calls
    print(
        f"{rows:,} rows. Exact products: f = {target:.6f} after {spent:g} calls, "
        f"{exact.iterations} iterations, {exact.seconds:.0f} s",
        flush=True,
    )
    met = True
    for seed in range(args.seeds):
        sampled = run(data, 2 * args.calls, target, args.share, seed)
        reached = sampled.value <= target
        met = met and reached and sampled.oracle_calls < spent
        cut = sum(1 for row in sampled.history[:-1] if row.step_size != 1)
        print(
            f"  products on {args.share:.0%} of the rows, seed {seed}: f = {sampled.value:.6f} "
            f"after {sampled.oracle_calls:g} calls ({sampled.oracle_calls / spent:.2f} of them), "
            f"{sampled.iterations} iterations, {cut} without a unit step, {sampled.seconds:.0f} s"
            f"{'' if reached else ': NOT REACHED'}",
            flush=True,
        )
    print(f"fewer calls with every seed: {'met' if met else 'MISSED'}")
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()

"""Time per iteration of two processes over that of one, one thread each, on the same rows.

    .venv/bin/python benchmarks/two_processes.py [--rows 10000] [--repeats 7]

`FiniteSum` on the network 784-100-100-10. Rounds take turns: a process alone on all rows, then two
on half of them each, so that the noise of the machine falls on both. Bar: the median over
rounds of (one / two) is at least 1.6. That takes two free cores: on a busy machine look at the
ratio of processor times, the busier rank's of the two, which leaves waiting out.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn

import firstish

BAR = 1.6


def child(rows: int, iterations: int) -> None:
    """One rank's run; rank 0 prints seconds and processor seconds an iteration, and the last f."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    inputs, labels = torch.rand(rows, 784, dtype=torch.float64), torch.randint(10, (rows,))
    layers = nn.Linear(784, 100), nn.GELU(), nn.Linear(100, 100), nn.GELU(), nn.Linear(100, 10)
    model = nn.Sequential(*layers).double()
    objective = firstish.FiniteSum(
        model,
        nn.functional.cross_entropy,
        (inputs[rank::size].clone(), labels[rank::size].clone()),
        chunk_size=1000,
        process_group=dist.group.WORLD,
    )
    dist.barrier()
    clock = []
    result = firstish.minimize(
        objective,
        model,
        method="CGMR",
        gtol=0,
        max_iterations=iterations + 1,
        callback=lambda _: clock.append(time.process_time()),
    )
    spent = statistics.median(b.seconds - a.seconds for a, b in pairwise(result.history[1:]))
    busy = torch.tensor(statistics.median(b - a for a, b in pairwise(clock)))
    dist.all_reduce(busy, dist.ReduceOp.MAX)
    if rank == 0:
        print(spent, busy.item(), result.value)
    dist.destroy_process_group()


def measured(size: int, rows: int, iterations: int) -> tuple[float, float, float]:
    """Seconds and processor seconds per iteration of so many processes, and the f they reached."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size)}
    command = [sys.executable, __file__, "--child", "--rows", str(rows)]
    command += ["--iterations", str(iterations)]
    ranks = [
        subprocess.Popen(
            command,
            env={**os.environ, **common, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    outputs = [process.communicate()[0] for process in ranks]
    if any(process.returncode for process in ranks):
        raise SystemExit("a process failed; see above")
    seconds, busy, value = map(float, outputs[0].split())
    return seconds, busy, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.rows, args.iterations)
        return
    load = os.getloadavg()[0]
    print(f"torch {torch.__version__}, {os.cpu_count()} cores, load {load:.1f} before the start")
    ratios, busy_ratios = [], []
    for _ in range(args.repeats):
        one, busy_one, value = measured(1, args.rows, args.iterations)
        two, busy_two, other = measured(2, args.rows, args.iterations)
        ratios.append(one / two)
        busy_ratios.append(busy_one / busy_two)
        same = abs(value - other) <= 1e-9 * abs(value)
        print(
            f"  one {one * 1e3:7.1f} ms, two {two * 1e3:7.1f} ms an iteration: "
            f"{ratios[-1]:.2f} times less; processor {busy_one * 1e3:.1f} and "
            f"{busy_two * 1e3:.1f} ms: {busy_ratios[-1]:.2f}; "
            f"{'the same f' if same else f'f {value} and {other}'}",
            flush=True,
        )
    low, ratio, high = statistics.quantiles(ratios, n=4, method="inclusive")
    met = ratio >= BAR
    print(
        f"two processes take {ratio:.2f} times less (quartiles {low:.2f} to {high:.2f}, best "
        f"{max(ratios):.2f}), bar {BAR}: {'met' if met else 'MISSED'}"
    )
    low, ratio, high = statistics.quantiles(busy_ratios, n=4, method="inclusive")
    print(f"processor time {ratio:.2f} times less (quartiles {low:.2f} to {high:.2f})")
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()

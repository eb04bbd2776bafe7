"""Peak memory of `FiniteSum` on n rows and on 10 n rows of a memory-mapped file.

    .venv/bin/python benchmarks/finite_sum_memory.py [--rows 20000] [--chunk-size 1000]

Each run is a process of its own that samples its anonymous memory (the file's pages, which the
system can drop at any time, left out) from a thread every millisecond. Bar: the peak grows by less
than 5 %.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import firstish

WIDTH, CLASSES = 200, 10


def write(folder: Path, rows: int) -> None:
    """Random rows and labels, written a block at a time."""
    inputs = np.memmap(folder / "inputs", np.float32, "w+", shape=(rows, WIDTH))
    labels = np.memmap(folder / "labels", np.int64, "w+", shape=(rows,))
    generator = np.random.default_rng(0)
    for start in range(0, rows, 5000):
        some = slice(start, min(start + 5000, rows))
        inputs[some] = generator.standard_normal((some.stop - start, WIDTH), np.float32)
        labels[some] = generator.integers(CLASSES, size=some.stop - start)
    inputs.flush()
    labels.flush()


def anonymous() -> int:
    """KiB of anonymous memory of this process now."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("RssAnon:")[2].split()[0])


class Peak:
    """The largest anonymous memory while the block runs."""

    def __enter__(self) -> Peak:
        self.kib, self._stop = 0, False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop:
            self.kib = max(self.kib, anonymous())
            time.sleep(0.001)

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self._thread.join()


def child(folder: Path, rows: int, chunk_size: int, iterations: int) -> None:
    """One run; prints its peak in KiB."""
    torch.set_num_threads(1)
    inputs = torch.from_file(str(folder / "inputs"), size=rows * WIDTH, dtype=torch.float32)
    labels = torch.from_file(str(folder / "labels"), size=rows, dtype=torch.int64)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 100), nn.GELU(), nn.Linear(100, CLASSES))
    loss_fn = nn.functional.cross_entropy
    data = (inputs.view(rows, WIDTH), labels)
    with Peak() as peak:
        objective = firstish.FiniteSum(model, loss_fn, data, chunk_size=chunk_size)
        result = firstish.minimize(
            objective, model, method="CGMR", gtol=0, max_iterations=iterations
        )
    assert result.iterations == iterations, result.message
    print(peak.kib)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--chunk-size", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.rows, args.chunk_size, args.iterations)
        return
    peaks = {}
    for rows in (args.rows, 10 * args.rows):
        with tempfile.TemporaryDirectory(prefix="firstish-memory-") as folder:
            write(Path(folder), rows)
            command = [sys.executable, __file__, "--child", folder, "--rows", str(rows)]
            command += ["--chunk-size", str(args.chunk_size), "--iterations", str(args.iterations)]
            run = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks[rows] = int(run.stdout) / 1024
        size = rows * (4 * WIDTH + 8) / 2**20
        print(f"{rows:>9,} rows ({size:7.1f} MiB of data): peak {peaks[rows]:.1f} MiB")
    growth = peaks[10 * args.rows] / peaks[args.rows] - 1
    met = growth < 0.05
    print(f"growth at 10 times the data {growth:+.1%}, bar 5 %: {'met' if met else 'MISSED'}")
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()

"""Fit a model to a data set that stays on disk.

    python examples/larger_than_memory.py [--rows 200000]

Every chunk of rows is read, used and forgotten, so memory does not grow with the data: compare what
this prints for --rows 200000 and for --rows 2000000.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import firstish

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rows", type=int, default=200_000)
parser.add_argument("--iterations", type=int, default=20)
rows, iterations = vars(parser.parse_args()).values()
features, classes, block = 50, 5, 10_000

# A data set in two files, written a block at a time. Yours would be there already.
folder = tempfile.TemporaryDirectory()
inputs_file, labels_file = Path(folder.name, "inputs"), Path(folder.name, "labels")
inputs_map = np.memmap(inputs_file, np.float32, "w+", shape=(rows, features))
labels_map = np.memmap(labels_file, np.int64, "w+", shape=(rows,))
generator = np.random.default_rng(0)
centres = generator.standard_normal((classes, features), np.float32)
for start in range(0, rows, block):
    some = slice(start, min(start + block, rows))
    labels_map[some] = generator.integers(classes, size=some.stop - start)
    noise = generator.standard_normal((some.stop - start, features), np.float32)
    inputs_map[some] = centres[labels_map[some]] + 2 * noise
inputs_map.flush()
labels_map.flush()

# Tensors over the files: nothing is read before it is used.
inputs = torch.from_file(str(inputs_file), size=rows * features, dtype=torch.float32)
labels = torch.from_file(str(labels_file), size=rows, dtype=torch.int64)

torch.manual_seed(0)
model = nn.Linear(features, classes)
objective = firstish.FiniteSum(
    model,
    nn.functional.cross_entropy,
    (inputs.view(rows, features), labels),
    chunk_size=5_000,
    weight_decay=1e-4,
)


def report(progress: firstish.Progress) -> None:
    if progress.row.iteration % 5 == 0:
        print(f"after {progress.row.iteration + 1:3} iterations f = {progress.value:.6f}")


result = firstish.minimize(objective, model, gtol=1e-3, max_iterations=iterations, callback=report)
print(result.message)

# What this process holds itself; pages of the files are not in it, the system drops them at will.
status = Path("/proc/self/status")
if status.exists():
    held = int(status.read_text(encoding="utf-8").partition("RssAnon:")[2].split()[0]) / 1024
    data = (inputs.nbytes + labels.nbytes) / 2**20
    print(f"memory: {held:.0f} MiB, with torch itself; the data: {data:.0f} MiB")

# The model holds the result.
with torch.no_grad():
    right = (model(inputs.view(rows, features)[:block]).argmax(1) == labels[:block]).float().mean()
print(f"right on the first {min(block, rows):,} rows: {right:.1%}")

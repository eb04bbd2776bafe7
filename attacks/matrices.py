"""Sparse matrices with damaged indices: refused, or computed with as what they are.

In a process of their own, because a wrong index may end it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import firstish
from attacks.tally import Tally

TRIALS = 4000
LONGEST = 600.0
SCIPY = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")
TORCH = ("torch csr", "torch csc", "torch coo")
ARRAYS = {
    "csr": ("indptr", "indices", "data"),
    "csc": ("indptr", "indices", "data"),
    "bsr": ("indptr", "indices"),
    "coo": ("row", "col", "data"),
    "dia": ("offsets", "data"),
}


def _hostile(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """The array with an entry changed, a bit flipped, entries exchanged, or another length."""
    changed = array.copy()
    at = tuple(rng.randrange(n) for n in array.shape)
    kind = rng.randrange(5)
    if kind == 0 and array.dtype.kind == "i":
        changed[at] = rng.choice([-1, -(2**31), 2**31 - 1, 10**6, len(array), 0, 1, 2])
    elif kind == 1 and array.dtype.kind == "i":
        changed[at] ^= np.array(1 << rng.randrange(31), dtype=array.dtype)
    elif kind == 2:
        changed = changed[::-1].copy()
    elif kind == 3:
        changed = changed[: rng.randrange(len(array) + 1)]
    else:
        changed = np.concatenate([changed, changed[: rng.randrange(len(array) + 1)]])
    return changed


def _scipy(rng: random.Random, kind: str, dense: np.ndarray) -> Any:
    matrix = sp.coo_matrix(dense).asformat(kind)
    if kind in ARRAYS and rng.random() < 0.85:
        name = rng.choice(ARRAYS[kind])
        setattr(matrix, name, _hostile(rng, getattr(matrix, name)))
    elif kind == "lil":
        row = rng.randrange(dense.shape[0])
        matrix.rows[row] = [*matrix.rows[row][:-1], rng.choice([-1, 0, 10**6])]
    elif kind == "dok":
        matrix._dict[(rng.choice([-1, 0, 10**6]), rng.choice([-1, 1, 10**6]))] = 1.0
    else:
        matrix._shape = tuple(max(1, n + rng.choice([-2, -1, 1, 10**3])) for n in dense.shape)
    return matrix


def _torch(rng: random.Random, kind: str, dense: np.ndarray) -> torch.Tensor:
    values = torch.from_numpy(dense)
    if kind == "torch coo":
        A = values.to_sparse()
        indices = A.indices().numpy().copy()
        indices[rng.randrange(2), rng.randrange(indices.shape[1])] = rng.choice([-1, 10**6, 2**40])
        parts = torch.from_numpy(indices), A.values()
        return torch.sparse_coo_tensor(*parts, A.shape, check_invariants=False)
    A = values.to_sparse_csr() if kind == "torch csr" else values.to_sparse_csc()
    names = (
        ("crow_indices", "col_indices") if kind == "torch csr" else ("ccol_indices", "row_indices")
    )
    arrays = [getattr(A, name)().numpy().copy() for name in names]
    at = rng.randrange(2)
    array = arrays[at]
    array[rng.randrange(len(array))] = rng.choice([-1, 0, 1, 5, 10**6, 2**40])
    make = torch.sparse_csr_tensor if kind == "torch csr" else torch.sparse_csc_tensor
    first, second = map(torch.from_numpy, arrays)
    return make(first, second, A.values(), A.shape, check_invariants=False)


def _trial(number: int) -> tuple[str, str]:
    """How a trial ended, and what it was."""
    rng = random.Random(number)
    numbers = np.random.RandomState(number % 2**31)
    dense = numbers.randn(rng.randrange(2, 9), rng.randrange(2, 7))
    dense[numbers.rand(*dense.shape) < 0.4] = 0
    dense[0, 0] = 1.0
    kind = rng.choice(SCIPY + TORCH)
    matrix = _torch(rng, kind, dense) if kind in TORCH else _scipy(rng, kind, dense)
    rows = matrix.shape[0]
    try:
        model = firstish.LinearModel(matrix, torch.zeros(rows), firstish.families.LeastSquares())
    except (ValueError, TypeError) as error:
        ours = "`LinearModel(features=...)`" in str(error)
        return ("refused" if ours else "lost"), f"{kind}: {error!r}"[:200]
    except Exception as error:
        return "lost", f"{kind}: {error!r}"[:200]
    x = torch.linspace(-1, 1, matrix.shape[1], dtype=torch.float64)
    whole = matrix.to_dense() if kind in TORCH else torch.from_numpy(matrix.tocsr().toarray())
    right = torch.allclose(model.features.times(x), whole @ x, rtol=1e-12, atol=1e-12)
    return ("survived" if right else "lost"), f"{kind}: accepted, with another product"


def trials(first: int, count: int) -> None:
    """Print a line before and after each trial."""
    warnings.simplefilter("ignore")
    for number in range(first, first + count):
        print(json.dumps(number), flush=True)
        print(json.dumps(_trial(number)), flush=True)


def attack(seed: int, effort: float) -> list[Tally]:
    """Damage of one array at a time."""
    tally = Tally("damaged sparse matrices")
    first, end = seed * TRIALS, seed * TRIALS + max(30, round(TRIALS * effort))
    while first < end:
        done = subprocess.run(
            [sys.executable, "-m", "attacks.matrices", str(first), str(end - first)],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[1],
            timeout=LONGEST,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        for how, what in lines[1::2]:
            if how == "lost":
                tally.lost.append(what)
            else:
                setattr(tally, how, getattr(tally, how) + 1)
        first += len(lines) // 2
        if len(lines) % 2:  # it ended inside a trial
            tally.lost.append(f"trial {lines[-1]} ended the process ({done.returncode})")
            first += 1
        elif done.returncode:
            tally.lost.append(f"no trial could be made: {done.stderr[-300:]}")
            break
    return [tally]


if __name__ == "__main__":
    trials(*map(int, sys.argv[1:]))

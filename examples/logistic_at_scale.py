"""Logistic regression on many rows, sparse and dense, with a look at memory.

    python examples/logistic_at_scale.py [--rows 200000]

`LinearModel` keeps the scores A x of each point, so that an iteration makes two or three passes
over the data and none of them builds a graph. A dense matrix is not copied; a sparse one is kept by
rows and by columns, and never filled. What comes on top is some vectors with an entry for each row,
and the method's own, some twenty with one for each feature. For rows that do not fit see
examples/larger_than_memory.py.
"""

import argparse

import torch

import firstish

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rows", type=int, default=200_000)
rows = parser.parse_args().rows
features, filled = 2_000, 20


def sparse_rows() -> torch.Tensor:
    """`filled` ones in each row, as words of a short text would be; float32 halves the memory."""
    width = features // filled
    columns = torch.arange(filled) * width + torch.randint(width, (rows, filled))
    places = torch.stack([torch.arange(rows).repeat_interleave(filled), columns.flatten()])
    return torch.sparse_coo_tensor(
        places,
        torch.ones(rows * filled),
        (rows, features),
        is_coalesced=True,
        check_invariants=True,
    )


def fit(name: str, A: torch.Tensor) -> None:
    truth = torch.randn(A.shape[1], 1)
    scores = (A @ truth).flatten()
    labels = (torch.rand(rows) < torch.sigmoid(scores / scores.std())).to(torch.float32)
    objective = firstish.LinearModel(
        A, labels, firstish.families.Logistic(), weight_decay=1e-4, intercept=True
    )
    result = firstish.minimize(objective, objective.initial(), gtol=1e-4)
    right = ((objective.scores(result.x) > 0) == (labels > 0)).float().mean()
    numbers = A.numel() if A.layout is torch.strided else A.values().numel()
    print(f"{name}: {rows:,} rows, {A.shape[1]:,} features, {numbers * 4 / 1e6:.0f} MB of numbers")
    print(f"  {result.message}")
    print(f"  {result.passes:g} passes over the data, {right:.1%} right, {result.seconds:.1f} s")


torch.manual_seed(0)
A = sparse_rows()
fit("sparse", A)
print(f"  (filled it would be {rows * features * 4 / 1e6:,.0f} MB)")
del A

fit("dense", torch.randn(rows, 50) * torch.logspace(0, -2, 50))

"""A small symmetric system, without the rows that would make it nearly singular or indefinite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

DEFINITE = 1e-8  # smallest pivot at unit diagonal: rounding then leaves half of the digits


def solve(A: Sequence[Sequence[float]], rhs: Sequence[float], least: float) -> list[float]:
    """The solution c of A c = rhs, by Cholesky's method at unit diagonal; 0 for omitted rows.

    A row is omitted if its diagonal entry is not finite or not above `least`, if an entry with an
    earlier row is nan, or if it would make the matrix of the earlier rows indefinite. The first row
    is always kept.

    Args:
        A: the rows of the lower triangle; A_00 is positive.
        rhs: the right-hand side.
        least: a bound on the diagonal.

    Examples:
        >>> solve([[4.0], [0.0, 1.0]], [8.0, 6.0], 0.0)
        [2.0, 6.0]
        >>> solve([[4.0], [9.0, 2.0]], [8.0, 6.0], 0.0)
        [2.0, 0.0]
    """
    kept: list[int] = []
    roots: list[float] = []  # of the diagonal entries
    lower: list[list[float]] = []  # the Cholesky factor of A at unit diagonal
    c: list[float] = []  # the solution of lower c = rhs, then of lower' c = that
    for i, entries in enumerate(A):
        if i > 0 and not least < entries[i] < math.inf:
            continue
        root = math.sqrt(entries[i])
        row: list[float] = []
        for a, k in enumerate(kept):
            rest = entries[k] / root / roots[a] - sum(map(mul, row, lower[a]))
            row.append(rest / lower[a][a])
        pivot = 1 - sum(map(mul, row, row))
        if not pivot >= DEFINITE:
            continue
        row.append(math.sqrt(pivot))
        c.append((rhs[i] / root - sum(map(mul, row, c))) / row[-1])
        kept.append(i)
        roots.append(root)
        lower.append(row)
    for a in reversed(range(len(kept))):
        c[a] /= lower[a][a]
        for b in range(a):
            c[b] -= lower[a][b] * c[a]
    solution = [0.0] * len(A)
    for i, root, entry in zip(kept, roots, c, strict=True):
        solution[i] = entry / root
    return solution

"""A small symmetric system, and of its rows those that leave it safely positive definite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

DEFINITE = 1e-8  # least pivot at unit diagonal: then rounding leaves half of the digits


def solve(forms: Sequence[Sequence[float]], sides: Sequence[float], least: float) -> list[float]:
    """c with A c = sides, by Cholesky's method at unit diagonal; 0 for what is left out.

    Left out is a row whose diagonal is not above `least` or not finite, one that is nan where it
    meets a row taken before it, and one that would make those indefinite. The first is taken.

    Args:
        forms: A's lower triangle, row by row; A_00 is positive.
        sides: the right-hand side.
        least: see above.

    Examples:
        >>> solve([[4.0], [0.0, 1.0]], [8.0, 6.0], 0.0)
        [2.0, 6.0]
        >>> solve([[4.0], [9.0, 2.0]], [8.0, 6.0], 0.0)
        [2.0, 0.0]
    """
    taken: list[int] = []
    roots: list[float] = []  # of the diagonal
    lower: list[list[float]] = []  # Cholesky's factor, of unit diagonal's A
    found: list[float] = []  # the solution of lower z = sides
    for i, form in enumerate(forms):
        if i > 0 and not least < form[i] < math.inf:
            continue
        root = math.sqrt(form[i])
        row: list[float] = []
        for a, k in enumerate(taken):
            rest = form[k] / root / roots[a] - sum(map(mul, row, lower[a]))
            row.append(rest / lower[a][a])
        pivot = 1 - sum(map(mul, row, row))
        if not pivot >= DEFINITE:
            continue
        row.append(math.sqrt(pivot))
        found.append((sides[i] / root - sum(map(mul, row, found))) / row[-1])
        taken.append(i)
        roots.append(root)
        lower.append(row)
    for a in reversed(range(len(taken))):
        found[a] /= lower[a][a]
        for b in range(a):
            found[b] -= lower[a][b] * found[a]
    solution = [0.0] * len(forms)
    for i, root, c in zip(taken, roots, found, strict=True):
        solution[i] = c / root
    return solution

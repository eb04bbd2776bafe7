"""The inverse Hessian B of self-scaled BFGS as a matrix, for few variables.

The update is that of `curvature_pairs.py`, which has the same B in compact form. For n variables a
matrix takes n^2 numbers and as many multiplications, however many pairs are in it; the compact form
of m pairs takes 2 m n + m^2. Where vectors are short (`linalg.is_short`) the matrix is quicker.

With the unit vectors s and y of a pair, their cosine c, the stretch k = |y|/|s| and b = B y / c,

    B+ = (B - s h^T - h s^T) / tau,    h = b - (<y,b>/c + tau/(c k)) s / 2

which is (1/tau) V^T B V + s s^T/<s,y> of the pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from firstish.linalg import Array
from firstish.methods.quasi_newton.curvature_pairs import Pair, Pairs

SERIAL = 9000  # numbers in a matrix: soon after it NumPy's BLAS wakes threads of its own
MANY = 64  # held variables: up to here the Schur complement costs little


@dataclass(slots=True)  # not frozen: made once per iteration
class InverseHessian:
    """B and how it came to be.

    Args:
        B: the matrix.
        count: how many pairs are in it.
        scale: <s,y>/<y,y> of the newest.
        H: the inverse of B; None as long as it is not needed.
    """

    B: Array
    count: int
    scale: float
    H: Array | None = None

    def __len__(self) -> int:
        return self.count

    @classmethod
    def first(cls, new: Pair) -> InverseHessian:
        """B of one pair, from <s,y>/<y,y> I."""
        scale = new.cosine / new.stretch
        B = np.zeros((len(new.step), len(new.step)))
        np.fill_diagonal(B, scale)
        return cls(B, 0, scale).plus(new, 1.0)

    @classmethod
    def of(cls, pairs: Pairs) -> InverseHessian:
        """B of these pairs, of which none was dropped."""
        S, Y = pairs.S.to(torch.float64).numpy(), pairs.Y.to(torch.float64).numpy()
        numbers = zip(S, Y, pairs.R.diagonal(), pairs.stretches, strict=True)
        first, *others = (Pair(s, y, float(c), stretch) for s, y, c, stretch in numbers)
        found = cls.first(first)
        for new, tau in zip(others, pairs.taus[1:], strict=True):
            found = found.plus(new, tau)
        return found

    def plus(self, new: Pair, tau: float) -> InverseHessian:
        """B with a new pair, what it was before rescaled by 1/tau."""
        s, y, c = new.step, new.change, new.cosine
        b = _product(self.B, y) / c
        h = b - (float(y.dot(b)) / c + tau / (c * new.stretch)) / 2 * s
        if tau != 1.0:
            h /= tau
        if self.B.size <= SERIAL:
            both = np.array((s, h))
            B = both.T.dot(both[::-1])
            np.subtract(self.B if tau == 1.0 else self.B / tau, B, out=B)
        else:  # without writing the matrices in between
            left, right = torch.from_numpy(s), torch.from_numpy(h)
            half = torch.from_numpy(self.B).addr(left, right, beta=1 / tau, alpha=-1)
            B = half.addr_(right, left, alpha=-1).numpy()
        H = None if self.H is None else _updated_inverse(self.H, new, tau)
        return InverseHessian(B, self.count + 1, c / new.stretch, H)

    def times(self, v: Array, free: NDArray[np.bool_] | None = None) -> Array:
        """B v; with a mask of the free variables, the product of the inverse of their block.

        Their block of the Hessian has the inverse B_FF - B_FA (B_AA)^-1 B_AF, a Schur complement,
        with A the others. v is 0 for these, and so is the result; NaN if B_AA is singular. Where
        few of many variables are free, a system with that block itself is solved, for which H is
        kept from then on.
        """
        if free is None:
            return _product(self.B, v)
        (others,) = (~free).nonzero()
        if len(others) > max(MANY, len(v) - len(others)):
            return self._by_block(free, v)
        found = _product(self.B, v)
        if len(others) == 1:
            return _without_one(found, self.B[others[0]], others[0])
        rows = self.B.take(others, 0)
        weights = _solved(rows.take(others, 1), found.take(others))
        if weights is None:
            return np.full_like(v, np.nan)
        found -= _product(rows.T, weights)
        found[others] = 0.0
        return found

    def _by_block(self, free: NDArray[np.bool_], v: Array) -> Array:
        """The product of the inverse of the free block of H."""
        if self.H is None:
            inverse, info = torch.linalg.inv_ex(torch.from_numpy(self.B))
            if info.item():
                return np.full_like(v, np.nan)
            self.H = inverse.contiguous().numpy()  # as it will be once saved and loaded
        (at,) = free.nonzero()
        weights = _solved(self.H.take(at, 0).take(at, 1), v.take(at))
        if weights is None:
            return np.full_like(v, np.nan)
        found = np.zeros_like(v)
        found[at] = weights
        return found

    def newest_scale(self) -> float:
        """<s,y>/<y,y> of the newest pair."""
        return self.scale


def _without_one(found: Array, row: Array, i: int) -> Array:
    """The Schur complement where one variable is not free, from B v and its row of B."""
    if not row[i]:
        return np.full_like(found, np.nan)
    found -= row * (found[i] / row[i])
    found[i] = 0.0
    return found


def _updated_inverse(H: Array, new: Pair, tau: float) -> Array:
    """tau (H - H s s^T H/<s,Hs>) + y y^T/<s,y> of the pair: the inverse of the updated B."""
    s, y = torch.from_numpy(new.step), torch.from_numpy(new.change)
    Hs = torch.mv(torch.from_numpy(H), s)
    half = torch.from_numpy(H).addr(Hs, Hs, beta=tau, alpha=-tau / torch.dot(s, Hs).item())
    return half.addr_(y, y, alpha=new.stretch / new.cosine).numpy()


def _solved(matrix: Array, v: Array) -> Array | None:
    """The solution of a linear system; None if it is singular."""
    if matrix.size > SERIAL:
        found, info = torch.linalg.solve_ex(torch.from_numpy(matrix), torch.from_numpy(v))
        return None if info.item() else found.numpy()
    try:
        solution: Array = np.asarray(np.linalg.solve(matrix, v), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    return solution


def _product(matrix: Array, v: Array) -> Array:
    if matrix.size <= SERIAL:
        found: Array = matrix.dot(v)
        return found
    return torch.mv(torch.from_numpy(matrix), torch.from_numpy(v)).numpy()

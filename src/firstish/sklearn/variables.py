"""Variables in which the Hessian of a linear model is nearly the identity.

A row of x is (w, b), the weights of one score and its intercept. With weights d_i of the samples,
their mean m = sum d_i a_i / sum d_i and

    G = sum d_i (a_i - m)(a_i - m)' + lambda 1 = L L',

the change of variables

    w = R u,   b = s t - <m, w>,   R = L'^-1,   s = (sum d_i)^-1/2

makes the Hessian of sum d_i (<a_i, w> + b)^2 / 2 + lambda/2 |w|^2 the identity. The choice of R, m
and s does not change the objective: b is not penalised, so centring only shifts it. If G costs too
much, its diagonal is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

BLOCKS = 2**22  # cap on the numbers in one matrix per score, 32 MB
SHARED = 2**24  # cap on the numbers in one matrix for all scores, 128 MB
CHUNK = 4096  # rows of a dense A that are weighted at a time
LEAST_CURVATURE = 0.5  # samples with less, in units of the mean, are omitted from G
DIGITS = 1e-12  # times the largest entry of G, added to its diagonal


@dataclass(frozen=True, slots=True)
class Variables:
    """The map T from (u, t) of each row to its (w, b).

    Args:
        R: (rows or 1, d, d), or (rows or 1, d) for a diagonal.
        mean: m, (rows or 1, d); None where there is no intercept.
        scale: s, (rows,).
        sum_zero: True to subtract the mean over the rows.
    """

    R: Tensor
    mean: Tensor | None
    scale: Tensor
    sum_zero: bool = False

    def forward(self, u: Tensor) -> Tensor:
        """T u."""
        return self._centred(self._rows(u)).reshape(-1)

    def inverse(self, x: Tensor) -> Tensor:
        """The u with T u = x, for a diagonal."""
        assert self.R.ndim == 2
        assert not self.sum_zero
        X = x.view(len(self.scale), -1)
        if self.mean is None:
            return (X / self.R).view(-1)
        w, b = X[:, :-1], X[:, -1]
        t = (b + (w * self.mean).sum(1)) / self.scale
        return torch.cat([w / self.R, t[:, None]], dim=1).view(-1)

    def _rows(self, u: Tensor) -> Tensor:
        U = u.view(len(self.scale), -1)
        if self.mean is None:
            return self._times(U, False)
        X = torch.empty_like(U)
        w = self._times(U[:, :-1], False)
        X[:, :-1] = w
        torch.mul(U[:, -1], self.scale, out=X[:, -1])
        X[:, -1] -= (w * self.mean).sum(1)
        return X

    def transposed(self, g: Tensor) -> Tensor:
        """T'g."""
        G = self._centred(g.view(len(self.scale), -1))
        if self.mean is None:
            return self._times(G, True).reshape(-1)
        U = torch.empty_like(G)
        b = G[:, -1]
        U[:, :-1] = self._times(torch.addcmul(G[:, :-1], b[:, None], self.mean, value=-1), True)
        torch.mul(b, self.scale, out=U[:, -1])
        return U.view(-1)

    def _centred(self, X: Tensor) -> Tensor:
        return X - X.mean(0) if self.sum_zero else X

    def _times(self, V: Tensor, transpose: bool) -> Tensor:
        """R v, or R'v if `transpose`, for each row v of V."""
        R = self.R
        if R.ndim == 2:
            return V * R
        if len(R) == 1:
            return V @ (R[0] if transpose else R[0].T)
        return torch.bmm(V[:, None], R if transpose else R.mT)[:, 0]


def entries(A: Any) -> int:
    """The number of entries that a pass over A reads."""
    return int(A.nnz) if sp.issparse(A) else int(A.size)


def cost(A: Any, rows: int) -> float:
    """The cost of `whitened`, in iterations; infinite if it would not fit in memory.

    An iteration multiplies twice with A, 4 floating-point operations for each entry and score.
    Operations of matrix products count an eighth, because BLAS reads its operands from the cache.
    """
    n, d = A.shape
    blocks = _blocks(d, rows)
    if blocks == 0:
        return np.inf
    gram = entries(A) ** 2 / n if sp.issparse(A) else n * d * d / 8
    return float(2 * blocks * (gram + d**3 / 8) / (4 * entries(A) * rows))


def _blocks(d: int, rows: int) -> int:
    """The number of matrices: one for each row of x, one for all rows, or none."""
    if rows * d * d <= BLOCKS:
        return rows
    return 1 if d * d <= SHARED else 0


def diagonal(A: Any, weights: Array, curvatures: Array, lam: float, intercept: bool) -> Variables:
    """The change of variables by a diagonal: column variances times the mean curvature.

    Args:
        A: the features.
        weights: of the samples, with sum 1.
        curvatures: the second derivative of each sample's loss by each score, (n, rows).
        lam: the penalty.
        intercept: True if the model has an intercept b.
    """
    total = weights @ curvatures
    mean, second = weights @ A, _squares(A, weights)
    if intercept:
        second -= mean * mean
    G = np.outer(total, np.maximum(second, 0)) + lam
    G = np.maximum(G, DIGITS * G.max(1, keepdims=True))
    G[G == 0] = 1
    return _variables(1 / np.sqrt(G), mean[None] if intercept else None, total)


def whitened(
    A: Any, weights: Array, curvatures: Array, lam: float, intercept: bool
) -> Variables | None:
    """The change of variables by G, with d_i = weights times curvatures; None if G is singular.

    There is one matrix per score, or one for all scores if those would be too large.
    """
    total = weights @ curvatures
    if _blocks(A.shape[1], curvatures.shape[1]) == 1:
        curvatures = curvatures.mean(1, keepdims=True)
    made = [_root(A, weights, curvature, lam, intercept) for curvature in curvatures.T]
    roots = [R for R, _ in made if R is not None]
    if len(roots) < len(made):
        return None
    mean = np.stack([m for _, m in made]) if intercept else None
    return _variables(np.stack(roots), mean, total)


def _root(
    A: Any, weights: Array, curvature: Array, lam: float, intercept: bool
) -> tuple[Array | None, Array]:
    """R and the mean m; R is None if G is singular."""
    total = float(weights @ curvature)
    # If the classes are well separated, few samples have most of the curvature. The others are
    # omitted, and d is rescaled to the same sum.
    kept = np.flatnonzero(curvature >= LEAST_CURVATURE * total)
    d = weights[kept] * curvature[kept]
    mean = np.zeros(A.shape[1])
    if not total > 0:
        return None, mean
    d *= total / d.sum()
    if intercept:
        fraction = np.zeros(A.shape[0])
        fraction[kept] = d / total
        mean = fraction @ A
    G = _sparse_gram(A, kept, d, mean) if sp.issparse(A) else _dense_gram(A, kept, d, mean)
    G.flat[:: len(G) + 1] += lam + DIGITS * np.abs(G).max()
    L, info = torch.linalg.cholesky_ex(torch.from_numpy(G))
    if info.item() != 0:
        return None, mean
    identity = torch.eye(len(G), dtype=L.dtype)
    R: Array = torch.linalg.solve_triangular(L.mT, identity, upper=True).numpy()
    return R, mean


def _squares(A: Any, weights: Array) -> Array:
    """sum weights_i a_ij^2 for each column j."""
    if sp.issparse(A):
        squares = A.data * A.data * np.repeat(weights, np.diff(A.indptr))
        sums: Array = np.bincount(A.indices, squares, minlength=A.shape[1]).astype(np.float64)
        return sums
    second = np.zeros(A.shape[1])
    for start in range(0, len(A), CHUNK):
        S = A[start : start + CHUNK]
        second += weights[start : start + CHUNK] @ (S * S)
    return second


def _sparse_gram(A: Any, kept: NDArray[np.intp], d: Array, mean: Array) -> Array:
    S = A[kept]
    weighted = S.copy()
    weighted.data *= np.repeat(d, np.diff(S.indptr))
    G: Array = (S.T @ weighted).toarray()
    G -= np.outer(mean, mean) * d.sum()
    return G


def _dense_gram(A: Array, kept: NDArray[np.intp], d: Array, mean: Array) -> Array:
    G = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for start in range(0, len(kept), CHUNK):
        chunk = slice(start, start + CHUNK)
        weighted = torch.from_numpy((A[kept[chunk]] - mean) * np.sqrt(d[chunk])[:, None])
        G.addmm_(weighted.T, weighted)
    gram: Array = G.numpy()
    return gram


def _variables(R: Array, mean: Array | None, total: Array) -> Variables:
    scale = torch.from_numpy(1 / np.sqrt(np.where(total > 0, total, 1)))
    return Variables(torch.from_numpy(R), None if mean is None else torch.from_numpy(mean), scale)

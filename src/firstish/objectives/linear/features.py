"""The features A of a linear model: A x and A'r, dense or sparse, with or without an intercept."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from firstish.objectives.linear.sparse import compressed, parts, refuse_damaged
from firstish.objectives.threads import ignored

_CALL = "LinearModel(features=...)"
_INT32 = 2**31 - 1
# Said by torch once per process to whoever makes the first CSR tensor.
_BETA = "Sparse CSR tensor support is in beta"


class Features:
    """A, and a column of ones after its last where there is an intercept.

    x is a row of weights for each score, one after the other: (columns, width) flattened, the
    intercept last in each. With one score for an item (`columns` None) x is that row.

    Args:
        A: a row for each item; strided or sparse.
        intercept: whether each row of x ends with a number that is added to the scores.
        columns: how many scores an item has; None for one without an axis of its own.
    """

    def __init__(self, A: Tensor, intercept: bool, columns: int | None) -> None:
        self.rows, features = A.shape
        self.width = features + intercept
        self.size = self.width * (1 if columns is None else columns)
        self._intercept = intercept
        self._columns = columns
        self._sparse = A.layout != torch.strided
        if self._sparse:
            self._A, self._At = _compressed(A)
        else:
            self._A = A

    def times(self, x: Tensor) -> Tensor:
        """A x: the scores, (n,) or (n, columns)."""
        if self._columns is None:
            weights = x[:-1] if self._intercept else x
            z = self._A @ weights
            return z.add_(x[-1]) if self._intercept else z
        # In this order of storage BLAS multiplies a tall A faster than by the transposed view.
        Xt = x.view(self._columns, self.width).T.contiguous()
        if not self._intercept:
            return self._A @ Xt
        return (self._A @ Xt[:-1]).add_(Xt[-1])

    def transposed(self, r: Tensor) -> Tensor:
        """A'r, r shaped like the scores: a new vector like x."""
        if self._columns is None:
            g = self._At @ r if self._sparse else self._A.T @ r
            return torch.cat([g, r.sum().view(1)]) if self._intercept else g
        g = (self._At @ r).T if self._sparse else r.T @ self._A
        if self._intercept:
            g = torch.cat([g, r.sum(0).unsqueeze(1)], dim=1)
        return g.reshape(-1)


class SparseMatrix(Protocol):
    """SciPy's, which need not be installed."""

    def tocsr(self) -> Any:
        """Compressed by rows."""


def from_scipy(matrix: SparseMatrix, call: str = _CALL) -> Tensor:
    """A tensor that shares the memory of a SciPy matrix by rows; of another, a copy."""
    A = compressed(matrix, call)
    if not A.has_canonical_format:
        A = A.copy()
        A.sum_duplicates()
    with ignored("The given NumPy array is not writable", _BETA):
        crow, col, entries = map(torch.from_numpy, parts(A, "indptr", "indices", "data"))
        return torch.sparse_csr_tensor(crow, col, entries, A.shape, check_invariants=False)


def check_features(A: object) -> Tensor:
    """The features as they will be used, or an error that says what is wrong with them."""
    if hasattr(A, "tocsr"):
        A = from_scipy(A)
    if not isinstance(A, Tensor):
        raise TypeError(
            f"`{_CALL}` must be a tensor or a sparse matrix of SciPy, got {type(A).__name__}. "
            "Use `torch.as_tensor(features, dtype=torch.float64)`."
        )
    if A.ndim != 2 or 0 in A.shape:
        raise ValueError(
            f"`{_CALL}` must have a row for each item and at least one item and one feature, "
            f"got shape {tuple(A.shape)}."
        )
    if A.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"`{_CALL}` must be float32 or float64, got {A.dtype}. "
            "Convert them, for example with `.double()`."
        )
    refuse_damaged(A, _CALL)
    A = A.detach()
    entries = A if A.layout == torch.strided else _entries(A)
    # A sum is finite only where all its terms are, and makes no copy; it may also overflow.
    if not bool(entries.sum().isfinite()):
        bad = int((~entries.isfinite()).sum())
        if bad:
            raise ValueError(
                f"`{_CALL}` has {bad} entries that are not finite. Fill them in or leave those "
                "items out."
            )
    return A


def _entries(A: Tensor) -> Tensor:
    if A.layout == torch.sparse_coo:
        return A.coalesce().values()
    return A.values()


def _compressed(A: Tensor) -> tuple[Tensor, Tensor]:
    """A and A' by rows: a product by the columns of a CSR tensor is a hundred times slower.

    Indices of 32 bits are what MKL takes; it would convert longer ones at every product.
    """
    with ignored(_BETA):
        A = A.to_sparse_csr()
        return _short(A), _short(_turned(A))


def _turned(A: Tensor) -> Tensor:
    """A' by rows; on the CPU ten times faster than torch's own conversion."""
    if A.device.type != "cpu" or A.shape[1] > 2**32:
        return A.transpose(0, 1).to_sparse_csr()
    rows, columns = A.shape
    ends, column, entry = (t.numpy() for t in (A.crow_indices(), A.col_indices(), A.values()))
    # NumPy's stable sort takes time in proportion to the entries for 16 bits, and only for those.
    order = np.argsort((column & 0xFFFF).astype(np.uint16), kind="stable")
    if columns > 0x10000:
        high = (column >> 16)[order]
        order = order[np.argsort(high.astype(np.uint16), kind="stable")]
    row = np.repeat(np.arange(rows, dtype=column.dtype), np.diff(ends))[order]
    crow = np.zeros(columns + 1, dtype=ends.dtype)
    np.cumsum(np.bincount(column, minlength=columns), out=crow[1:])
    return torch.sparse_csr_tensor(
        torch.from_numpy(crow),
        torch.from_numpy(row),
        torch.from_numpy(entry[order]),
        (columns, rows),
        check_invariants=False,
    )


def _short(A: Tensor) -> Tensor:
    if A.values().numel() > _INT32 or max(A.shape) > _INT32:
        return A
    crow, col = A.crow_indices().int(), A.col_indices().int()
    return torch.sparse_csr_tensor(crow, col, A.values(), A.shape, check_invariants=False)

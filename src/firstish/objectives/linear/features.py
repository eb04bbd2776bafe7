"""The features A of a linear model, dense or sparse: A x and A'r, with or without an intercept."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from firstish.objectives.global_state import ignored
from firstish.objectives.linear.sparse import arrays, check_indices, to_csr

_CALL = "LinearModel(features=...)"
_INT32 = 2**31 - 1


class Features:
    """A, with a last column of ones if there is an intercept.

    x has a row of weights for each score, shape (columns, width) flattened, with the intercept last
    in each row.

    Args:
        A: one row per sample; dense or sparse.
        intercept: True if each row of x ends with an intercept.
        columns: the number of scores per sample; None for scores of shape (n,).
    """

    def __init__(self, A: Tensor, intercept: bool, columns: int | None) -> None:
        self.rows, features = A.shape
        self.width = features + intercept
        self.size = self.width * (1 if columns is None else columns)
        self._intercept = intercept
        self._columns = columns
        self._sparse = A.layout != torch.strided
        if self._sparse:
            self._A, self._At = _csr_pair(A)
        else:
            self._A = A

    def times(self, x: Tensor) -> Tensor:
        """A x: the scores, (n,) or (n, columns)."""
        if self._columns is None:
            weights = x[:-1] if self._intercept else x
            z = self._A @ weights
            return z.add_(x[-1]) if self._intercept else z
        # With this memory layout BLAS is faster for a tall A than with the transposed view.
        Xt = x.view(self._columns, self.width).T.contiguous()
        if not self._intercept:
            return self._A @ Xt
        return (self._A @ Xt[:-1]).add_(Xt[-1])

    def transposed(self, r: Tensor) -> Tensor:
        """A'r for an r shaped like the scores; a new vector shaped like x."""
        if self._columns is None:
            g = self._At @ r if self._sparse else self._A.T @ r
            return torch.cat([g, r.sum().view(1)]) if self._intercept else g
        g = (self._At @ r).T if self._sparse else r.T @ self._A
        if self._intercept:
            g = torch.cat([g, r.sum(0).unsqueeze(1)], dim=1)
        return g.reshape(-1)


class SparseMatrix(Protocol):
    """A sparse matrix of SciPy, which need not be installed."""

    def tocsr(self) -> Any:
        """The matrix in CSR format."""


def from_scipy(matrix: SparseMatrix, call: str = _CALL) -> Tensor:
    """A SciPy matrix as a CSR tensor; one in canonical CSR format shares its memory."""
    A = to_csr(matrix, call)
    if not A.has_canonical_format:
        A = A.copy()
        A.sum_duplicates()
    crow, col, entries = map(_shared, arrays(A, "indptr", "indices", "data"))
    _silence_csr_warning()
    return torch.sparse_csr_tensor(crow, col, entries, A.shape, check_invariants=False)


class _Writable:
    """The interface of an array without its read-only flag, of which torch would warn."""

    def __init__(self, array: Any) -> None:
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}
        self._array = array  # its memory must outlive the tensor


def _shared(array: Any) -> Tensor:
    """A tensor that shares the memory of an array. It is only read."""
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Writable(array)))


@cache
def _silence_csr_warning() -> None:
    """Trigger the warning that torch gives once, at the first CSR tensor, and ignore it."""
    with ignored("Sparse CSR tensor support is in beta"):
        torch.zeros(1, 1).to_sparse_csr()


def check_features(A: object) -> Tensor:
    """The features as a detached tensor; raises if they cannot be used."""
    if hasattr(A, "tocsr"):
        A = from_scipy(A)
    if not isinstance(A, Tensor):
        raise TypeError(
            f"`{_CALL}` must be a tensor or a sparse matrix of SciPy, got {type(A).__name__}. "
            "Use `torch.as_tensor(features, dtype=torch.float64)`."
        )
    if A.ndim != 2 or 0 in A.shape:
        raise ValueError(
            f"`{_CALL}` must have one row per sample, with at least one sample and one feature, "
            f"got shape {tuple(A.shape)}."
        )
    if A.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"`{_CALL}` must be float32 or float64, got {A.dtype}. "
            "Convert them, for example with `.double()`."
        )
    check_indices(A, _CALL)
    A = A.detach()
    entries = A if A.layout == torch.strided else _entries(A)
    # The sum makes no copy. If it is not finite, an entry is not, or it overflowed.
    if not bool(entries.sum().isfinite()):
        bad = int((~entries.isfinite()).sum())
        if bad:
            raise ValueError(
                f"`{_CALL}` has {bad} entries that are not finite. Impute them, or remove those "
                "samples."
            )
    return A


def _entries(A: Tensor) -> Tensor:
    if A.layout == torch.sparse_coo:
        return A.coalesce().values()
    return A.values()


def _csr_pair(A: Tensor) -> tuple[Tensor, Tensor]:
    """A and A' in CSR format: torch's product with a transposed CSR tensor is 100 times slower.

    With 32-bit indices, since MKL would convert 64-bit ones at every product.
    """
    _silence_csr_warning()
    A = A.to_sparse_csr()
    return _with_int32(A), _with_int32(_transposed(A))


def _transposed(A: Tensor) -> Tensor:
    """A' in CSR format; on the CPU ten times faster than torch's own conversion."""
    if A.device.type != "cpu" or A.shape[1] > 2**32:
        return A.transpose(0, 1).to_sparse_csr()
    rows, columns = A.shape
    ends, column, entry = (t.numpy() for t in (A.crow_indices(), A.col_indices(), A.values()))
    # NumPy's stable sort is a radix sort, in linear time, for integers of 16 bits only.
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


def _with_int32(A: Tensor) -> Tensor:
    if A.values().numel() > _INT32 or max(A.shape) > _INT32:
        return A
    crow, col = A.crow_indices().int(), A.col_indices().int()
    return torch.sparse_csr_tensor(crow, col, A.values(), A.shape, check_invariants=False)

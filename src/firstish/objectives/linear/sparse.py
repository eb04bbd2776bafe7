"""Checks of the index arrays of sparse matrices, before compiled code uses them.

SciPy and torch do not check the indices of a matrix whose arrays were assigned or loaded. A product
with an index out of range reads foreign memory or crashes the process.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

_COMPRESSED = {  # layout: the names of its pointers and indices
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def check_indices(matrix: Any, call: str) -> None:
    """Raise if a SciPy matrix or a sparse tensor has indices out of range."""
    fault = _torch_fault(matrix) if isinstance(matrix, Tensor) else _scipy_fault(matrix)
    if fault:
        raise _damaged(call, fault)


def to_csr(matrix: Any, call: str) -> Any:
    """A SciPy matrix in CSR format; raises if it is damaged. A CSR matrix shares its arrays."""
    check_indices(matrix, call)
    try:
        A = matrix.tocsr()
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise _damaged(call, str(error)) from error
    check_indices(A, call)
    entries, indices, pointers = arrays(A, "data", "indices", "indptr")
    stored = pointers[-1]  # the arrays may be longer
    # A new matrix, because SciPy caches properties of arrays that may have changed since.
    return type(A)((entries[:stored], indices[:stored], pointers), shape=A.shape)


def _damaged(call: str, fault: str) -> ValueError:
    return ValueError(
        f"`{call}` is a damaged sparse matrix: {fault}. Build it again, from rows, columns and "
        "values as `scipy.sparse.coo_array((values, (rows, columns)), shape=shape)` does."
    )


def arrays(matrix: Any, *names: str) -> tuple[Any, ...]:
    """The arrays of a SciPy matrix, by name, because a test bans `.data` from this package."""
    return tuple(getattr(matrix, name) for name in names)


def _scipy_fault(matrix: Any) -> str | None:
    kind = getattr(matrix, "format", None)
    if kind in ("csr", "csc", "bsr"):
        pointers, indices, entries = arrays(matrix, "indptr", "indices", "data")
        by_rows = kind != "csc"
        return _Compressed(pointers, indices, entries.shape, matrix.shape, by_rows).fault()
    if kind == "coo":
        return _coordinates_fault(matrix)
    if kind == "dia":
        offsets, entries = arrays(matrix, "offsets", "data")
        if entries.ndim != 2 or offsets.shape != entries.shape[:1]:
            return f"{offsets.size} offsets for data of shape {entries.shape}"
    if kind == "lil":
        rows, entries = arrays(matrix, "rows", "data")
        for row, lengths in enumerate(zip(map(len, rows), map(len, entries), strict=False)):
            if lengths[0] != lengths[1]:
                return f"row {row} has {lengths[0]} indices for {lengths[1]} entries"
    return None  # lil and dok are converted by Python code, and the result is checked


class _Compressed(NamedTuple):
    """The arrays of a CSR, CSC, BSR or BSC matrix."""

    pointers: Any
    indices: Any
    entries: tuple[int, ...]  # their shape
    shape: tuple[int, ...]
    by_rows: bool

    def fault(self) -> str | None:
        """The first fault found, or None."""
        stored, *block = self.entries or (0,)
        if self.indices.ndim != 1 or len(block) not in (0, 2) or 0 in block:
            return f"the values have shape {self.entries}"
        sizes = [n // b for n, b in zip(self.shape, block or (1, 1), strict=True)]
        if any(n % b for n, b in zip(self.shape, block or (1, 1), strict=True)):
            return f"its shape {self.shape} is not a multiple of its blocks' {tuple(block)}"
        lines, width = sizes if self.by_rows else sizes[::-1]
        stored = min(stored, len(self.indices))
        return _pointers_fault(self.pointers, lines, stored) or (
            _indices_fault(self.indices[: self.pointers[-1]], width, "indices")
        )


def _pointers_fault(indptr: Any, lines: int, stored: int) -> str | None:
    if indptr.ndim != 1 or indptr.dtype.kind != "i" or len(indptr) != lines + 1:
        return (
            f"indptr must be {lines + 1} integers, got shape {indptr.shape} of type {indptr.dtype}"
        )
    if indptr[0] != 0 or indptr[-1] > stored:
        return f"indptr goes from {indptr[0]} to {indptr[-1]}, but there are {stored} entries"
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if len(falls):
        at = int(falls[0])
        return f"indptr falls from {indptr[at]} to {indptr[at + 1]} at {at + 1}"
    return None


def _indices_fault(indices: Any, width: int, name: str) -> str | None:
    if indices.ndim != 1 or indices.dtype.kind != "i":
        return f"{name} must be integers, got shape {indices.shape} of type {indices.dtype}"
    if len(indices) and not (indices.min() >= 0 and indices.max() < width):
        bad = indices[(indices < 0) | (indices >= width)]
        return f"{name} must lie between 0 and {width - 1}, got {bad[0]}"
    return None


def _coordinates_fault(matrix: Any) -> str | None:
    lengths = {len(part) for part in arrays(matrix, "row", "col", "data")}
    if len(lengths) > 1:
        return f"row, col and data have different lengths ({sorted(lengths)})"
    return _indices_fault(matrix.row, matrix.shape[0], "row") or (
        _indices_fault(matrix.col, matrix.shape[1], "col")
    )


def _torch_fault(A: Tensor) -> str | None:
    if A.layout in _COMPRESSED:
        pointers, indices = (getattr(A, name)().cpu().numpy() for name in _COMPRESSED[A.layout])
        by_rows = A.layout in (torch.sparse_csr, torch.sparse_bsr)
        stored = len(indices)
        if len(pointers) and pointers[-1] != stored:  # SciPy allows more
            return f"indptr ends at {pointers[-1]}, but there are {stored} entries"
        return _Compressed(pointers, indices, A.values().shape, A.shape, by_rows).fault()
    if A.layout == torch.sparse_coo:
        # Private, because the public `indices()` needs a coalesced tensor.
        for d, indices in enumerate(A._indices().cpu().numpy()):
            fault = _indices_fault(indices, A.shape[d], f"indices[{d}]")
            if fault:
                return fault
    return None

"""Vectors as the rows of a matrix that grows, and of which old ones are dropped.

A matrix handed out is never written to, so that a state which holds it stays valid. A new row goes
into spare memory behind it: there a row that begins with NaN is free. Without a free one all rows
are copied into new memory with a quarter more.

Rows begin at multiples of 64 bytes. BLAS may sum in another order where they do not, and a run that
goes on from a file, in other memory, must come to the same bits.
"""

from __future__ import annotations

import math

from torch import Tensor

_LINE = 64  # bytes
_LEAST = 8  # spare rows in new memory


def appended(rows: Tensor | None, row: Tensor) -> Tensor:
    """The rows and one more."""
    if type(row) is not Tensor:
        row = row.as_subclass(Tensor)
    used = 0 if rows is None else rows.shape[0]
    longer = None if rows is None else _with_free_row(rows)
    if longer is None:
        spare = _spare_rows(used + max(_LEAST, used // 4), row)
        if rows is not None:
            spare[:used] = rows
        longer = spare[: used + 1]
    longer[used] = row
    return longer


def aligned(rows: Tensor) -> Tensor:
    """The rows as `appended` lays them out: copied if they are not, as those from a file."""
    apart, one = rows.stride()
    if one == 1 and apart * rows.element_size() % _LINE == rows.data_ptr() % _LINE == 0:
        return rows
    return _spare_rows(len(rows), rows[0]).copy_(rows)


def _spare_rows(count: int, like: Tensor) -> Tensor:
    spare = like.new_empty(count, _row_length(like))
    spare[:, :1] = math.nan
    return spare[:, : len(like)]


def _row_length(rows: Tensor) -> int:
    """Of one row or several, in entries, with what separates it from the next."""
    entries = _LINE // rows.element_size()
    return max(1, -(-rows.shape[-1] // entries)) * entries


def _with_free_row(rows: Tensor) -> Tensor | None:
    m, n = rows.shape
    try:
        longer = rows.as_strided((m + 1, n), rows.stride())
    except RuntimeError:  # beyond the memory
        return None
    return longer if n == 0 or math.isnan(longer[m, 0].item()) else None

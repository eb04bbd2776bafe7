"""Dots and norms as Python floats, accumulated in float64 without overflow or underflow.

Outside of a safe range the vector is first scaled by a power of two, which is exact. `in_range`
does the same for a vector in Hessian-vector products.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, float64

Array = NDArray[np.float64]
Vector: TypeAlias = Any
"""A tensor, or an array of float64 where vectors are short: `is_short`."""

SHORT = 256  # entries
BLOCK = 2**17  # entries that are converted to float64 at a time: in the cache, not in new memory

_SMALL, _LARGE = 1e-280, 1e280  # squared norms in this range need no scaling

_SAFE_LENGTHS: dict[torch.dtype, tuple[float, float]] = {}  # of a v in Hv


def _wide(v: Tensor) -> torch.dtype:
    return torch.float32 if v.device.type == "mps" else torch.float64  # mps has no float64


def _exponent(v: Tensor) -> int:
    """The e with the largest entry of v in [2^(e-1), 2^e); 0 if v is zero, empty or not finite."""
    largest = float(v.abs().max()) if v.numel() else 0.0
    return math.frexp(largest)[1] if math.isfinite(largest) and largest > 0 else 0


def _shifted(v: Tensor, e: int) -> Tensor:
    # In two halves: 2^-e itself may overflow, as it does inside torch.ldexp before torch 2.5.
    half = -e // 2
    return v.to(_wide(v)).mul(math.ldexp(1.0, half)).mul(math.ldexp(1.0, -e - half))


def is_short(x: Tensor, most: int = SHORT) -> bool:
    """True if NumPy is quicker for vectors like x: short ones in float64 on the CPU.

    There an operation takes the time of its call, and that of torch one or two microseconds.
    """
    return x.numel() <= most and x.dtype is float64 and x.is_cpu and type(x) is Tensor


def dot(a: Vector, b: Vector) -> float:
    """<a, b> in float64."""
    if type(a) is np.ndarray:
        return float(a.dot(b))
    if a.dtype is float64 and b.dtype is float64:
        inner: float = a.dot(b).item()
        return inner
    if type(a) is Tensor and a.is_cpu and a.numel() > BLOCK:  # a sharded vector is another type
        blocks = zip(torch.split(a, BLOCK), torch.split(b, BLOCK), strict=True)
        return sum((_wide_dot(u, v) for u, v in blocks), start=0.0)
    return _wide_dot(a, b)


def _wide_dot(a: Tensor, b: Tensor) -> float:
    wide = _wide(a)
    return torch.dot(a.to(wide), b.to(wide)).item()


def norm(v: Vector) -> float:
    """|v| in float64, without overflow or underflow; inf or nan if an entry is."""
    square = float(v.dot(v)) if type(v) is np.ndarray else dot(v, v)
    if _SMALL < square < _LARGE:
        return math.sqrt(square)
    v = as_tensor(v)
    e = _exponent(v)
    if e == 0:
        return math.sqrt(square) if square >= 0 else square  # nan stays nan
    v = _shifted(v, e)
    return _ldexp(math.sqrt(dot(v, v)), e)


def norm_and_cosine(v: Vector, along: Vector, along_norm: float) -> tuple[float, float]:
    """|v| and the cosine of the angle between v and `along`, clipped to [-1, 1]."""
    square, inner = dot(v, v), dot(v, along)
    if _SMALL < square < _LARGE and _SMALL < along_norm * along_norm < _LARGE:
        v_norm = math.sqrt(square)
        return v_norm, max(-1.0, min(1.0, inner / (v_norm * along_norm)))
    v_norm = norm(v)
    if v_norm == 0 or along_norm == 0 or not math.isfinite(v_norm):
        return v_norm, 0.0
    v, along = as_tensor(v), as_tensor(along)
    e, e_along = _exponent(v), _exponent(along)
    inner = dot(_shifted(v, e), _shifted(along, e_along))
    cosine = inner / (_ldexp(v_norm, -e) * _ldexp(along_norm, -e_along))
    return v_norm, max(-1.0, min(1.0, cosine))


def library(v: Vector) -> Any:
    """NumPy for an array, else torch: for functions that both have."""
    return np if type(v) is np.ndarray else torch


def clip(v: Vector, low: Vector | None, high: Vector | None) -> Vector:
    """v, in every entry at least low and at most high; None where there is no limit."""
    if type(v) is not np.ndarray:
        return v if low is None and high is None else v.clamp(low, high)
    if low is not None:
        v = np.maximum(v, low)
    return v if high is None else np.minimum(v, high)


def without(v: Vector, mask: Vector) -> Vector:
    """v with 0 where the mask is true, also for entries that are not finite."""
    if type(v) is not np.ndarray:
        return v.masked_fill(mask, 0.0)
    v = v.copy()  # quicker than NumPy's `where` for a short array
    v[mask] = 0.0
    return v


def same(a: Vector, b: Vector) -> bool:
    """True if all entries are equal."""
    return b"\1" not in (a != b).tobytes() if type(a) is np.ndarray else torch.equal(a, b)


def some(mask: Vector) -> bool:
    """True if an entry is."""
    # For a short array, searching its bytes takes less time than calling NumPy's `any`.
    return b"\1" in mask.tobytes() if type(mask) is np.ndarray else bool(mask.any())


def count(mask: Vector) -> int:
    """How many entries are true."""
    return mask.tobytes().count(1) if type(mask) is np.ndarray else int(mask.sum())


def as_tensor(v: Vector) -> Tensor:
    """v as a tensor that shares its memory."""
    return torch.from_numpy(v) if type(v) is np.ndarray else v


def as_array(v: Vector) -> Array:
    """v as an array that shares its memory."""
    array: Array = v if type(v) is np.ndarray else v.numpy()
    return array


def in_range(v: Tensor, v_norm: float) -> tuple[Tensor, float, float]:
    """u, |u| and the power of two r with v = r u, such that the length of u is not extreme.

    u is v itself unless |v| is extreme for its dtype. Hu is finite whenever H is not extreme, while
    Hg overflows at |H| = |g| = 1e200.

    >>> in_range(torch.tensor([3e200, 4e200], dtype=float64), 5e200)[0].tolist()[0] < 3
    True
    """
    limits = _SAFE_LENGTHS.get(v.dtype)
    if limits is None:
        info = torch.finfo(v.dtype)
        limits = _SAFE_LENGTHS[v.dtype] = info.tiny ** (1 / 3), info.max ** (1 / 6)
    if limits[0] < v_norm < limits[1] or not 0 < v_norm < math.inf:
        return v, v_norm, 1.0
    e = math.frexp(v_norm)[1] - 1
    return _shifted(v, e).to(v.dtype), math.ldexp(v_norm, -e), math.ldexp(1.0, e)


def add(x: Tensor, p: Tensor, alpha: float) -> Tensor:
    """x + alpha p in a new tensor, also for an alpha beyond the range of their dtype."""
    if alpha == 1.0:
        return x + p
    try:
        return x.add(p, alpha=alpha)
    except RuntimeError:
        return x + _times(p, alpha)


def add_(x: Tensor, p: Tensor, alpha: float) -> Tensor:
    """x + alpha p written into x, also for an alpha beyond the range of their dtype."""
    try:
        return x.add_(p, alpha=alpha)
    except RuntimeError:
        return x.add_(_times(p, alpha))


def _times(p: Tensor, alpha: float) -> Tensor:
    # torch raises for such an alpha, although alpha p may be in range. Any other error is raised
    # again by the addition.
    return p.to(_wide(p)).mul(alpha).to(p.dtype)


def _ldexp(mantissa: float, e: int) -> float:
    try:
        return math.ldexp(mantissa, e)
    except OverflowError:
        return math.inf


def dots(rows: Tensor, v: Tensor) -> Tensor:
    """<row, v> of each row, in float64 on the CPU; of whole vectors where v is sharded."""
    return on_cpu(torch.mv(rows, v))


def on_cpu(v: Tensor) -> Tensor:
    """v in float64 on the CPU; v itself if it is, which is quicker to see than `to` is to call."""
    return v if v.dtype is float64 and v.is_cpu else v.to("cpu", float64)


def add_combination(
    v: Tensor, rows: Tensor, c: Tensor, factor: float = 1.0, sign: float = 1.0
) -> Tensor:
    """factor v + sign (sum of c_k row_k), in a new tensor; the factor may be out of range.

    c is in float64 on the CPU.
    """
    if v.dtype is not float64 or not v.is_cpu:
        c = c.to(v.device, v.dtype)
    try:
        return torch.addmv(v, rows.t(), c, beta=factor, alpha=sign)
    except RuntimeError:
        return torch.addmv(_times(v, factor), rows.t(), c, alpha=sign)

"""Arithmetic of another processor: torch's results off by at most one unit in the last place.

`pytest --noise SEED` runs a test with every rounded result of torch, forwards and backwards,
moved one unit in the last place up, down or not at all. What is moved:

- Sums, contractions and convolutions, whose order differs between processors and BLAS libraries;
  exp, log, pow, tanh, erf and their like, whose last bit differs between mathematical libraries.
- Also the single +, -, ×, / and square root. IEEE rounds these alike everywhere, but a fused
  kernel, an FMA or the next torch computes the same formula by others.
- Not what is exact on every processor: copies, comparisons, minima, signs, and any result that
  needed no rounding (`_exact`): 2 x, the sum of small whole numbers, exp(0); nor x + y where y is
  too small to change x.

The noise is a function of the seed, the operation, the result's mantissa and, in contractions, its
place in the tensor. As on a real processor the same operation on the same numbers gives the same
bits, and powers of two and signs factor out: what must be equal to the bit within one process (a
resumed run, the same steps by two front doors, f in other units) still is, and a failure repeats
with its seed.
"""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Results that are no arithmetic, or that IEEE gives exactly.
_EXACT = """
    abs absolute neg sign sgn copysign relu relu_ threshold threshold_backward hardtanh clamp
    clamp_min clamp_max minimum maximum fmin fmax max min amax amin aminmax round floor ceil trunc
    frac where masked_fill masked_scatter index index_select gather take take_along_dim cat stack
    clone copy _copy_from contiguous _to_copy to detach lift lift_fresh lift_fresh_copy alias
    zeros zeros_like ones ones_like full full_like empty empty_like empty_strided new_empty
    new_zeros new_ones new_full new_empty_strided fill zero eye arange scalar_tensor tensor
    set_ resize_ _local_scalar_dense item frexp nextafter heaviside isfinite nan_to_num
    bernoulli normal randn rand randint randperm uniform rand_like randn_like exponential
    random multinomial native_dropout _fused_dropout
    sort topk kthvalue median mode unique searchsorted cummax cummin
    repeat flip roll tril triu diag_embed diagonal_scatter select_scatter slice_scatter
    slice_backward select_backward diagonal_backward as_strided_scatter unfold_backward
    constant_pad_nd embedding one_hot max_pool2d_with_indices max_pool2d_with_indices_backward
    bitwise_and bitwise_or bitwise_xor logical_not _unsafe_view unbind split im2col
    _sparse_compressed_tensor_unsafe _sparse_coo_tensor_unsafe pixel_shuffle index_copy
    view_as_real view_as_complex values indices crow_indices col_indices _coalesce
    is_same_size equal isnan ldexp
"""
EXACT = frozenset(name.rstrip("_") for name in _EXACT.split())  # as `_name` has them
SINGLE = frozenset({"add", "sub", "rsub", "mul", "div", "sqrt", "reciprocal", "square"})
_ELEMENTWISE = """
    exp exp2 expm1 log log2 log10 log1p pow tanh sin cos tan asin acos atan sinh cosh atan2 erf
    erfc erfinv sigmoid log_sigmoid_forward softplus silu gelu mish elu celu selu rsqrt logaddexp
    xlogy lgamma digamma logit hypot sigmoid_backward tanh_backward silu_backward gelu_backward
    softplus_backward log_sigmoid_backward elu_backward
"""
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
FLOAT64, FLOAT32 = np.dtype("float64"), np.dtype("float32")
INTEGERS = {FLOAT64: np.int64, FLOAT32: np.int32}
MANTISSA = {FLOAT64: 52, FLOAT32: 23}
NUMBERS = {torch.float64, torch.float32, torch.int64, torch.int32, torch.int16, torch.uint8}
ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: the top bits depend on all bits
STEPS = np.array([-1, 0, 0, 1])


class Noise(TorchDispatchMode):
    """Every rounded result in float64 or float32 one unit in the last place off, or none."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not _rounds(func):
            return func(*args, **kwargs)
        copy = _in_place(func)
        arguments = [_array(a, copy) for a in _leaves((*args, *kwargs.values())) if _is_number(a)]
        out = func(*args, **kwargs)
        for result in _leaves(out if isinstance(out, (tuple, list)) else (out,)):
            if isinstance(result, Tensor) and _is_number(result):
                self._perturb(_name(func), _array(result), arguments)
        return out

    def _perturb(self, name: str, result: np.ndarray, arguments: list[np.ndarray]) -> None:
        if result.dtype not in INTEGERS or result.size == 0:
            return
        bits = result.view(INTEGERS[result.dtype])
        mantissa = bits & ((1 << MANTISSA[result.dtype]) - 1)
        mixed = mantissa.astype(np.uint64) ^ _key(self.seed, name)
        if name not in SINGLE and name not in ELEMENTWISE:  # a sum's order depends on its place
            mixed += np.arange(bits.size, dtype=np.uint64).reshape(bits.shape)
        moves = np.isfinite(result) & (result != 0)
        with np.errstate(all="ignore"):
            moves &= ~_exact(name, result, bits, arguments)
        bits += (STEPS[(mixed * ODD) >> np.uint64(62)] * moves).astype(bits.dtype)


@cache
def _key(seed: int, name: str) -> np.uint64:
    return np.uint64(zlib.crc32(f"{seed} {name}".encode()) << 20)


def _leaves(values):
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _leaves(value)
        else:
            yield value


def _is_number(x: object) -> bool:
    """Whether x is a number or an array of numbers in the memory of this process."""
    if isinstance(x, Tensor):
        here = x.layout is torch.strided and x.device.type == "cpu" and not x._is_zerotensor()
        return here and x.dtype in NUMBERS
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def _array(x: Tensor | float, copy: bool = False) -> np.ndarray:
    if not isinstance(x, Tensor):
        return np.array([x], dtype=FLOAT64)
    array = np.atleast_1d(x.detach().resolve_neg().numpy())
    return array.copy() if copy else array


@cache
def _name(func) -> str:
    return func._schema.name.split("::")[1].removeprefix("_foreach_").rstrip("_")


@cache
def _in_place(func) -> bool:
    return any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)


@cache
def _rounds(func) -> bool:
    """Whether an operation computes, as opposed to views, copies, choices and draws."""
    if func.is_view or func._schema.name.split("::")[0] != "aten":
        return False
    return _name(func) not in EXACT


def _exact(name, result, bits, arguments) -> np.ndarray | np.bool_:
    """Where no rounding took place, so that every processor has these bits."""
    if name in SINGLE and len(arguments) == 2:
        a, b = (x.astype(result.dtype, copy=False) for x in arguments)
        if name == "add":
            return ((result - a == b) & (result - b == a)) | (result == a) | (result == b)
        if name == "sub":
            return ((result + b == a) & (a - result == b)) | (result == a)
        # Mantissas of p and q bits have a product of p + q - 1 bits, or one more: then, seldom,
        # a result that was rounded stays.
        whole = 2.0 ** MANTISSA[result.dtype]
        if name == "mul":
            return _last_bit(a) * _last_bit(b) >= whole
        if name == "div":
            return (_last_bit(result) * _last_bit(b) >= whole) & (result * b == a)
    if name in ("add", "addcmul", "addcdiv") and (result == arguments[0]).any():
        return result == arguments[0]
    return _short(name, result, bits, arguments)


def _short(name, result, bits, arguments) -> np.ndarray | np.bool_:
    """Where a short number came of short ones: 0.25 + 3 + 7, exp(0), 3 squared; or the sum of 1."""
    if name in ("sum", "mean", "prod") and result.size == arguments[0].size:
        return np.True_
    width = MANTISSA[result.dtype]
    short = (bits & ((1 << width // 4) - 1)) == 0
    if not short.any():
        return np.False_
    if all((_last_bit(x) >= 2.0 ** (MANTISSA.get(x.dtype, 52) // 2)).all() for x in arguments):
        return short
    return np.False_


def _last_bit(x: np.ndarray) -> np.ndarray:
    """The last bit that is set in the mantissa, with its leading 1: 2^52 for 1, 2^51 for 3."""
    if x.dtype not in INTEGERS:
        x = x.astype(FLOAT64)
    leading = 1 << MANTISSA[x.dtype]
    mantissa = (x.view(INTEGERS[x.dtype]) & (leading - 1)) | leading
    return (mantissa & -mantissa).astype(FLOAT64)

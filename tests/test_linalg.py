"""Dots in float64 of long float32 vectors, and small helpers for vectors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import EPS

from firstish import linalg


@given(st.integers(0, 5), st.integers(-1, 1), st.integers(0, 99))
def test_a_long_float32_dot_is_that_of_float64(blocks, more, seed):
    """Products of float32 numbers are exact in float64, so the sum alone is rounded."""
    size = max(0, blocks * 16 + more)
    a, b = torch.randn(2, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linalg, "BLOCK", 16)
        found = linalg.dot(a, b)
    products = [x * y for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    error = size * EPS * math.fsum(map(abs, products))
    assert abs(found - math.fsum(products)) <= error


def test_a_long_float32_dot_makes_no_float64_copy_of_the_vector(monkeypatch):
    sizes = []
    whole = linalg._wide_dot
    monkeypatch.setattr(
        linalg, "_wide_dot", lambda a, b: sizes.append(max(len(a), len(b))) or whole(a, b)
    )
    v = torch.ones(3 * linalg.BLOCK + 1, dtype=torch.float32)
    assert linalg.dot(v, v) == len(v)
    assert max(sizes) == linalg.BLOCK


def test_a_long_float32_dot_of_infinite_entries_is_nan(monkeypatch):
    monkeypatch.setattr(linalg, "BLOCK", 2)
    v = torch.tensor([math.inf, 1.0, -math.inf], dtype=torch.float32)
    assert math.isnan(linalg.dot(v, torch.ones(3, dtype=torch.float32)))
    assert linalg.norm(v) == math.inf


@pytest.mark.parametrize("make", [torch.tensor, np.array])
def test_entries_are_left_out_also_if_they_are_infinite(make):
    v, mask = make([1.0, math.inf, math.nan]), make([False, True, True])
    assert linalg.without(v, mask).tolist() == [1, 0, 0]
    assert v[1] == math.inf  # v itself stays

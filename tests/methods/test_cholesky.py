"""The small system of the plane step, against dense linear algebra."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstish.methods.cholesky import DEFINITE, solve


def lower(A):
    return [list(row[: i + 1]) for i, row in enumerate(A)]


def system(seed, n, shift=0.5):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, n))
    scales = 10.0 ** rng.uniform(-3, 3, n)
    A = scales[:, None] * (root @ root.T + shift * np.eye(n)) * scales
    return A, rng.standard_normal(n)


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_a_definite_system_is_solved(seed, n):
    A, b = system(seed, n)
    A, b = A / A[0, 0], np.abs(b)
    c = np.array(solve(lower(A), list(b), 0.0))
    roots = np.sqrt(np.diag(A))
    np.testing.assert_allclose((A @ c) / roots, b / roots, rtol=0, atol=1e-9 * max(b / roots))


@given(st.integers(0, 10**6), st.integers(2, 8))
def test_what_is_taken_of_any_system_is_definite_and_solved(seed, n):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n))
    A = (A + A.T) / 2
    A[0, 0] = abs(A[0, 0]) + 0.1
    b = rng.standard_normal(n)
    b[0] = 1.0
    c = np.array(solve(lower(A), list(b), 0.2))
    taken = np.flatnonzero(c)
    part = A[np.ix_(taken, taken)]
    roots = np.sqrt(np.diag(part))
    assert np.all(np.diag(part)[1:] > 0.2)
    assert np.linalg.eigvalsh(part / np.outer(roots, roots))[0] > 0
    np.testing.assert_allclose(part @ c[taken], b[taken], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("gap", "both"), [(2 * DEFINITE, True), (DEFINITE / 2, False)])
def test_a_row_almost_within_the_span_of_those_before_is_left_out(gap, both):
    c = solve([[1.0], [np.sqrt(1 - gap), 1.0]], [1.0, 0.5], 0.0)
    assert (c[1] != 0) == both
    if not both:
        assert c == [1.0, 0.0]


@pytest.mark.parametrize("bad", [0.0, -1.0, 0.1, float("inf"), float("nan")])
def test_a_row_without_strong_curvature_is_left_out_and_the_next_is_taken(bad):
    c = solve([[1.0], [0.0, bad], [0.5, 0.0, 1.0]], [1.0, 7.0, 3.0], 0.1)
    assert c[1] == 0.0
    np.testing.assert_allclose([c[0], c[2]], np.linalg.solve([[1, 0.5], [0.5, 1]], [1, 3]))

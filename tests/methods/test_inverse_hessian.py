"""B as a matrix: that of the compact form, and over the free variables that of their block."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import firstish
from firstish import FunctionObjective, LazyStep
from firstish.bounds.bounded import BoundedObjective
from firstish.bounds.box import Box
from firstish.linalg import SHORT
from firstish.loop import Limits, Run
from firstish.methods.lazy_step import MEDIUM, LazyState
from firstish.methods.quasi_newton.curvature_pairs import Pairs, pair
from firstish.methods.quasi_newton.inverse_hessian import MANY, SERIAL, InverseHessian

EPS = np.finfo(float).eps


def both(seed, count, n):
    """The pairs of a quadratic, as a matrix and in compact form; its Hessian."""
    random = np.random.default_rng(seed)
    root = random.standard_normal((n, n))
    H = root @ root.T / n + np.eye(n)
    dense = compact = None
    for _ in range(count):
        s = random.standard_normal(n) * 10.0 ** random.integers(-3, 3)
        tau = random.uniform(0.3, 1.5)
        new = pair(s.copy(), H @ s, 1e-12)
        same = pair(torch.from_numpy(s.copy()), torch.from_numpy(H @ s), 1e-12)
        dense = InverseHessian.first(new) if dense is None else dense.plus(new, tau)
        compact = Pairs.first(same) if compact is None else compact.plus(same, tau, 10**6)
    return dense, compact, H


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 9))
def test_it_is_the_matrix_of_the_compact_form(seed, count, n):
    dense, compact, _ = both(seed, count, n)
    B = np.stack([compact.times(e).numpy() for e in torch.eye(n, dtype=torch.float64)])
    # Each update multiplies by V on both sides, |V| <= 1/cosine, and rounds.
    growth = max(np.linalg.norm(B, 2), 1.0) / min(np.linalg.eigvalsh((B + B.T) / 2)[0], 1.0)
    assert np.abs(dense.B - B).max() <= 1e3 * count * n * EPS * growth * np.abs(B).max()
    assert len(dense) == count
    assert dense.newest_scale() == pytest.approx(compact.newest_scale(), rel=1e2 * n * EPS)


def test_the_newest_pair_is_in_it():
    """B y = s, whatever came before."""
    random = np.random.default_rng(0)
    dense, _, H = both(1, 6, 7)
    s = random.standard_normal(7)
    found = dense.plus(pair(s.copy(), H @ s, 1e-12), 0.4).times(H @ s)
    assert np.allclose(found, s, rtol=0, atol=1e4 * EPS * np.abs(s).max())


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 12), st.lists(st.booleans(), min_size=6, max_size=6))
def test_over_the_free_variables_it_is_the_inverse_of_their_block(seed, count, mask):
    dense, _, _ = both(seed, count, 6)
    free = np.array(mask)
    v = np.random.default_rng(seed).standard_normal(6) * free
    found = dense.times(v, free)
    H = np.linalg.inv(dense.B)
    expected = np.zeros(6)
    expected[free] = np.linalg.solve(H[np.ix_(free, free)], v[free]) if free.any() else []
    size = np.linalg.norm(dense.B, 2) * np.linalg.norm(v)
    assert np.allclose(found, expected, rtol=0, atol=1e3 * EPS * np.linalg.cond(dense.B) * size)
    assert not found[~free].any()


def test_a_singular_block_gives_no_direction():
    dense = InverseHessian(np.zeros((2, 2)), 1, 1.0)
    assert np.isnan(dense.times(np.array([1.0, 0.0]), np.array([True, False]))).all()


def test_larger_matrices_are_computed_by_torch():
    """B itself, its products, and systems of more variables than NumPy's BLAS keeps one thread."""
    n, held = SHORT, 100
    assert n * n > SERIAL
    assert held * held > SERIAL
    dense, compact, _ = both(3, 4, n)
    v = np.random.default_rng(3).standard_normal(n)
    expected = compact.times(torch.from_numpy(v)).numpy()
    assert np.allclose(dense.times(v), expected, rtol=0, atol=1e6 * EPS * np.abs(expected).max())
    free = np.arange(n) >= held
    found = dense.times(v * free, free)
    H = np.linalg.inv(dense.B)
    assert not found[:held].any()
    size = 1e3 * n * EPS * np.linalg.cond(dense.B) * np.abs(v).max()
    assert np.allclose(H[np.ix_(free, free)] @ found[free], v[free], rtol=0, atol=size)


SMALL = math.isqrt(SERIAL)  # variables: up to here the matrix is computed by NumPy


def valley(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


@pytest.mark.parametrize("bounds", [None, (-2.0, 0.9)])
@pytest.mark.parametrize("n", [SMALL, SMALL + 1, SHORT, SHORT + 1])
def test_few_variables_and_many_take_their_own_way_to_the_same_point(n, bounds):
    x0 = torch.full((n,), -0.5, dtype=torch.float64)
    result = firstish.minimize(valley, x0, bounds=bounds, gtol=1e-8)
    other = firstish.minimize(valley, x0, method=LazyStep(memory=10), bounds=bounds, gtol=1e-8)
    assert result.success
    assert other.success
    assert float((result.x - other.x).abs().max()) < 1e-6


def test_a_matrix_that_does_not_fit_is_not_kept():
    x0 = torch.full((9,), -0.5, dtype=torch.float64)
    states = []
    for fits in (8 * 81, 8 * 81 - 1):
        method = LazyStep(max_bytes=fits)
        point = firstish.FunctionObjective(valley, x0).at(x0, 1)
        state = method.init(point)
        for _ in range(3):
            point, _, state = method.step(point, state)
        states.append(state)
    assert states[0].B is not None
    assert states[0].S is None
    assert states[1].B is None
    assert states[1].S is not None


def test_pairs_of_an_earlier_state_go_on_as_pairs():
    """A state with pairs, as earlier versions saved it for few variables too."""
    x0 = torch.full((4,), -0.5, dtype=torch.float64)
    point = firstish.FunctionObjective(valley, x0).at(x0, 1)
    old, state = LazyStep(memory=99), LazyStep(memory=99).init(point)
    for _ in range(4):
        point, _, state = old.step(point, state)
    _, step, after = LazyStep().step(point, state)
    assert step.failure is None
    assert after.B is None
    assert len(after.S) == len(state.S) + 1


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 9))
def test_it_is_made_of_pairs(seed, count, n):
    dense, compact, _ = both(seed, count, n)
    found = InverseHessian.of(compact)
    growth = np.linalg.cond(dense.B)
    assert np.abs(found.B - dense.B).max() <= 1e3 * count * n * EPS * growth * np.abs(dense.B).max()
    assert len(found) == count
    assert found.newest_scale() == pytest.approx(dense.newest_scale(), rel=1e2 * n * EPS)


@pytest.mark.parametrize("seed", range(3))
def test_where_few_are_free_the_block_itself_is_solved_and_its_matrix_kept(seed):
    n = 2 * MANY
    dense, _, H = both(seed, 8, n)
    free = np.arange(n) % 8 == 0
    random = np.random.default_rng(seed)
    for _ in range(4):
        v = random.standard_normal(n) * free
        found = dense.times(v, free)
        assert dense.H is not None
        size = 1e3 * n * EPS * np.linalg.cond(dense.B)
        assert np.abs(dense.H @ dense.B - np.eye(n)).max() <= size
        block = np.linalg.inv(dense.B)[np.ix_(free, free)]
        assert np.allclose(block @ found[free], v[free], rtol=0, atol=size * np.abs(v).max())
        assert not found[~free].any()
        s = random.standard_normal(n)
        dense = dense.plus(pair(s.copy(), H @ s, 1e-12), random.uniform(0.3, 1.5))


def blurred(n):
    """Non-negative least squares of which most variables are at their bound."""
    random = torch.Generator().manual_seed(0)
    place = torch.linspace(0, 10, n, dtype=torch.float64)
    A = torch.exp(-0.5 * ((place[:, None] - place) / 0.1) ** 2)
    b = A @ (torch.rand(n, generator=random, dtype=torch.float64) < 0.05).double()
    b += 0.02 * torch.randn(n, generator=random, dtype=torch.float64)
    return lambda x: ((A @ x - b) ** 2).sum() / 2


def run_between(f, n, lower):
    x0 = torch.full((n,), 0.1, dtype=torch.float64)
    box = Box(torch.full_like(x0, lower), torch.full_like(x0, math.inf))
    return Run(BoundedObjective(FunctionObjective(f, x0), box), x0, LazyStep())


def test_with_more_variables_it_is_kept_once_one_of_them_is_held():
    n = MEDIUM
    assert n > SHORT
    f = blurred(n)
    run, free = run_between(f, n, 0.0), run_between(f, n, -1e6)
    for _ in range(30):
        held = bool(run.point.active)
        if not held:
            assert torch.equal(run.point.x, free.point.x)
        run.advance(Limits())
        free.advance(Limits())
        assert (run.state.B is not None) == (held and run.iterations > 2)
        assert free.state.B is None
    assert run.state.H is not None


def test_a_run_that_was_saved_goes_on_to_the_same_bits():
    run = run_between(blurred(300), 300, 0.0)
    for _ in range(20):
        run.advance(Limits())
    assert run.state.H is not None
    saved = {f.name: getattr(run.state, f.name) for f in fields(run.state)}
    copied = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in saved.items()}
    snapshot = replace(run.snapshot(), state=LazyState(**copied))
    again = Run(
        BoundedObjective(FunctionObjective(blurred(300), run.point.x), run.point.box),
        run.point.x,
        LazyStep(),
        snapshot,
    )
    for _ in range(10):
        run.advance(Limits())
        again.advance(Limits())
        assert torch.equal(run.point.x, again.point.x)

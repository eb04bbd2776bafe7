"""Degenerate cases: gHg = 0, g = 0, one dimension, and sizes whose squares overflow."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from testbed import CONVEX, EPS, Problem, first_step, make, problems, run
from tolerances import summed

from firstish import FunctionObjective, ScaledGradient, Status, minimize
from firstish.linalg import norm, norm_and_cosine
from firstish.methods import Failure
from firstish.scaling import Curvature


@pytest.mark.parametrize("sigma", [0.0, 1e-6])
def test_a_gradient_orthogonal_to_its_product_is_limited(sigma):
    # f = x0 + x0 x1: at the origin g = (1, 0) and Hg = (0, 1).
    problem = Problem("bilinear", lambda x: x[0] + x[0] * x[1], torch.zeros(2))
    _, step, _ = first_step(problem, ScaledGradient(sigma=sigma))
    assert (step.curvature, step.scale, step.cosine) == (Curvature.LPC, 1.0, 0.0)
    assert (step.local_lipschitz, step.step_size) == (1.0, 1.0)


@pytest.mark.parametrize("sigma", [0.0, 1e-6, 4.0])
def test_a_linear_function_is_limited(sigma):
    problem = Problem("linear", lambda x: 3 * x.sum(), torch.ones(3))
    _, step, _ = first_step(problem, ScaledGradient(sigma=sigma))
    assert (step.curvature, step.scale) == (Curvature.LPC, min(1.0, 1 / sigma if sigma else 1.0))
    assert (step.cosine, step.local_lipschitz) == (0.0, 0.0)


@given(problems(("convex quadratic",)))
def test_a_zero_gradient_is_the_end(problem):
    fun = lambda x: problem.fun(x) * 0 + ((x - problem.x) ** 2).sum()  # noqa: E731
    here = Problem("bowl", fun, problem.x)
    point, step, state = first_step(here, ScaledGradient())
    assert (step.failure, step.step_size, step.trials) == (Failure.STATIONARY, 0.0, 0)
    assert point.x is problem.x
    assert state.turns == 0
    result = minimize(fun, problem.x, gtol=0)
    assert (result.status, result.iterations, result.oracle_calls) == (Status.CONVERGED, 0, 2)


@given(st.floats(-5, 5).filter(lambda x: abs(x) > 1e-3), st.sampled_from(["CG", "MR", "GM"]))
def test_one_dimension_needs_no_special_care(x, name):
    result = minimize(
        lambda z: (z**2).sum(), torch.tensor([x]), method=ScaledGradient(scaling=name)
    )
    assert (result.status, result.iterations) == (Status.CONVERGED, 1)
    assert result.history[0].cosine == pytest.approx(1, abs=summed(1))


# Sizes


@pytest.mark.parametrize("product", ["double-backward", "auto"])
@pytest.mark.parametrize(
    ("f_scale", "x_scale"),
    [(1e150, 1.0), (1e-150, 1.0), (1.0, 1e50), (1.0, 1e-50), (1e150, 1e50), (1e-150, 1e-50)],
)
@pytest.mark.parametrize("kind", CONVEX)
def test_extreme_sizes_of_f_and_x_change_nothing(kind, f_scale, x_scale, product):
    method = ScaledGradient(scaling="CGMR", sigma=0)
    options = {"method": method, "gtol": 0, "max_iterations": 8, "product": product}
    for seed in range(3):
        problem = make(kind, seed)
        plain, xs = run(problem.fun, problem.x, **options)
        fun = lambda z, p=problem: f_scale * p.fun(z / x_scale)  # noqa: E731
        scaled, zs = run(fun, problem.x * x_scale, **options)
        assert scaled.iterations == plain.iterations == 8
        for a, b in zip(plain.history[:-1], scaled.history[:-1], strict=True):
            assert (b.curvature, b.scaling, b.step_size) == (a.curvature, a.scaling, a.step_size)
            assert b.value / f_scale == pytest.approx(a.value, rel=1e-11)
            assert b.scale * f_scale / x_scale / x_scale == pytest.approx(a.scale, rel=1e-7)
            assert b.cosine == pytest.approx(a.cosine, rel=1e-8)
        for x, z in zip(xs, zs, strict=True):
            torch.testing.assert_close(z / x_scale, x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("product", ["double-backward", "auto", "difference"])
@pytest.mark.parametrize(
    ("f_scale", "x_scale"), [(1e150, 1.0), (1e-150, 1.0), (1.0, 1e50), (1.0, 1e-50)]
)
@pytest.mark.parametrize("kind", ["indefinite quadratic", "cubic", "quartic", "gelu net"])
def test_extreme_sizes_of_nonconvex_functions_end_in_a_finite_point(
    kind, f_scale, x_scale, product
):
    for seed in range(4):
        problem = make(kind, seed)
        fun = lambda z, p=problem: f_scale * p.fun(z / x_scale)  # noqa: E731
        x0 = problem.x * x_scale
        method = ScaledGradient(sigma=0)
        result, xs = run(fun, x0, product=product, method=method, gtol=0, max_iterations=6)
        assert isinstance(result.status, Status)
        assert all(bool(torch.isfinite(x).all()) for x in xs)
        values = [row.value for row in result.history]
        assert all(math.isfinite(value) for value in values)
        assert all(b <= a + 10 * EPS * abs(a) for a, b in itertools.pairwise(values))


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e-170, 1e-150, 1e-80])
@pytest.mark.parametrize("kind", ["linear", "square"])
def test_tiny_functions_and_points_end_without_an_exception(kind, size):
    fun, x0 = {
        "linear": (lambda x: size * x.sum(), torch.zeros(2)),
        "square": (lambda x: (x * x).sum(), torch.full((2,), size)),
    }[kind]
    result = minimize(fun, x0, gtol=0, max_iterations=5, method=ScaledGradient(sigma=0))
    assert isinstance(result.status, Status)
    assert bool(torch.isfinite(result.x).all())


# Norms and cosines

entries = st.lists(st.floats(-1, 1), min_size=2, max_size=8).filter(any)
exponents = st.sampled_from([0, -900, 900]).flatmap(lambda e: st.integers(e - 100, e + 100))


def tensor(v, e):
    return torch.tensor([math.ldexp(x, e) for x in v])


@settings(max_examples=200)
@given(entries, exponents)
def test_norm_neither_overflows_nor_underflows(v, e):
    t = tensor(v, e)
    assert norm(t) == pytest.approx(math.hypot(*t.tolist()), rel=1e-14, abs=5e-324)


@pytest.mark.parametrize("v", [[1e308, 1e308], [5e-324, 0.0], [1e-310, 3e-310], [1e200, 1e-200]])
def test_norm_at_the_ends_of_the_range(v):
    assert norm(torch.tensor(v)) == pytest.approx(math.hypot(*v), rel=1e-14)


def test_norm_of_what_has_none():
    assert norm(torch.zeros(0)) == norm(torch.zeros(3)) == 0.0
    assert norm(torch.tensor([1.0, math.inf])) == math.inf
    assert math.isnan(norm(torch.tensor([1.0, math.nan])))
    assert norm(torch.tensor([3e38, 3e38], dtype=torch.float32)) == pytest.approx(
        math.sqrt(2) * float(torch.tensor(3e38, dtype=torch.float32))
    )


pairs = st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=8)


@settings(max_examples=200)
@given(pairs.filter(lambda p: all(map(any, zip(*p, strict=True)))), exponents, exponents)
def test_cosine_neither_overflows_nor_underflows(pair, e, e_along):
    v, along = (
        tensor(part, k) for part, k in zip(zip(*pair, strict=True), (e, e_along), strict=True)
    )
    assume(norm(along) > 0)
    length, cosine = norm_and_cosine(v, along, norm(along))
    if norm(v) < 1e-290 or norm(along) < 1e-290:  # too few bits left for an accurate cosine
        assert -1 <= cosine <= 1
        return
    A, B = ([Fraction(x) for x in t.tolist()] for t in (v, along))
    square = lambda x: sum(y * y for y in x)  # noqa: E731
    inner = sum(x * y for x, y in zip(A, B, strict=True))
    sign = (inner > 0) - (inner < 0)
    expected = sign * math.sqrt(inner * inner / (square(A) * square(B)))
    assert length == norm(v)
    assert cosine == pytest.approx(expected, abs=1e-14)
    assert -1 <= cosine <= 1


def test_cosine_is_clipped():
    """cos of a vector with itself must not exceed 1, or MR would exceed GM."""
    exceeded = 0
    for seed in range(200):
        v = make("convex quadratic", seed, d=7).x
        plain = float(v @ v) / norm(v) ** 2
        exceeded += plain > 1
        assert norm_and_cosine(v, v, norm(v))[1] <= 1.0
        assert norm_and_cosine(-v, v, norm(v))[1] >= -1.0
    assert exceeded >= 10  # without clipping these would be above 1


def test_overflow_of_curvature_is_limited_not_strong():
    # Curvature 5e-324: its inverse overflows.
    fun = lambda x: x.sum() + 1e-300 * (x**2).sum() * 1e-20  # noqa: E731
    problem = Problem("almost linear", fun, torch.ones(2))
    _, step, _ = first_step(problem, ScaledGradient(sigma=0))
    assert (step.curvature, step.scale) == (Curvature.LPC, 1.0)


def test_a_product_that_overflows_is_named():
    # The Hessian itself is 2e310.
    objective = FunctionObjective(lambda x: ((x * 1e155) ** 2).sum(), torch.ones(1))
    result = objective.at(torch.full((1,), 1e-20))
    assert result.grad_norm == pytest.approx(2e290)
    with pytest.raises(ValueError, match="Hessian-vector product"):
        ScaledGradient().step(result, ScaledGradient().init(result))

"""f times 1e±200 and x times 1e±150: the same steps where nothing overflows, and never a crash."""

import math
import warnings

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from testbed import CONVEX, KINDS, make, run
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from firstish import (
    FunctionObjective,
    LazyStep,
    MomentumDirection,
    NonMonotone,
    PlaneStep,
    ScaledDirection,
    ScaledGD,
    ScaledGradient,
    Status,
    baselines,
    minimize,
)
from firstish.linalg import add, add_, in_range, norm
from firstish.methods import Failure

SCALINGS = ("CG", "MR", "GM", "CGMR", "CGMRGM", "ASD", "DY", "SDC")
OURS = {
    **{name: ScaledGradient(scaling=name) for name in SCALINGS},
    **{f"{name}, sigma=0": ScaledGradient(scaling=name, sigma=0) for name in SCALINGS},
    "non-monotone": ScaledGradient(sigma=0, line_search=NonMonotone(initial_step=2.0)),
    "plane": PlaneStep(),
    "plane, sigma=0": PlaneStep(sigma=0),
    "lazy": LazyStep(),
    "adam direction": ScaledDirection(),
    "momentum direction": ScaledDirection(direction=MomentumDirection(), sigma=0),
}
THEIRS = {
    "abbmin": baselines.ABBmin(),
    "adam": baselines.Adam(step_size=0.1),
    "adgd": baselines.AdGD(),
    "adgd-2": baselines.AdGD2(),
    "cdat": baselines.CDAT(),
    "fixed": baselines.FixedStep(step_size=0.1),
    "heavy ball": baselines.HeavyBall(step_size=0.1),
    "nesterov": baselines.Nesterov(step_size=0.1),
    "lbfgs": baselines.LBFGS(),
    "line search, full reset": baselines.LineSearch(reset="full"),
    "line search, no reset": baselines.LineSearch(reset="no"),
    "line search, limited reset": baselines.LineSearch(),
    "pono": baselines.PoNo(),
}
METHODS = {**OURS, **THEIRS}


def falls_to_zero(x):
    return torch.exp(-x).sum()


def bump(x):
    return -torch.exp(-(x**2)).sum()


FUNCTIONS = {"exp(-x)": falls_to_zero, "bump": bump, "log": lambda x: (1 + x * x).log().sum()}


def check_whole(result, dtype):
    """A status, a finite x, and a row for every point, the last one of x itself."""
    assert isinstance(result.status, Status)
    assert bool(torch.isfinite(result.x).all())
    assert len(result.history) == result.iterations + 1
    assert [row.iteration for row in result.history] == list(range(result.iterations + 1))
    assert all(math.isfinite(row.value) for row in result.history)
    assert result.history[-1].value == result.value
    assert result.x.dtype is dtype


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=8)
@given(
    st.sampled_from((*KINDS, *FUNCTIONS)),
    st.integers(-200, 200),
    st.integers(-150, 150),
    st.sampled_from([torch.float64, torch.float32]),
    st.integers(0, 99),
)
@example("convex quadratic", -17, -105, torch.float32, 0)  # |H| is 1e25 and |g| 4e12
def test_any_scale_ends_in_a_status_with_x(name, kind, f_digits, x_digits, dtype, seed):
    reach = 280 if dtype is torch.float64 else 30
    if dtype is torch.float32:
        f_digits, x_digits = f_digits // 8, x_digits // 8
    # f, its gradient and its Hessian are all within the range of the dtype
    assume(abs(f_digits - x_digits) < reach and abs(f_digits - 2 * x_digits) < reach)
    f_scale, x_scale = 10.0**f_digits, 10.0**x_digits
    problem = make("quartic" if kind in FUNCTIONS else kind, seed, 3, dtype)
    fun = FUNCTIONS.get(kind, problem.fun)
    result = minimize(
        lambda z: f_scale * fun(z / x_scale),
        problem.x * x_scale,
        method=METHODS[name],
        gtol=0,
        max_iterations=25,
        max_oracle_calls=None,
    )
    check_whole(result, dtype)


POWERS = [(664, 0), (-664, 0), (0, 498), (0, -498), (-332, 332), (300, -300), (-60, 0), (60, 0)]
INVARIANT = {name: method for name, method in OURS.items() if getattr(method, "sigma", 0) == 0}


@pytest.mark.parametrize("name", INVARIANT)
@pytest.mark.parametrize("powers", POWERS)
def test_strongly_curved_steps_are_the_same_at_any_scale(name, powers):
    """Powers of two round nothing: 2^664 is about 1e200, 2^498 about 1e150."""
    f_scale, x_scale = (math.ldexp(1.0, e) for e in powers)
    options = {"method": INVARIANT[name], "gtol": 0, "max_iterations": 6}
    for kind in CONVEX:
        problem = make(kind, 1)
        plain, xs = run(problem.fun, problem.x, **options)
        scaled, zs = run(
            lambda z, p=problem: f_scale * p.fun(z / x_scale), problem.x * x_scale, **options
        )
        assert plain.iterations == scaled.iterations >= 4  # 4 variables: the floor of rounding
        assert [(r.curvature, r.scaling, r.step_size, r.trials) for r in plain.history] == [
            (r.curvature, r.scaling, r.step_size, r.trials) for r in scaled.history
        ]
        values = [r.value / f_scale for r in scaled.history]
        assert values == pytest.approx([r.value for r in plain.history], rel=1e-9)
        for x, z in zip(xs, zs, strict=True):
            torch.testing.assert_close(z / x_scale, x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["CGMR", "plane", "lazy", "adam direction"])
@pytest.mark.parametrize("f_scale", [1e-18, 1e-100, 1e-200])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_function_too_small_for_sigma_is_minimised_all_the_same(name, f_scale, dtype):
    """Below sigma every curvature is limited, and a step of s_lpc = 1 is lost in rounding."""
    if dtype is torch.float32:
        f_scale = f_scale**0.1
    problem = make("convex quadratic", 0, 4, dtype)
    start = problem.fun(problem.x).item()
    lowest = minimize(problem.fun, problem.x, method=LazyStep()).value
    result = minimize(
        lambda x: f_scale * problem.fun(x),
        problem.x,
        method=OURS[name],
        gtol=0,
        max_iterations=200,
        max_oracle_calls=None,
    )
    assert result.iterations >= 4  # conjugate gradients need no more in 4 variables
    assert result.value / f_scale - lowest < 0.01 * (start - lowest)


@pytest.mark.parametrize("x_scale", [1e-150, 1e-50, 1e-12, 1e50, 1e150])
def test_the_default_method_finds_the_scale_of_x(x_scale):
    """Its first product is a gradient difference, over a distance that must suit x."""
    problem = make("softmax", 3)
    plain = minimize(problem.fun, problem.x, gtol=1e-8)
    scaled = minimize(lambda z: problem.fun(z / x_scale), problem.x * x_scale, gtol=1e-8 / x_scale)
    assert plain.success
    assert scaled.success
    torch.testing.assert_close(scaled.x / x_scale, plain.x, rtol=0, atol=1e-6)


def test_a_difference_over_too_long_a_distance_is_made_over_a_shorter_one():
    """At x = 0 nothing tells the scale but that f overflows at the usual distance."""
    x0 = torch.zeros(2)
    objective = FunctionObjective(
        lambda x: torch.cosh(1e20 * x - 1).sum(), x0, product="difference"
    )
    result = minimize(objective, x0, method="CGMR", gtol=1e10, max_iterations=100)
    assert result.success
    torch.testing.assert_close(result.x, torch.full((2,), 1e-20), rtol=1e-6, atol=0)


# Where f goes to 0 at infinity


def separable(seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(40, 5, generator=generator, dtype=dtype)
    return A, (A @ torch.randn(5, generator=generator, dtype=dtype) > 0).to(dtype)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reuse", [True, False])
def test_separable_data_ends_the_steps_of_the_optimizer_without_an_exception(seed, dtype, reuse):
    A, y = separable(seed, dtype)
    torch.manual_seed(seed)
    model = nn.Linear(5, 1).to(dtype)
    optimizer = ScaledGD(model.parameters(), method="lazy", reuse_value=reuse)
    steps = 200 if dtype is torch.float32 else 1200
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*did not move")
        for _ in range(steps):
            optimizer.step(lambda: binary_cross_entropy_with_logits(model(A).squeeze(1), y))
            if optimizer.last_step.failure is not None:
                break
    assert optimizer.last_step.failure in Failure  # there is an end to it
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    assert optimizer.last_step.value < 1e-6


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_separable_softmax_regression_ends_in_a_status(name, dtype):
    A, y = separable(0, dtype)
    labels = y.long()

    def fun(x):
        return cross_entropy(A @ x.view(5, 2), labels)

    x0 = torch.zeros(10, dtype=dtype)
    result = minimize(fun, x0, method=METHODS[name], gtol=0, max_iterations=150)
    check_whole(result, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_default_method_falls_to_zero_at_infinity(dtype):
    result = minimize(falls_to_zero, torch.zeros(3, dtype=dtype), gtol=0)
    check_whole(result, dtype)
    assert (result.status, result.value) == (Status.CONVERGED, 0.0)


# What it stands on

exponents = st.integers(-1060, 1000)


@given(exponents, st.lists(st.floats(0.5, 1), min_size=1, max_size=5))
def test_a_vector_in_range_is_the_vector_over_a_power_of_two(e, entries):
    v = torch.tensor([math.ldexp(x, e) for x in entries])
    w, w_norm, ratio = in_range(v, norm(v))
    assert torch.equal(w * ratio, v)
    assert w_norm == pytest.approx(norm(w), rel=1e-14 if e > -1000 else 0.1)
    assert 1e-103 < w_norm < 1e52
    assert w is v or not 1e-102 < norm(v) < 1e51


@pytest.mark.parametrize("v_norm", [0.0, math.inf, math.nan])
def test_a_vector_without_a_direction_is_left_alone(v_norm):
    v = torch.ones(2)
    assert in_range(v, v_norm)[0] is v


def test_steps_beyond_the_range_of_the_dtype():
    x, p = torch.ones(2, dtype=torch.float32), torch.full((2,), 1e-42, dtype=torch.float32)
    assert add(x, p, 1e42).tolist() == pytest.approx([2.0, 2.0], rel=1e-2)
    assert add_(x, p, -1e42).tolist() == pytest.approx([0.0, 0.0], abs=1e-2)
    with pytest.raises(RuntimeError, match="size"):
        add(torch.ones(2), torch.ones(3), 1.0)

"""Property 1: in SPC 0 < MR <= GM <= CG <= 1/sigma, and the lower bounds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from testbed import CONVEX, DensePoint, first_step, force, make, problems

from firstish import ScaledGradient
from firstish.scaling import Angle, Curvature, curvature_case, scale

SPC, LPC, NC = Curvature

shares = st.sampled_from([0.0, 1e-9, 0.5, 0.9, 1 - 1e-9])
magnitudes = st.floats(-140, 140).map(lambda e: 10.0**e)
cosines = st.floats(-300, 0).map(lambda e: 10.0**e)


def scales(angle, sigma):
    return [scale(name, angle, sigma) for name in ("MR", "GM", "CG")]


@settings(max_examples=300)
@given(magnitudes, magnitudes, cosines, st.integers(0, 3), st.sampled_from([0.0, 0.3, 1.0, 1.0]))
def test_order_and_upper_bound_hold_to_the_last_bit(grad_norm, product_norm, c, ulps, share):
    angle = Angle(grad_norm, product_norm, c)
    sigma = angle.rayleigh * share
    for _ in range(ulps):
        sigma = math.nextafter(sigma, 0.0)
    if curvature_case(angle, sigma) is not SPC:  # CG overflows, or sigma is the curvature itself
        assert sigma == angle.rayleigh or not math.isfinite(
            grad_norm / product_norm / c * grad_norm
        )
        return
    mr, gm, cg = scales(angle, sigma)
    assert 0 <= mr <= gm <= cg < math.inf
    assert mr > 0 or c * (grad_norm / product_norm) == 0  # positive unless it underflows
    assert sigma == 0 or cg <= 1 / sigma


def test_the_upper_bound_holds_where_rounding_would_exceed_it():
    rng = np.random.default_rng(1)
    exceeded = 0
    for a, b, c in rng.random((20_000, 3)).tolist():
        angle = Angle(a, b, c)
        sigma = math.nextafter(angle.rayleigh, 0.0)
        exceeded += a / b / c > 1 / sigma
        mr, gm, cg = scales(angle, sigma)
        assert mr <= gm <= cg <= 1 / sigma
    assert exceeded >= 20


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@given(data=st.data(), share=shares)
def test_bounds_on_random_problems(dtype, data, share):
    problem, sigma = force(data.draw(problems(dtype=dtype)), SPC, share)
    if dtype is torch.float32:
        sigma *= 0.99  # float32 cannot tell closer curvatures apart
    angle = problem.point().angle()
    assert curvature_case(angle, sigma) is SPC
    mr, gm, cg = scales(angle, sigma)
    assert 0 < mr <= gm <= cg
    assert sigma == 0 or cg <= 1 / sigma
    L1 = np.linalg.norm(problem.dense()[1], 2)
    slack = 1 - (1e-10 if dtype is torch.float64 else 1e-4)
    assert mr >= slack * sigma / L1**2
    assert gm >= slack / L1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@given(data=st.data())
def test_mr_is_at_least_the_inverse_of_the_largest_eigenvalue(dtype, data):
    problem = data.draw(problems(CONVEX, dtype))
    _, step, _ = first_step(problem, ScaledGradient(scaling="MR", sigma=0))
    M = np.linalg.eigvalsh(problem.dense()[1])[-1]
    assert step.curvature is SPC
    assert step.scale >= (1 - (1e-12 if dtype is torch.float64 else 1e-4)) / M


@given(problems(), st.sampled_from(["MR", "GM", "CG"]), shares)
def test_the_step_uses_the_formula_of_its_name(problem, name, share):
    problem, sigma = force(problem, SPC, share)
    _, step, _ = first_step(problem, ScaledGradient(scaling=name, sigma=sigma))
    g, H = problem.dense()
    gg, gHg, HgHg = g @ g, g @ H @ g, (H @ g) @ (H @ g)
    assert (step.curvature, step.scaling) == (SPC, name)
    expected = {"CG": gg / gHg, "MR": gHg / HgHg, "GM": math.sqrt(gg / HgHg)}[name]
    # Curvature from cancelling terms loses digits: H loses eps |H|, so gHg/gg does too.
    lost = np.linalg.norm(H, 2) * gg / gHg
    assert step.scale == pytest.approx(expected, rel=1e-13 * lost)


def test_curvature_equal_to_sigma_is_limited():
    H = np.diag([0.5, 7.0])
    point = DensePoint(
        torch.tensor([4.0, 0.0]), lambda x: x @ H @ x / 2, lambda x: H @ x, lambda x: H
    )
    _, step, _ = ScaledGradient(sigma=0.5).step(point, ScaledGradient().init(point))
    assert (step.curvature, step.scaling, step.scale) == (LPC, None, 1.0)
    below = math.nextafter(0.5, 0.0)
    _, step, _ = ScaledGradient(sigma=below).step(point, ScaledGradient().init(point))
    assert (step.curvature, step.scaling, step.scale) == (SPC, "CG", 2.0)


@pytest.mark.parametrize(
    ("curvature", "error", "case"),
    [
        (1.0, 0.4, SPC),
        (1.0, 0.5, LPC),  # 1 - 0.5 is not above sigma
        (0.3, 0.0, LPC),
        (-0.3, 0.0, NC),
        (-0.3, 0.2, NC),
        (-0.3, 0.3, LPC),
        (0.0, 0.0, LPC),
    ],
)
def test_an_inexact_product_decides_only_where_its_error_cannot(curvature, error, case):
    angle = Angle(1.0, 1.0, curvature, error)
    assert curvature_case(angle, 0.5) is case
    point = DensePoint(torch.ones(1), lambda x: x @ x / 2, lambda x: x, lambda x: np.eye(1))
    point.angle = lambda **options: angle
    method = ScaledGradient(scaling="GM", sigma=0.5, s_lpc=0.25, s_nc=1.5)
    _, step, _ = method.step(point, method.init(point))
    assert (step.curvature, step.scale) == (case, {SPC: 1.0, LPC: 0.25, NC: 1.5}[case])


@given(problems(), st.floats(1e-8, 10.0))
def test_the_limited_scale_is_at_most_one_over_sigma(problem, sigma):
    problem, least = force(problem, LPC, 0.0)
    sigma = max(sigma, least)
    for s_lpc, expected in (
        (None, min(1.0, 1 / sigma)),
        ("1/sigma", 1 / sigma),
        (0.1 / sigma,) * 2,
    ):
        method = ScaledGradient(sigma=sigma, s_lpc=s_lpc)
        _, step, _ = first_step(problem, method)
        assert (step.curvature, step.scaling, step.scale) == (LPC, None, expected)


def test_float32_shows_the_same_scales_as_float64():
    for seed in range(20):
        for kind in CONVEX:
            wide, narrow = make(kind, seed), make(kind, seed, dtype=torch.float32)
            exact = scales(wide.point().angle(), 0.0)
            assert scales(narrow.point().angle(), 0.0) == pytest.approx(exact, rel=1e-4)

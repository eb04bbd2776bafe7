"""Property 2: <g,p> < 0 and <g,p> + <p,Hp> <= 0 in every case, with equality for CG."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from testbed import first_step, force, problems

from firstish import ScaledGradient
from firstish.scaling import Curvature

LIMITED = [None, "1/sigma"]
shares = st.floats(0, 0.99)


def terms(problem, step):
    """<g,p>, <p,Hp> from the dense Hessian, and how much of their sum may be rounding."""
    g, H = problem.dense()
    p = -step.scale * g
    return g @ p, p @ H @ p, np.linalg.norm(g) * np.linalg.norm(p) + np.linalg.norm(H, 2) * (p @ p)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("case", list(Curvature))
@given(
    data=st.data(),
    share=shares,
    name=st.sampled_from(["CG", "MR", "GM"]),
    s_lpc=st.sampled_from(LIMITED),
    s_nc=st.sampled_from([1e-3, 1.0, 30.0]),
)
def test_first_and_second_order_descent(dtype, case, data, share, name, s_lpc, s_nc):
    problem, sigma = force(data.draw(problems(dtype=dtype)), case, share)
    s_lpc = None if sigma == 0 else s_lpc
    method = ScaledGradient(scaling=name, sigma=sigma, s_lpc=s_lpc, s_nc=s_nc)
    _, step, _ = first_step(problem, method)
    rounding = 1e-12 if dtype is torch.float64 else 1e-4
    if dtype is torch.float64:
        assert step.curvature is case
    first, second, size = terms(problem, step)
    assert first < 0
    assert first + second <= rounding * size
    assert step.descent_margin == pytest.approx(first + second, abs=rounding * size)
    if step.scaling == "CG":
        assert abs(first + second) <= rounding * size


@pytest.mark.parametrize("case", list(Curvature))
@given(data=st.data(), share=st.floats(0, 0.9))
def test_the_point_moves_by_the_step_on_record(case, data, share):
    problem, sigma = force(data.draw(problems()), case, share)
    point, step, _ = first_step(problem, ScaledGradient(sigma=sigma))
    g, _ = problem.dense()
    expected = problem.x.numpy() - step.step_size * step.scale * g
    scale = np.abs(problem.x.numpy()).max() + np.abs(expected).max()
    np.testing.assert_allclose(point.x.numpy(), expected, atol=1e-12 * scale, rtol=0)
    start, end = float(problem.fun(problem.x)), float(problem.fun(point.x))
    assert step.actual_decrease == start - end > 0


@given(problems(("convex quadratic", "indefinite quadratic")), shares)
def test_the_predicted_decrease_is_exact_on_quadratics(problem, share):
    problem, sigma = force(problem, Curvature.SPC, share)
    _, step, _ = first_step(problem, ScaledGradient(sigma=sigma))
    size = abs(float(problem.fun(problem.x))) + step.actual_decrease
    assert step.predicted_decrease == pytest.approx(step.actual_decrease, abs=1e-12 * size)

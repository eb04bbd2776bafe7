"""Property 7: f never rises by more than 10 eps |f|, down to the rounding floor and on it."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from testbed import BOUNDED, KINDS, problems, run

from firstish import Armijo, ScaledGradient, Status

ENDS = (Status.ROUNDING, Status.LINE_SEARCH, Status.MAX_ITERATIONS)
precisions = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
scalings = st.sampled_from(["CG", "MR", "GM", "CGMR", "MRCG", "CGMRGM"])
rhos = st.sampled_from([0.0, 1e-4, 0.3])


def check(result, xs, dtype):
    eps = torch.finfo(dtype).eps
    values = [row.value for row in result.history]
    for before, after in itertools.pairwise(values):
        assert after <= before + 10 * eps * abs(before)
    for lowest, value in zip(itertools.accumulate(values, min), values, strict=True):
        assert value <= lowest + 40 * eps * abs(lowest)  # nor does it creep up in the long run
    for x, new in itertools.pairwise(xs):
        assert bool(torch.isfinite(new).all())
        assert not torch.equal(x, new)
    for row in result.history[:-1]:
        assert row.step_size > 0
        assert row.failure is None
    assert len(xs) == len(result.history) == result.iterations + 1
    assert torch.equal(result.x, xs[-1])
    assert math.isfinite(result.value)


@precisions
@settings(max_examples=25)
@given(data=st.data(), scaling=scalings, rho=rhos, sigma=st.sampled_from([0.0, 1e-6, 0.5]))
def test_f_never_rises_on_the_way_to_the_rounding_floor(dtype, data, scaling, rho, sigma):
    problem = data.draw(problems(BOUNDED, dtype))
    method = ScaledGradient(scaling=scaling, sigma=sigma, line_search=Armijo(rho=rho))
    result, xs = run(problem.fun, problem.x, method=method, gtol=0, max_iterations=250)
    check(result, xs, dtype)
    assert result.status in ENDS or (result.success and result.grad_norm == 0)


@settings(max_examples=40)
@given(problems(KINDS), scalings, rhos)
def test_f_never_rises_where_it_may_be_unbounded_below(problem, scaling, rho):
    method = ScaledGradient(scaling=scaling, line_search=Armijo(rho=rho))
    result, xs = run(problem.fun, problem.x, method=method, gtol=0, max_iterations=40)
    check(result, xs, torch.float64)


@precisions
def test_the_floor_is_reached_and_named(dtype):
    # A large constant hides the decrease: f resolves sqrt(eps) in x, the slopes more.
    H = torch.tensor([1.0, 3.0, 10.0], dtype=dtype)
    x0 = torch.tensor([1.0, 1.0, 1.0], dtype=dtype)
    eps = torch.finfo(dtype).eps
    result, xs = run(lambda x: 100 + (H * x * x).sum() / 2, x0, gtol=0, max_iterations=3000)
    check(result, xs, dtype)
    assert result.status is Status.ROUNDING or result.grad_norm == 0
    # f alone cannot tell points with H|x|^2/2 < 100 eps apart: |g| would stay near sqrt(200 eps).
    assert result.grad_norm < 1e-3 * math.sqrt(200 * eps)


@precisions
def test_a_start_on_the_floor_takes_no_null_step(dtype):
    # x cannot move in its last place, though f has a slope: 2^60 + 1 = 2^60.
    x0 = torch.tensor([2.0**60], dtype=dtype)
    bowl = lambda x: ((x - 2.0**60 - 1) ** 2).sum() / 2  # noqa: E731
    result, xs = run(bowl, x0, method=ScaledGradient(), gtol=0)
    assert result.status is Status.ROUNDING
    assert result.iterations == 0
    assert len(xs) == 1


@precisions
def test_a_limited_step_that_x_cannot_hold_is_made_longer(dtype):
    # s_lpc = 1 asks for a step of 0.5, which 2^60 cannot hold; longer ones lower f.
    x0 = torch.tensor([2.0**60], dtype=dtype)
    result, _ = run(
        lambda x: (x * 0.5).sum(), x0, method=ScaledGradient(), gtol=0, max_iterations=2
    )
    first = result.history[0]
    assert first.scale > 1
    assert first.actual_decrease > 0
    assert result.iterations == 2 or result.status is Status.UNBOUNDED


def test_f_does_not_rise_onto_a_hilltop_where_it_is_flat():
    # The unit step from 1 ends on top of a hill, 0.002 higher, where the slope is 0.
    def hill(x):
        return (1 + x * x / 2 + 0.502 * torch.exp(-((x / 0.2) ** 2))).sum()

    result, xs = run(hill, torch.ones(1), method=ScaledGradient(scaling="CG"), gtol=1e-10)
    check(result, xs, torch.float64)
    assert result.history[0].trials > 1
    assert result.success

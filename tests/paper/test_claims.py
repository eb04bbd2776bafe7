"""What the method must show on the digits, to a gradient norm of 1e-6."""

from functools import lru_cache
from itertools import pairwise

import pytest
import torch

import firstish
from firstish.problems import get
from firstish.problems.base import Options

pytest.importorskip("sklearn", reason="scikit-learn carries the digits")


@lru_cache
def solve(scaling, dtype=torch.float64):
    instance = get("digits-logistic").load(Options(dtype=dtype))
    method = firstish.ScaledGradient(scaling=scaling, sigma=0.0)
    return firstish.minimize(
        instance.objective, instance.x0, method=method, gtol=1e-6, max_oracle_calls=10_000
    )


@pytest.mark.parametrize("scaling", ["CGMR", "MRCG"])
def test_alternating_scalings_need_at_most_1100_calls(scaling):
    assert solve(scaling).success
    assert solve(scaling).oracle_calls <= 1100


@pytest.mark.parametrize("scaling", ["CG", "MR", "GM"])
def test_one_scaling_alone_needs_more_than_three_times_the_calls(scaling):
    assert solve(scaling).success
    assert solve(scaling).oracle_calls > 3 * solve("MRCG").oracle_calls


@pytest.mark.parametrize("scaling", ["CGMR", "MRCG", "CG", "MR", "GM"])
def test_the_unit_step_is_taken_at_every_iteration(scaling):
    steps = solve(scaling).history[:-1]
    assert {(row.step_size, row.trials, row.curvature.name) for row in steps} == {(1.0, 1, "SPC")}
    assert solve(scaling).oracle_calls == 2 + 4 * len(steps)


def test_mr_lowers_the_gradient_norm_at_every_step():
    norms = [row.grad_norm for row in solve("MR").history]
    assert all(after < before for before, after in pairwise(norms))


@pytest.mark.parametrize("scaling", ["CGMR", "MRCG", "CG", "MR", "GM"])
def test_float32_reaches_the_same_tolerance_at_the_default_rho(scaling):
    result = solve(scaling, torch.float32)
    assert result.success, result.message  # a failed line search would be another status
    assert result.x.dtype == torch.float32

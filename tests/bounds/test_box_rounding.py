"""A step to a bound ends on it, to the bit, whatever rounding does on the way."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import float64

from firstish import FunctionObjective, minimize
from firstish.bounds.bounded import BoundedObjective
from firstish.bounds.box import Box


def box(lower, upper, count=1):
    return Box(
        torch.full((count,), lower, dtype=float64), torch.full((count,), upper, dtype=float64)
    )


@pytest.mark.parametrize("bound", [0.2, -0.7, 1e-9, 3e8])
@pytest.mark.parametrize("ulps", [-2, -1, 0, 1, 2])
def test_an_entry_a_few_ulps_off_is_put_on_the_bound(bound, ulps):
    target = math.inf if ulps > 0 else -math.inf
    x = torch.tensor([bound], dtype=float64)
    for _ in range(abs(ulps)):
        x = torch.nextafter(x, torch.tensor([target], dtype=float64))
    for here in (box(-math.inf, bound), box(bound, math.inf)):
        found = here.rounded(x)
        assert found.item() == bound
        assert not here.cuts(x)


def test_other_entries_stay_to_the_bit_and_those_outside_are_projected():
    here = box(-0.2, 0.2, 4)
    x = torch.tensor([0.1, 0.2 - 1e-12, 0.3, -0.2], dtype=float64)
    found = here.rounded(x)
    assert found.tolist() == [0.1, 0.2 - 1e-12, 0.2, -0.2]
    assert here.cuts(x)
    inside = torch.tensor([0.1, 0.0, -0.1, 0.15], dtype=float64)
    assert here.rounded(inside) is inside


@given(st.floats(-3, 3), st.floats(0.01, 3), st.sampled_from([float64, torch.float32]))
def test_a_step_of_bound_minus_x_leads_to_the_bound(x, distance, dtype):
    x0 = torch.tensor([x], dtype=dtype)
    upper = x0 + distance
    here = Box(torch.full_like(x0, -math.inf), upper)
    objective = BoundedObjective(FunctionObjective(lambda z: -z.sum(), x0), here)
    trial = objective.at(x0).along(upper - x0, 1.0)
    # x + (u - x) misses u by an ulp of u and one of u - x: more than we look at if u is tiny.
    if abs(float(upper)) > 0.5 * distance:
        assert torch.equal(trial.x, upper)
        assert trial.displacement is None


@pytest.mark.parametrize("seed", range(6))
def test_at_the_end_a_variable_is_on_its_bound_or_its_gradient_is_small(seed):
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(12, 12, dtype=float64, generator=generator)
    H, b = (
        A @ A.T + torch.eye(12, dtype=float64),
        30 * torch.randn(12, dtype=float64, generator=generator),
    )
    f = lambda x: x @ H @ x / 2 - b @ x  # noqa: E731
    result = minimize(f, torch.zeros(12, dtype=float64), bounds=(-0.3, 0.7), gtol=1e-8)
    assert result.success
    g = H @ result.x - b
    between = (result.x > -0.3) & (result.x < 0.7)
    assert float(g[between].norm()) <= 2e-8

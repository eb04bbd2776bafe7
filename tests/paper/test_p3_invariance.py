"""Property 3: on f(c y) with y = x/c the SPC iterates are y_k = x_k/c."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from testbed import CONVEX, problems, run

from firstish import ScaledGradient, Status
from firstish.scaling import Curvature

STEPS = 10
scalings = st.sampled_from(["CG", "MR", "GM", "CGMR", "MRCG"])
signs = st.sampled_from([-1.0, 1.0])


def pair(problem, c, scaling):
    """Runs on f and on f(c y), and for how many points all steps were SPC."""
    options = {"method": ScaledGradient(scaling=scaling, sigma=0), "gtol": 0}
    plain, xs = run(problem.fun, problem.x, max_iterations=STEPS, **options)
    scaled, ys = run(lambda y: problem.fun(c * y), problem.x / c, max_iterations=STEPS, **options)
    cases = [row.curvature for row in plain.history]
    same = next(k for k, case in enumerate(cases) if case is not Curvature.SPC)
    return plain, xs, scaled, ys, same


@given(problems(), st.integers(-100, 100), signs, scalings)
def test_bitwise_for_powers_of_two(problem, k, sign, scaling):
    c = sign * 2.0**k
    plain, xs, scaled, ys, same = pair(problem, c, scaling)
    if problem.kind == "softmax":
        assert same == STEPS
    for j in range(same + 1):
        assert torch.equal(xs[j], c * ys[j])
        assert plain.history[j].value == scaled.history[j].value
        assert abs(c) * plain.history[j].grad_norm == scaled.history[j].grad_norm
    for a, b in zip(plain.history[:same], scaled.history[:same], strict=True):
        assert (a.scaling, a.cosine, a.step_size, a.trials) == (
            b.scaling,
            b.cosine,
            b.step_size,
            b.trials,
        )
        assert a.scale == b.scale * c * c


@given(problems(CONVEX, smallest=2), st.floats(-20, 20).map(lambda e: 10.0**e), signs, scalings)
def test_to_rounding_for_other_factors(problem, size, sign, scaling):
    c = sign * size
    _, xs, scaled, ys, same = pair(problem, c, scaling)
    assert len(ys) > same or scaled.status in (Status.ROUNDING, Status.CONVERGED)  # g = 0
    for x, y in zip(xs[: same + 1], ys, strict=False):
        assert float((x - c * y).norm()) <= 1e-12 * float(x.norm())


@pytest.mark.parametrize("factor", [2.0**100, 2.0**-100])
@given(problem=problems(), scaling=scalings)
def test_multiplying_f_changes_no_bit_of_the_iterates(factor, problem, scaling):
    options = {"method": ScaledGradient(scaling=scaling, sigma=0), "gtol": 0}
    plain, xs = run(problem.fun, problem.x, max_iterations=STEPS, **options)
    _, zs = run(lambda x: factor * problem.fun(x), problem.x, max_iterations=STEPS, **options)
    for x, z, row in zip(xs, zs, plain.history, strict=False):
        assert torch.equal(x, z)
        if row.curvature is not Curvature.SPC:
            break

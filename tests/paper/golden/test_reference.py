"""Step by step beside a straight-line NumPy reference of the paper's algorithm."""

import numpy as np
import paper
import pytest
import torch
from tolerances import bounded, distance

from firstish import ScaledGradient, minimize

STEPS = 20
A, y = torch.from_numpy(paper.A), torch.from_numpy(paper.y)
WEIGHTS = torch.from_numpy(paper.WEIGHTS)


def logistic(x):
    ridge = paper.RIDGE / 2 * (x @ x)
    return torch.nn.functional.softplus(-y * (A @ x)).mean() + ridge


def wells(x):
    return WEIGHTS @ (x**2 - 1) ** 2 / 4 + paper.COUPLING * x.prod()


def expected(parts, x0, **options):
    """The reference's decisions and numbers, with the tolerances of these."""

    def run(f, g, Hv):
        rows = paper.descend(f, g, Hv, np.array(x0), steps=STEPS, **options)
        return [((case, name, alpha), (x, np.log(s), f(x))) for x, case, name, s, alpha in rows]

    return bounded(run, parts)


def side_by_side(fun, parts, x0, **options):
    """Our rows, after checking that they agree with the reference's."""
    theirs = expected(parts, x0, **options)
    xs = [torch.tensor(x0)]
    ours = minimize(
        fun,
        torch.tensor(x0),
        method=ScaledGradient(**options),
        gtol=0,
        max_iterations=STEPS,
        callback=lambda p: xs.append(p.x.clone()),
    )
    assert ours.iterations == STEPS
    rows = [row for row in ours.history[:-1] if row.grad_norm > 1e-6]  # then rounding decides
    assert min(len(rows), len(theirs)) >= 15
    for row, x, (decided, numbers, bounds) in zip(rows, xs, theirs, strict=False):
        assert (row.curvature.name, row.scaling, row.step_size) == decided
        for a, b, tolerance in zip(
            (x.numpy(), np.log(row.scale), row.value), numbers, bounds, strict=True
        ):
            assert distance(a, b) <= tolerance
    return rows


@pytest.mark.parametrize("scaling", ["CG", "MR", "GM", "CGMR", "MRCG", "CGMRGM"])
def test_logistic_regression(scaling):
    parts = paper.logistic_f, paper.logistic_g, paper.logistic_Hv
    rows = side_by_side(logistic, parts, [0.0] * 6, scaling=scaling, sigma=0)
    assert len(rows) == STEPS


@pytest.mark.parametrize("scaling", ["CGMR", "MRCG", "GM"])
@pytest.mark.parametrize("start", [[0.05, 0.1, 0.02], [0.1, -0.05, 0.6]])
@pytest.mark.parametrize("sigma", [0.1, 0.5])
def test_a_nonconvex_function(scaling, start, sigma):
    parts = paper.wells_f, paper.wells_g, paper.wells_Hv
    side_by_side(wells, parts, start, scaling=scaling, sigma=sigma)


def test_the_nonconvex_run_meets_every_case_and_both_ways_of_tracking():
    parts = paper.wells_f, paper.wells_g, paper.wells_Hv
    rows = side_by_side(wells, parts, [0.05, 0.1, 0.02], scaling="CGMR", sigma=0.1)
    met = {(row.curvature.name, np.sign(np.log2(row.step_size))) for row in rows}
    assert met >= {("NC", 1), ("LPC", 0), ("SPC", -1), ("SPC", 0)}


def test_the_settings_reach_the_steps():
    parts = paper.wells_f, paper.wells_g, paper.wells_Hv
    side_by_side(wells, parts, [0.05, 0.1, 0.02], scaling="MR", sigma=0.3, s_lpc=0.5, s_nc=3.0)

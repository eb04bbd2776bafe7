"""Property 4: Newton in one dimension, Krylov's first iterates, and the classics on quadratics."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.sparse.linalg import cg, minres
from testbed import CONVEX, Problem, first_step, force, make, problems, run

from firstish import Armijo, ScaledGradient
from firstish.scaling import Curvature

SPC = Curvature.SPC
names = st.sampled_from(["CG", "MR", "GM"])
QUADRATIC = ("convex quadratic", "indefinite quadratic")


@given(st.floats(-3, 3), st.floats(0.1, 10), st.floats(-2, 2), names)
def test_one_dimension_is_newton(x, curvature, third, name):
    f = Problem("cubic", lambda z: (z * 3 + curvature * z**2 / 2 + third * z**3 / 6).sum(), None)
    g, H = f.dense(torch.tensor([x]))
    f = Problem("cubic", f.fun if H[0, 0] > 0 else f.negated().fun, torch.tensor([x]))
    g, H = f.dense()
    if abs(H[0, 0]) < 1e-3 or g[0] == 0:
        return  # the second derivative itself is lost in rounding, or there is no step to take
    _, step, _ = first_step(f, ScaledGradient(scaling=name, sigma=0))
    assert step.curvature is SPC
    assert step.scale == pytest.approx(1 / H[0, 0], rel=1e-12)


@pytest.mark.parametrize(("name", "solver"), [("CG", cg), ("MR", minres)])
@given(problem=problems())
def test_equals_the_first_krylov_iterate_on_the_newton_system(name, solver, problem):
    problem, sigma = force(problem, SPC, 0.5)
    _, step, _ = first_step(problem, ScaledGradient(scaling=name, sigma=sigma))
    g, H = problem.dense()
    p, _ = solver(H, -g, maxiter=1, rtol=1e-15)
    size = np.linalg.norm(p) * np.linalg.norm(H, 2) * step.scale / (step.cosine)
    np.testing.assert_allclose(-step.scale * g, p, rtol=0, atol=1e-12 * size)


@given(problems(QUADRATIC, smallest=2))
def test_on_quadratics_cg_minimises_f_along_the_gradient(problem):
    problem, sigma = force(problem, SPC, 0.5)
    _, step, _ = first_step(problem, ScaledGradient(scaling="CG", sigma=sigma))
    g = torch.from_numpy(problem.dense()[0])
    best = minimize_scalar(lambda t: float(problem.fun(problem.x - t * g)))
    assert step.scale == pytest.approx(best.x, rel=1e-5)
    at_the_end = problem.dense(problem.x - step.scale * g)[0]
    assert abs(at_the_end @ g.numpy()) <= 1e-11 * step.scale * step.local_lipschitz * float(g @ g)


@given(problems(QUADRATIC, smallest=2))
def test_on_quadratics_mr_minimises_the_gradient_norm_along_the_gradient(problem):
    problem, sigma = force(problem, SPC, 0.5)
    _, step, _ = first_step(problem, ScaledGradient(scaling="MR", sigma=sigma))
    g = torch.from_numpy(problem.dense()[0])
    best = minimize_scalar(lambda t: float((problem.dense(problem.x - t * g)[0] ** 2).sum()))
    assert step.scale == pytest.approx(best.x, rel=1e-5)


@given(problems(("convex quadratic",), smallest=3), names)
def test_barzilai_borwein_is_cg_and_mr_one_iteration_late(problem, name):
    method = ScaledGradient(scaling=name, sigma=0, line_search=Armijo(rho=0))
    result, xs = run(problem.fun, problem.x, method=method, gtol=0, max_iterations=4)
    for k in range(len(xs) - 2):
        if result.history[k].grad_norm < 1e-3:
            break  # differences of gradients lose too many digits
        d = (xs[k + 1] - xs[k]).numpy()
        g, H = problem.dense(xs[k])
        y = problem.dense(xs[k + 1])[0] - g
        gg, gHg, HgHg = g @ g, g @ H @ g, (H @ g) @ (H @ g)
        BB1, BB2 = (d @ d) / (d @ y), (d @ y) / (y @ y)
        assert pytest.approx(BB1, rel=1e-8) == gg / gHg
        assert pytest.approx(BB2, rel=1e-8) == gHg / HgHg
        late = {"CG": BB1, "MR": BB2, "GM": np.sqrt(BB1 * BB2)}[name]
        assert result.history[k].scale == pytest.approx(late, rel=1e-8)


@pytest.mark.parametrize("kind", CONVEX)
def test_mr_with_unit_steps_lowers_the_gradient_norm_on_convex_problems(kind):
    for seed in range(10):
        problem = make(kind, seed)
        method = ScaledGradient(scaling="MR", sigma=0)
        result, _ = run(problem.fun, problem.x, method=method, gtol=1e-8, max_iterations=100)
        norms = [row.grad_norm for row in result.history]
        assert all(row.step_size == 1 for row in result.history[:-1])
        assert all(b < a for a, b in itertools.pairwise(norms))

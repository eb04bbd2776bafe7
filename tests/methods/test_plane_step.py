"""The plane step: conjugate gradients on quadratics, and when it leaves the plane."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from testbed import DensePoint
from tolerances import summed

from firstish import FunctionObjective, NonMonotone, PlaneStep, minimize
from firstish.methods import PlaneState
from firstish.scaling import Curvature


def matrix(rng, values):
    U, _ = np.linalg.qr(rng.standard_normal((len(values), len(values))))
    return U @ np.diag(values) @ U.T


def conjugate_gradients(H, b, x, steps):
    """Hestenes and Stiefel's method for H x = b."""
    r = b - H @ x
    p, path = r, [x]
    for _ in range(steps):
        alpha = (r @ r) / (p @ H @ p)
        x = x + alpha * p
        new = r - alpha * H @ p
        p = new + (new @ new) / (r @ r) * p
        r = new
        path.append(x)
    return path


def paths(values, steps, seed):
    rng = np.random.default_rng(seed)
    H, b, x0 = (
        matrix(rng, values),
        rng.standard_normal(len(values)),
        rng.standard_normal(len(values)),
    )
    T, c = torch.from_numpy(H), torch.from_numpy(b)
    ours = [torch.from_numpy(x0)]
    result = minimize(
        FunctionObjective(lambda x: x @ (T @ x) / 2 - c @ x, ours[0], product="double-backward"),
        ours[0],
        method=PlaneStep(sigma=0.0),
        gtol=0,
        max_iterations=steps,
        callback=lambda p: ours.append(p.x.clone()),
    )
    return result, ours, conjugate_gradients(H, b, x0, steps), np.linalg.solve(H, b)


@pytest.mark.parametrize("seed", range(5))
def test_on_a_well_conditioned_quadratic_it_is_conjugate_gradients_to_rounding(seed):
    result, ours, theirs, solution = paths(np.linspace(1.0, 4.0, 40), 20, seed)
    start = np.linalg.norm(theirs[0] - solution)
    for x, y in zip(ours, theirs, strict=True):
        assert np.linalg.norm(x.numpy() - y) <= 1e-13 * start
    assert [row.scaling for row in result.history[:-1]] == ["CG"] + ["plane"] * 19
    assert [row.step_size for row in result.history[:-1]] == [1.0] * 20


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("condition", [1e2, 1e4])
def test_on_other_quadratics_it_is_so_early_on(seed, condition):
    _, ours, theirs, _ = paths(np.geomspace(1.0, condition, 40), 12, seed)
    for x, y in zip(ours, theirs, strict=True):
        assert np.linalg.norm(x.numpy() - y) <= 1e-6 * np.linalg.norm(y)


def test_as_many_steps_as_there_are_eigenvalues_solve_a_quadratic():
    result, *_ = paths(np.repeat([1.0, 3.0, 7.0, 20.0], 10), 4, 0)
    assert result.grad_norm < 1e-11


def test_in_one_dimension_it_is_newtons_method():
    fun = lambda x: torch.cosh(x).sum() + x.sum() / 3  # noqa: E731
    xs = [torch.tensor([1.0])]
    result = minimize(fun, xs[0], method=PlaneStep(), callback=lambda p: xs.append(p.x.clone()))
    assert result.success
    for x, new in itertools.pairwise(xs):
        newton = x - (torch.sinh(x) + 1 / 3) / torch.cosh(x)
        torch.testing.assert_close(new, newton, rtol=1e-12, atol=1e-14)


def stepped(H, g, d, y, sigma=0.1):
    """One step from 0, the last step and change of gradient being d and y; f is quadratic."""
    g, d, y = map(np.asarray, (g, d, y))
    point = DensePoint(
        torch.zeros(len(g)), lambda x: g @ x + x @ H @ x / 2, lambda x: g + H @ x, lambda x: H
    )
    state = PlaneState(torch.from_numpy(-d), torch.from_numpy(g - y))
    new, step, after = PlaneStep(sigma=sigma).step(point, state)
    assert torch.equal(after.x, point.x)
    assert torch.equal(after.grad, point.grad)
    return new.x.numpy(), step


H = np.diag([1.0, 4.0, 9.0])
g = np.array([1.0, 1.0, 1.0])
d = np.array([0.2, -0.5, 0.1])


def test_the_step_is_the_lowest_point_of_the_plane_wherever_it_comes_from():
    x, step = stepped(H, g, d, H @ d)
    basis = np.stack([g, d], axis=1)
    expected = basis @ np.linalg.solve(basis.T @ H @ basis, -basis.T @ g)
    assert step.scaling == "plane"
    np.testing.assert_allclose(x, expected, rtol=1e-12)
    assert step.descent_margin == pytest.approx(0, abs=1e-12)
    assert step.predicted_decrease == pytest.approx(step.actual_decrease, rel=1e-12)


@pytest.mark.parametrize(
    "y",
    [
        -H @ d,  # negative curvature along d
        np.zeros(3),
        0.1 * d,  # equal to sigma: not strong
        0.11 * d,  # the system is indefinite: gHd is too large for it
        np.full(3, np.inf),
    ],
    ids=["negative", "zero", "limited", "indefinite", "overflow"],
)
def test_a_system_that_is_not_positive_definite_gives_the_cg_step(y):
    x, step = stepped(H, g, d, y)
    assert step.scaling == "CG"
    np.testing.assert_allclose(x, -(g @ g) / (g @ H @ g) * g, rtol=1e-12)


@pytest.mark.parametrize(("c", "name"), [(0.0999, "CG"), (0.09, "CG"), (0.11, "plane")])
def test_curvature_along_the_last_step_must_be_strong_too(c, name):
    across = np.array([4.0, -1.0, 0.0])  # at a right angle to Hg, so that the system is definite
    _, step = stepped(H, g, across, c * across)
    assert step.scaling == name


def test_a_last_step_along_the_gradient_gives_the_cg_step():
    _, step = stepped(H, g, -3 * g, -3 * H @ g)
    assert step.scaling == "CG"


@pytest.mark.parametrize(
    ("shift", "case", "scale"), [(-6.0, Curvature.NC, 1.0), (-4.6, Curvature.LPC, 1.0)]
)
def test_other_curvature_along_the_gradient_ignores_the_last_step(shift, case, scale):
    bent = H + shift * np.eye(3)
    x, step = stepped(bent, g, d, bent @ d)
    assert (step.curvature, step.scaling, step.scale) == (case, None, scale)
    np.testing.assert_allclose(x, -step.step_size * scale * g, rtol=1e-12)
    assert step.step_size >= 1 if case is Curvature.NC else step.step_size <= 1


@pytest.mark.parametrize(
    ("size", "bend"), [(1e-150, 1e100), (1e150, 1e-100), (1e80, 1e80), (1e-80, 1e-80)]
)
def test_nothing_overflows_at_extreme_sizes(size, bend):
    """The same step, in other units of x and of f, where gg, HgHg or dd would overflow."""
    x, _ = stepped(H, g, d, H @ d, sigma=0.0)
    far, step = stepped(bend * H, size * bend * g, size * d, size * bend * H @ d, sigma=0.0)
    assert step.scaling == "plane"
    np.testing.assert_allclose(far / size, x, rtol=1e-12)


@pytest.mark.parametrize("memory", [1, 2, 3])
def test_more_steps_span_more_of_the_model(memory):
    """With exact products the step is the lowest point over all steps that are kept."""
    rng = np.random.default_rng(0)
    H = matrix(rng, np.linspace(1.0, 9.0, 6))
    grad, ds = rng.standard_normal(6), rng.standard_normal((3, 6))
    point = DensePoint(
        torch.zeros(6), lambda x: grad @ x + x @ H @ x / 2, lambda x: grad + H @ x, lambda x: H
    )
    state = PlaneState()
    for k in range(4):  # the points from which the steps d_0, d_1 and d_2 lead to 0
        x = -ds[k:].sum(axis=0)
        at = DensePoint(
            torch.from_numpy(x),
            lambda x: grad @ x + x @ H @ x / 2,
            lambda x: grad + H @ x,
            lambda x: H,
        )
        if k < 3:
            state = state.then(at, memory)
    new, step, _ = PlaneStep(sigma=0.0, memory=memory).step(point, state)
    basis = np.stack([grad, *ds[::-1][:memory]], axis=1)
    expected = basis @ np.linalg.solve(basis.T @ H @ basis, -basis.T @ grad)
    np.testing.assert_allclose(new.x.numpy(), expected, rtol=1e-10)
    assert step.scaling == "plane"
    assert step.predicted_decrease == pytest.approx(step.actual_decrease, rel=1e-10)


@pytest.mark.parametrize(("skew", "spans"), [(0.2, True), (0.4, False)])
def test_a_step_whose_hessian_has_changed_is_left_out(skew, spans):
    """Two unit steps along the axes; what each says of H differs by the skew, over the roots."""
    first, last = torch.eye(4)[1], torch.eye(4)[2]
    grad = torch.tensor([1.0, -1.0, -1.0, 0.0], dtype=torch.float64)
    old = PlaneState().then(_at(-first - last, grad - first * 4 - last * 9), 5)
    one = old.then(_at(-last, grad - last * 9), 5)  # y of the first step: 4 e_1
    changed = grad - skew * 6 * first  # y of the last step: 9 e_2 - skew 6 e_1, 6 = sqrt(4 * 9)
    two = one.then(_at(torch.zeros(4), changed), 5)
    assert two.SY[0] == pytest.approx(9.0, rel=summed(4, (1 + 10) / 9))
    assert two.SY[2] == pytest.approx(4.0, rel=summed(4, (1 + 5) / 4))
    expected = -skew * 3 if spans else math.nan
    lost = (1 + 6 * skew + 1) / (6 * skew)  # in y, a difference of gradients
    assert two.SY[1] == pytest.approx(expected, rel=summed(4, lost), nan_ok=True)


def _at(x, grad):
    """A point with x and the gradient alone."""
    return SimpleNamespace(x=x.double(), full_grad=grad.double())


@pytest.mark.parametrize("memory", [0, -1, 1.5, True])
def test_a_memory_that_is_no_count_is_refused(memory):
    with pytest.raises((TypeError, ValueError), match=r"`PlaneStep\(memory=...\)`"):
        PlaneStep(memory=memory)


def test_a_non_monotone_search_is_refused():
    with pytest.raises(TypeError, match=r"`PlaneStep\(line_search=.*NonMonotone"):
        PlaneStep(line_search=NonMonotone())

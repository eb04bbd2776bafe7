"""The lazy step: when it asks the Hessian, what it does with the answer, and what that costs."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from testbed import DensePoint, problems, run

from firstish import FunctionObjective, LazyStep, Status, minimize
from firstish.methods import LazyState
from firstish.methods.lbfgs import direction, pair
from firstish.scaling import Curvature


def dense_inverse(pairs, gamma):
    """BFGS from the matrices of its formula."""
    B = gamma * np.eye(len(pairs[0][0]))
    for s, y in pairs:
        V = np.eye(len(s)) - np.outer(y, s) / (s @ y)
        B = V.T @ B @ V + np.outer(s, s) / (s @ y)
    return B


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(2, 7))
def test_the_direction_is_that_of_the_dense_update(seed, count, d):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((d, d))
    H = root @ root.T + np.eye(d)
    moves = [rng.standard_normal(d) * 10.0 ** rng.integers(-3, 3) for _ in range(count)]
    pairs = [(s, H @ s) for s in moves]
    s, y = pairs[-1]
    logs = [np.log((s @ y) / (y @ y)) for s, y in pairs]
    B = dense_inverse(pairs, np.exp(np.mean(logs)))
    g = rng.standard_normal(d)
    made = tuple(
        pair(torch.from_numpy(s.copy()), torch.from_numpy(y.copy()), 1e-12) for s, y in pairs
    )
    ours = direction(made, torch.from_numpy(g)).numpy()
    np.testing.assert_allclose(ours, -B @ g, rtol=0, atol=1e-8 * np.abs(B @ g).max())
    np.testing.assert_allclose(
        direction(made, torch.from_numpy(y)).numpy(), -s, rtol=0, atol=1e-9 * np.abs(s).max()
    )  # the secant equation


@pytest.mark.parametrize("size", [1e-200, 1e-100, 1e100, 1e200])
def test_pairs_of_extreme_size_give_the_same_direction(size):
    s, y = torch.tensor([1.0, 2.0, -1.0]), torch.tensor([2.0, 5.0, -1.0])
    g = torch.tensor([1.0, -1.0, 3.0])
    plain = direction((pair(s.clone(), y.clone(), 1e-8),), g)
    far = direction((pair(s * size, y * size, 1e-8),), g)
    torch.testing.assert_close(far, plain, rtol=1e-14, atol=0)


@pytest.mark.parametrize("y", [[-1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [float("nan"), 1.0]])
def test_a_pair_without_positive_curvature_is_none(y):
    assert pair(torch.tensor([1.0, 0.0]), torch.tensor(y), 1e-8) is None


def test_the_first_step_has_the_gm_scale_and_costs_a_product():
    H = np.diag([1.0, 5.0])
    point = DensePoint(
        torch.tensor([1.0, 1.0]),
        lambda x: x @ H @ x / 2,
        lambda x: H @ x,
        lambda x: H,
        order=1,
    )
    new, step, state = LazyStep().step(point, LazyState())
    g = H @ np.ones(2)
    assert step.scale == pytest.approx(np.linalg.norm(g) / np.linalg.norm(H @ g), rel=1e-14)
    assert (step.product, step.curvature, step.step_size) == ("start", Curvature.SPC, 1.0)
    assert new.order == 1
    assert (state.moves, state.x) == ((), point.x)
    assert new.meter.oracle_calls == 1 + 1 + 2 + 1 + 1


def hills(x):
    return torch.cos(x).sum() + (x**2).sum() / 20


@pytest.mark.parametrize("product", ["auto", "double-backward", "difference"])
def test_a_product_costs_two_calls_and_the_passes_it_makes(product):
    x0 = torch.tensor([1.1, 0.7, -0.9])
    objective = FunctionObjective(hills, x0, product=product, check=False)
    result = minimize(objective, x0, method=LazyStep(), gtol=1e-8)
    rows = result.history
    assert result.success
    assert {row.product for row in rows} >= {"start", None}
    for row, after in itertools.pairwise(rows):
        asked = row.product is not None
        assert after.oracle_calls - row.oracle_calls == 1 + row.trials + 2 * asked
        passes = 1 + row.trials + asked * (4 if product == "double-backward" else 2)
        assert after.passes - row.passes == passes


def test_one_product_in_a_hundred_steps_of_a_convex_problem():
    h = torch.logspace(0, 4, 60)
    fun = lambda x: (h * x**2).sum() / 2 + torch.logsumexp(x, 0)  # noqa: E731
    result = minimize(fun, torch.ones(60), method=LazyStep(), gtol=1e-3)
    assert result.success
    assert result.iterations > 100
    assert [row.product for row in result.history] == ["start"] + [None] * result.iterations
    units = [row for row in result.history[1:-1] if row.step_size == 1]
    assert len(units) > 0.8 * result.iterations


def test_negative_curvature_is_asked_for_and_tracked_forward():
    result, _ = run(hills, torch.tensor([0.02, -0.01]), method=LazyStep(), gtol=1e-8)
    first = result.history[0]
    assert (first.product, first.curvature, first.scale) == ("start", Curvature.NC, 1.0)
    assert first.step_size > 1
    assert result.success
    assert result.history[1].product == "curvature"


def test_forward_tracking_stops_in_the_first_valley():
    fun = lambda x: torch.cos(x).sum() - 1e-3 * x.sum()  # noqa: E731
    result, xs = run(fun, torch.tensor([0.05]), method=LazyStep(), gtol=1e-8)
    assert result.success
    assert float(xs[1]) < 2 * torch.pi
    assert float(result.x) == pytest.approx(torch.pi, abs=0.01)


def test_pairs_that_lead_nowhere_are_forgotten_and_the_gradient_is_tried():
    """The pairs handed in are wrong, so that no trial along p is accepted."""
    H = np.diag([1.0, 2.0, 3.0])
    x = np.array([1.0, 1.0, 1.0])

    def f(z):
        off = np.linalg.norm(np.cross(z - x, H @ x))
        on_ray = off <= 1e-6 * np.linalg.norm(z - x) * np.linalg.norm(H @ x)  # along the gradient
        return z @ H @ z / 2 if on_ray else 100.0

    point = DensePoint(torch.from_numpy(x), f, lambda z: H @ z, lambda z: H, order=1)
    s, y = torch.tensor([1.0, 0.2, 0.0]), torch.tensor([1.0, 0.3, 0.1])
    old = LazyState(point.x - s, point.grad - y)
    new, step, state = LazyStep().step(point, old)
    assert step.product == "search"
    assert step.failure is None
    assert state.moves == ()
    g = H @ x
    np.testing.assert_allclose(new.x.numpy(), x - (g @ g) / (g @ H @ g) * g, rtol=1e-12)
    assert step.trials > 10


def test_a_direction_lost_to_overflow_is_replaced_by_the_gradient():
    H = np.eye(2)
    point = DensePoint(
        torch.tensor([1.0, 1.0]),
        lambda z: z @ z / 2,
        lambda z: z.copy(),
        lambda z: H,
        order=1,
    )
    s, u = torch.tensor([1.0, -1.0]), torch.tensor([0.5, 0.5]).sqrt()
    wrong = LazyState(point.x - s, point.grad - 10 * s, (u,), (u,), (1e-310,), (1.0,))
    new, step, state = LazyStep().step(point, wrong)
    assert step.product == "descent"
    assert state.moves == ()
    torch.testing.assert_close(new.x, torch.zeros(2))


@pytest.mark.parametrize("memory", [1, 2, 5])
def test_no_more_pairs_are_kept_than_asked_for(memory):
    x0 = torch.tensor([-1.2, 1.0, 0.3])
    point = FunctionObjective(hills, x0).at(x0, 1)
    method, counts = LazyStep(memory=memory), []
    state = method.init(point)
    for _ in range(9):
        point, step, state = method.step(point, state)
        if step.failure is not None:
            break
        counts.append(len(state.moves))
        assert len(state.changes) == len(state.cosines) == len(state.stretches) == counts[-1]
    assert max(counts) == memory


@given(problems(("convex quadratic", "softmax")))
def test_it_solves_convex_problems_from_anywhere(problem):
    result, _ = run(problem.fun, problem.x, method=LazyStep(), gtol=1e-7)
    assert result.success or result.status is Status.ROUNDING, result.message


@pytest.mark.parametrize(
    ("memory", "error"), [(0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)]
)
def test_a_bad_memory_is_refused(memory, error):
    with pytest.raises(error, match=r"`LazyStep\(memory=...\)` must be .*got"):
        LazyStep(memory=memory)

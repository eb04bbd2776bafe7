"""The lazy step: its direction, its memory, when it makes a product, and what that costs."""

import copy
import io
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from testbed import DensePoint, problems, run
from tolerances import EPS, summed
from torch import nn
from torch.nn.functional import mse_loss

from firstish import FunctionObjective, LazyStep, ScaledGD, Status, minimize
from firstish.bounds.bounded import BoundedObjective
from firstish.bounds.box import Box
from firstish.experiments.storage import checkpoints
from firstish.experiments.storage.rows import Mark
from firstish.linalg import norm
from firstish.loop import Limits, Run
from firstish.methods import Failure, LazyState
from firstish.methods.lazy_step import Used
from firstish.methods.quasi_newton.curvature_pairs import LARGE, Pairs, pair
from firstish.methods.quasi_newton.row_buffer import aligned, appended
from firstish.scaling import Curvature

# The direction


def dense_inverse(pairs, gamma):
    """Self-scaled BFGS from the matrices of its formula; pairs of (s, y, tau)."""
    B = gamma * np.eye(len(pairs[0][0]))
    for s, y, tau in pairs:
        V = np.eye(len(s)) - np.outer(y, s) / (s @ y)
        B = V.T @ B @ V / tau + np.outer(s, s) / (s @ y)
    return B


def some_pairs(seed, count, d):
    """(s, y, tau) of a quadratic, s of very different lengths; the first tau is 1."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((d, d))
    H = root @ root.T + np.eye(d)
    steps = [rng.standard_normal(d) * 10.0 ** rng.integers(-3, 3) for _ in range(count)]
    taus = [1.0, *rng.uniform(0.3, 1.0, count - 1)]
    return [(s, H @ s, tau) for s, tau in zip(steps, taus, strict=True)], rng.standard_normal(d)


def as_tensors(pairs, memory=10**6):
    kept = None
    for s, y, tau in pairs:
        new = pair(torch.from_numpy(s.copy()), torch.from_numpy(y.copy()), 1e-12)
        kept = Pairs.first(new) if kept is None else kept.plus(new, tau, memory)
    return kept


def first_scale(pairs, k=0):
    s, y, _ = pairs[k]
    return (s @ y) / (y @ y)


def close(ours, theirs, pairs):
    """To rounding, times the condition of the triangular system that both solve."""
    S = np.array([s / np.linalg.norm(s) for s, _, _ in pairs])
    Y = np.array([y / np.linalg.norm(y) for _, y, _ in pairs])
    R = np.triu(S @ Y.T)
    condition = np.linalg.cond(R) ** 2 / min(1.0, math.prod(tau for *_, tau in pairs))
    tolerance = 100 * summed(len(pairs) + len(theirs)) * condition * np.abs(theirs).max()
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=tolerance)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(2, 7))
def test_b_is_that_of_the_dense_update(seed, count, d):
    pairs, v = some_pairs(seed, count, d)
    B = dense_inverse(pairs, first_scale(pairs))
    kept = as_tensors(pairs)
    close(kept.times(torch.from_numpy(v)), B @ v, pairs)
    s, y, _ = pairs[-1]
    close(kept.times(torch.from_numpy(y)), s, pairs)  # the secant equation


@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.integers(2, 6), st.integers(1, 5))
def test_the_pair_after_a_dropped_one_rescales_nothing(seed, count, d, memory):
    pairs, v = some_pairs(seed, count, d)
    kept = as_tensors(pairs, memory)
    assert len(kept) == min(count, memory)
    left = pairs[-memory:]
    left[0] = (*left[0][:2], 1.0)
    assert kept.taus == tuple(tau for *_, tau in left)
    close(kept.times(torch.from_numpy(v)), dense_inverse(left, first_scale(left)) @ v, left)


def two_loops(pairs, v):
    """Nocedal and Wright, Algorithm 7.4."""
    q, shares = v.copy(), []
    for s, y, _ in reversed(pairs):
        shares.append((s @ q) / (s @ y))
        q = q - shares[-1] * y
    r = first_scale(pairs, -1) * q
    for s, y, _ in pairs:
        r = r + s * (shares.pop() - (y @ r) / (s @ y))
    return r


@given(st.integers(0, 2**32 - 1), st.integers(1, 14), st.integers(2, 6))
def test_without_self_scaling_it_is_textbook_lbfgs(seed, count, d):
    pairs, v = some_pairs(seed, count, d)
    plain = [(s, y, 1.0) for s, y, _ in pairs]
    ours = as_tensors(plain, memory=10).times(torch.from_numpy(v), self_scaled=False)
    close(ours, two_loops(plain[-10:], v), plain[-10:])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_reading_large_pairs_once_gives_the_same_direction(dtype):
    """The vector whose product is wanted next is read with the new pair; any other by itself."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda: torch.randn(LARGE // 4, generator=generator, dtype=torch.float64)  # noqa: E731
    v, pairs, other = draw(), None, None
    for _ in range(6):
        s = draw()
        new = pair(s, s + 0.1 * draw(), 1e-8)
        if dtype is torch.float32:
            new = new._replace(step=new.step.to(dtype), change=new.change.to(dtype))
        pairs = Pairs.first(new) if pairs is None else pairs.plus(new, 0.9, 9, v)
        other = Pairs.first(new) if other is None else other.plus(new, 0.9, 9)
    assert pairs.known is not None
    assert other.known is None
    tolerance = 100 * torch.finfo(dtype).eps
    for w in (v, 2 * v - 1):
        expected = other.times(w)
        torch.testing.assert_close(
            pairs.times(w), expected, rtol=0, atol=tolerance * norm(expected)
        )


@pytest.mark.parametrize("size", [1e-200, 1e-100, 1e100, 1e200])
def test_pairs_of_extreme_size_give_the_same_direction(size):
    s, y = torch.tensor([1.0, 2.0, -1.0]), torch.tensor([2.0, 5.0, -1.0])
    g = torch.tensor([1.0, -1.0, 3.0])
    plain = Pairs.first(pair(s.clone(), y.clone(), 1e-8)).times(g)
    far = Pairs.first(pair(s * size, y * size, 1e-8)).times(g)
    torch.testing.assert_close(far, plain, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("y", [[-1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [float("nan"), 1.0]])
def test_a_pair_without_positive_curvature_is_none(y):
    assert pair(torch.tensor([1.0, 0.0]), torch.tensor(y), 1e-8) is None


def valley(x):
    return ((1 - x[:-1]) ** 2 + 5 * (x[1:] - x[:-1] ** 2) ** 2).sum()


@pytest.mark.parametrize("memory", [99, 3])
def test_tau_is_the_curvature_found_over_the_curvature_expected(memory):
    """<s, B^-1 s> is solved for with the matrix B here; the method takes it from <g, p>."""
    x0 = torch.tensor([-0.6, 0.9, -0.3, 1.2], dtype=torch.float64)
    point = FunctionObjective(valley, x0).at(x0, 1)
    method, state = LazyStep(memory=memory), LazyState()
    for _ in range(12):
        before = state.pairs()
        new, step, after = method.step(point, state)
        if before is not None and step.product is None:
            s, y = point.x - state.x, point.grad - state.grad
            B = torch.stack([before.times(e) for e in torch.eye(4, dtype=torch.float64)])
            expected = float(s @ torch.linalg.solve(B, s))
            tolerance = 1e3 * EPS * float(torch.linalg.cond(B))
            assert after.taus[-1] == pytest.approx(min(1.0, float(s @ y) / expected), rel=tolerance)
        point, state = new, after


@pytest.mark.parametrize(("cuts", "tau"), [(0, 1.0), (4, 1.0), (5, 6.0), (9, 6.0)])
def test_tau_above_one_counts_after_five_deep_cuts(cuts, tau):
    """The curvature is 6 where the pairs expected 1: B is too large."""
    H = 6 * np.eye(2)
    before, point = dense(H, [1.0, 1.0]), dense(H, [0.9, 0.9])
    old = Pairs.first(pair(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]), 1e-8))
    state = replace(LazyState.after(before, Used(1.0, old)), cuts=cuts)
    _, step, after = LazyStep().step(point, state)
    assert after.taus == (1.0, pytest.approx(tau))
    assert after.cuts == (cuts + 1 if step.step_size < 0.3 else 0)


@pytest.mark.parametrize("cuts", [0, 9])
@pytest.mark.parametrize("memory", [99, "auto"])
def test_tau_above_one_counts_by_its_root_while_a_variable_is_held(memory, cuts):
    """As above, with a third variable that is held at 0."""
    x = torch.ones(3, dtype=torch.float64)
    low = torch.tensor([-math.inf, -math.inf, 0.0], dtype=torch.float64)
    f = FunctionObjective(lambda x: 3 * (x[:2] ** 2).sum() + x[2], x)
    objective = BoundedObjective(f, Box(low, torch.full_like(low, math.inf)))
    before, point = (objective.at(v * x.new_tensor([1, 1, 0]), 1) for v in (1, 0.9))
    unit = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    old = Pairs.first(pair(unit, unit.clone(), 1e-8))
    state = replace(LazyState.after(before, Used(1.0, old)), cuts=cuts)
    _, _, after = LazyStep(memory=memory).step(point, state)
    across = torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)  # to the step, which is (1, 1, 0)
    v = across if memory == 99 else across.numpy()
    assert float(v @ after.pairs().times(v)) == pytest.approx(2 / math.sqrt(6), rel=1e-12)


def test_deep_cuts_in_a_row_are_counted():
    x0 = torch.tensor([-0.6, 0.9, -0.3, 1.2], dtype=torch.float64)
    wells = lambda x: (1 - torch.cos(9 * x)).sum() + 0.1 * x.dot(x)  # noqa: E731
    point = FunctionObjective(wells, x0).at(x0, 1)
    state, counts, cuts = LazyState(), set(), 0
    for _ in range(8):
        point, step, state = LazyStep().step(point, state)
        cuts = cuts + 1 if step.step_size < 0.3 else 0
        assert state.cuts == cuts
        counts.add(cuts)
    assert {0, 1} <= counts


def basin(x):
    """Its curvature grows towards the minimum: B, from older steps, is too large."""
    weights = torch.tensor([1.0, 3.0, 9.0, 27.0], dtype=x.dtype)
    return (weights * torch.sqrt(1 + (x - x.mean() / 2) ** 2)).sum()


def test_steps_that_went_too_far_make_the_next_ones_shorter():
    """Where the minimum along B g was is found from the slopes here; the method uses curvatures."""
    x0 = torch.tensor([-9.0, 12.0, -6.0, 15.0], dtype=torch.float64)
    point = FunctionObjective(basin, x0).at(x0, 1)
    state, mean, taken, scales = LazyState(), 0.0, 1.0, []
    for k in range(15):
        new, step, after = LazyStep().step(point, state)
        assert step.product is None
        if k >= 2:
            s = point.x - state.x
            before, here = float(state.grad @ s), float(point.grad @ s)
            minimum = taken * before / (before - here)
            mean += 0.05 * (math.log(min(10.0, max(0.25, 1 / minimum))) - mean)
        if k >= 1:
            assert after.excess == pytest.approx(mean, rel=1e-6, abs=1e-9)
            assert step.scale == pytest.approx(math.exp(-max(0.0, mean)), rel=1e-6)
            scales.append(step.scale)
        taken = step.scale * step.step_size
        point, state = new, after
    assert min(scales) < 0.95
    assert max(scales) == 1


def test_textbook_lbfgs_takes_no_step_shorter():
    x0 = torch.tensor([-0.6, 0.9, -0.3, 1.2], dtype=torch.float64)
    result = minimize(basin, x0, method=LazyStep(self_scaled=False), max_iterations=9)
    assert {row.scale for row in result.history[1:-1]} == {1.0}


# The memory


def test_rows_are_never_written_to_and_two_futures_of_one_state_both_stay():
    rows, torn = None, []
    for k in range(40):
        shorter = rows
        rows = appended(rows, torch.full((5,), float(k)))
        if shorter is not None:  # another future of the same rows
            torn.append((appended(shorter, torch.full((5,), -1.0)), k))
        if len(rows) > 6:
            rows = rows[1:]
    assert rows[:, 0].tolist() == [34.0, 35.0, 36.0, 37.0, 38.0, 39.0]
    for other, k in torn:
        assert other[:, 0].tolist() == [*map(float, range(max(0, k - 6), k)), -1.0]


def test_most_rows_are_appended_without_a_copy():
    rows, copies = appended(None, torch.zeros(5)), 0
    for _ in range(300):
        longer = appended(rows[-100:], torch.zeros(5))
        copies += longer.untyped_storage().data_ptr() != rows.untyped_storage().data_ptr()
        rows = longer
        spare = rows.untyped_storage().nbytes() / (rows.stride(0) * rows.element_size())
        assert spare <= max(8, 1.25 * 101) + 1
    assert copies < 30


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 7, 16])
def test_rows_begin_where_blas_sums_alike(dtype, n):
    rows = appended(None, torch.ones(n, dtype=dtype))
    for _ in range(20):
        rows = appended(rows, torch.ones(n, dtype=dtype))[-9:]
        assert all(row.data_ptr() % 64 == 0 for row in rows)
        assert aligned(rows) is rows
    loaded = aligned(rows.clone()[1:])
    assert loaded.stride() == rows.stride()
    assert torch.equal(loaded, rows[1:])


@pytest.mark.parametrize("memory", [1, 2, 5])
def test_no_more_pairs_are_kept_than_asked_for(memory):
    x0 = torch.tensor([-1.2, 1.0, 0.3])
    result = minimize(valley, x0, method=LazyStep(memory=memory), gtol=0, max_iterations=9)
    assert [row.pairs for row in result.history[:-1]] == [min(k, memory) for k in range(9)]


@pytest.mark.parametrize(
    ("n", "max_bytes", "dtype", "room"),
    [
        (3, 2**27, torch.float64, (106, math.inf)),
        (1000, 2**27, torch.float64, (2100, math.inf)),
        (10**5, 2**27, torch.float64, (166, 83)),
        (10**5, 2**27, torch.float32, (167, math.inf)),
        (10**5, 1, torch.float64, (10, 0)),
    ],
)
def test_as_many_pairs_as_the_bytes_allow(n, max_bytes, dtype, room):
    x = torch.zeros(n, dtype=dtype)
    assert LazyStep(max_bytes=max_bytes)._room(x) == room
    assert LazyStep(memory=4, max_bytes=max_bytes)._room(x)[0] == 4


FULL = 5 * 2 * 11 * 8  # bytes of five pairs of eleven float64 variables


@pytest.mark.parametrize("memory", ["auto", 9])
def test_when_the_bytes_are_full_the_pairs_are_rounded_and_twice_as_many_fit(memory):
    x0 = torch.linspace(-1, 1, 11, dtype=torch.float64)
    run_ = Run(FunctionObjective(valley, x0), x0, LazyStep(memory=memory, max_bytes=FULL))
    most = 10 if memory == "auto" else memory
    for k in range(20):
        run_.advance(Limits())
        state = run_.snapshot().state
        if k > 0:
            assert len(state.S) == min(k, most)
            assert state.S.dtype is state.Y.dtype is (torch.float32 if k > 5 else torch.float64)
    assert run_.point.x.dtype is torch.float64


@pytest.mark.parametrize("size", [1e-150, 1.0, 1e150])
def test_rounded_pairs_give_the_direction_of_the_others_at_any_size_of_f(size):
    torch.manual_seed(0)
    A = torch.randn(30, 30, dtype=torch.float64)
    H = A @ A.T / 30 + torch.eye(30, dtype=torch.float64)
    pairs = None
    for _ in range(8):
        s = torch.randn(30, dtype=torch.float64)
        new = pair(s.clone(), size * (H @ s), 0.0)
        pairs = Pairs.first(new) if pairs is None else pairs.plus(new, 0.9, 100)
    v = size * torch.randn(30, dtype=torch.float64)
    exact, rounded = pairs.times(v), pairs.rounded().times(v)
    assert rounded.dtype is torch.float64
    # Eight well-conditioned pairs: R is a triangle of cosines with a diagonal above 0.5.
    assert float((rounded - exact).norm() / exact.norm()) < 1e3 * torch.finfo(torch.float32).eps


def test_a_run_with_rounded_pairs_meets_a_tolerance_far_below_float32():
    x0 = torch.linspace(-1, 1, 11, dtype=torch.float64)
    result = minimize(valley, x0, method=LazyStep(max_bytes=FULL), gtol=1e-11)
    assert result.success


@pytest.mark.parametrize(
    "method", [LazyStep(memory=6), LazyStep(memory=6, max_bytes=FULL - 1), LazyStep()]
)
def test_a_checkpoint_holds_the_rows_in_use_and_goes_on_to_the_same_bits(tmp_path, method):
    """Also where the pair of the next step is dropped, and after the oldest pairs were."""
    x0 = torch.linspace(-1, 1, 11, dtype=torch.float64)

    def started(resume=None):
        return Run(FunctionObjective(valley, x0), x0, method, resume)

    whole, path = started(), tmp_path / "run.npz"
    for stop in range(25):
        checkpoints.save(path, whole.snapshot(), Mark(1, 1))
        snapshot, _ = checkpoints.load(path, LazyState(), x0)
        if stop > 1 and method.memory == 6:
            assert snapshot.state.S.shape == (min(stop - 1, 6), 11)
        resumed = started(snapshot)
        for run_ in (whole, resumed):
            run_.advance(Limits())
        assert torch.equal(whole.point.x, resumed.point.x)
        assert torch.equal(whole.point.grad, resumed.point.grad)


@pytest.mark.parametrize("memory", [5, "auto"])
@pytest.mark.parametrize("carry", ["memory", "file"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_optimizer_resumes_to_the_same_bits(carry, dtype, memory):
    """torch converts the tensors of a state dict to the parameters' dtype: R's float64 numbers, and
    under parameters in float64 the pairs that were rounded to float32."""
    torch.manual_seed(0)
    data = torch.randn(12, 3, dtype=dtype), torch.randn(12, 2, dtype=dtype)
    method = LazyStep()
    if memory == 5:
        method = LazyStep(memory=5, max_bytes=2 * 3 * 26 * 8)  # three pairs in float64

    def build():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(dtype)
        return model, ScaledGD(model.parameters(), method=method, reuse_value=True)

    def steps(model, optimizer, count):
        closure = lambda: mse_loss(model(data[0]), data[1])  # noqa: E731
        return [optimizer.step(closure).item() for _ in range(count)]

    model, optimizer = build()
    steps(model, optimizer, 12)
    saved = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
    if carry == "file":
        file = io.BytesIO()
        torch.save(saved, file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
    again, fresh = build()
    again.load_state_dict(saved[0])
    fresh.load_state_dict(saved[1])
    assert steps(again, fresh, 9) == steps(model, optimizer, 9)


# The first step


def dense(H, x):
    return DensePoint(
        torch.from_numpy(np.array(x)),
        lambda z: z @ H @ z / 2,
        lambda z: H @ z,
        lambda z: H,
        order=1,
    )


def test_the_first_step_leads_to_the_minimum_of_a_parabola_with_minimum_0():
    point = dense(np.eye(2), [1.0, 1.0])
    new, step, state = LazyStep().step(point, LazyState())
    assert (step.product, step.curvature, step.step_size, step.trials) == (None, None, 1.0, 1)
    assert (step.pairs, step.scale) == (0, pytest.approx(1.0, rel=1e-14))
    torch.testing.assert_close(new.x, torch.zeros(2, dtype=torch.float64))
    assert new.order == 1
    assert (state.S, state.x) == (None, point.x)
    assert new.meter.oracle_calls == 4


def test_a_first_step_that_is_too_short_is_lengthened():
    """f = 1e-3 + |x - 100|^2/2 is too flat for 2|f|/|g| only where f is shifted down to near 0."""
    fun = lambda x: ((x - 100) ** 2).sum() / 2 - 4999.9  # noqa: E731
    result, xs = run(fun, torch.zeros(1, dtype=torch.float64), method=LazyStep(), gtol=1e-8)
    first = result.history[0]
    assert first.step_size > 100
    assert first.trials <= 6
    assert abs(float(xs[1]) - 100) < 100
    assert result.success


def test_where_f_starts_at_0_a_product_gives_the_first_length():
    fun = lambda x: ((x - 1) ** 2).sum() / 2 - 1.5  # noqa: E731
    result, _ = run(fun, torch.zeros(3, dtype=torch.float64), method=LazyStep(), gtol=1e-8)
    first = result.history[0]
    assert (first.product, first.curvature, first.step_size) == ("start", Curvature.SPC, 1.0)
    assert result.iterations == 1


# Products


def hills(x):
    return torch.cos(x).sum() + (x**2).sum() / 20 - 2  # 0 at x = (0, 0), nearly 0 near it


@pytest.mark.parametrize("product", ["auto", "double-backward", "difference"])
def test_a_product_costs_two_calls_and_the_passes_it_makes(product):
    x0 = torch.tensor([0.02, -0.01], dtype=torch.float64)
    objective = FunctionObjective(hills, x0, product=product, check=False)
    result = minimize(objective, x0, method=LazyStep(), gtol=1e-8)
    rows = result.history
    assert result.success
    assert {row.product for row in rows} == {"curvature", None}
    for row, after in itertools.pairwise(rows):
        asked = row.product is not None
        assert after.oracle_calls - row.oracle_calls == 1 + row.trials + 2 * asked
        passes = 1 + row.trials + asked * (4 if product == "double-backward" else 2)
        assert after.passes - row.passes == passes


def test_no_product_in_a_hundred_steps_of_a_convex_problem():
    h = torch.logspace(0, 4, 60, dtype=torch.float64)
    fun = lambda x: (h * x**2).sum() / 2 + torch.logsumexp(x, 0)  # noqa: E731
    x0 = torch.ones(60, dtype=torch.float64)
    result = minimize(fun, x0, method=LazyStep(memory=5), gtol=1e-3)
    assert result.success
    assert result.iterations > 100
    assert {row.product for row in result.history} == {None}
    units = [row for row in result.history[1:-1] if row.step_size == 1]
    assert len(units) > 0.6 * result.iterations


def test_negative_curvature_is_measured_and_tracked_forward():
    x0 = torch.tensor([0.02, -0.01], dtype=torch.float64)
    point = FunctionObjective(hills, x0).at(x0, 1)
    before = FunctionObjective(hills, x0).at(x0 / 2, 1)
    new, step, state = LazyStep().step(point, LazyState(before.x, before.grad))
    assert (step.product, step.curvature, step.scale) == ("curvature", Curvature.NC, 1.0)
    assert step.step_size > 1
    assert (state.S, new.value < point.value) == (None, True)


def test_forward_tracking_stops_in_the_first_valley():
    fun = lambda x: torch.cos(x).sum() - 1e-3 * x.sum()  # noqa: E731
    x0 = torch.tensor([0.05], dtype=torch.float64)
    point = FunctionObjective(fun, x0).at(x0, 1)
    state = LazyState(x0 - 0.01, point.grad + 0.01)  # the last step met negative curvature
    new, step, _ = LazyStep().step(point, state)
    assert (step.product, step.curvature) == ("curvature", Curvature.NC)
    assert step.step_size > 1
    assert float(new.x) < 2 * torch.pi


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
    assert (state.S, step.pairs) == (None, 0)
    g = H @ x
    np.testing.assert_allclose(new.x.numpy(), x - (g @ g) / (g @ H @ g) * g, rtol=1e-12)
    assert step.trials > 10


def test_a_first_step_that_no_trial_accepts_is_tried_again_with_a_product():
    """f is finite only within 1e-30 of x: no halving of 2|f|/|g| comes there."""
    x0 = torch.tensor([1e-30, 2e-30], dtype=torch.float64)
    fun = lambda x: 1 + torch.cosh(1e30 * x).sum()  # noqa: E731
    result = minimize(fun, x0, gtol=1e22)
    assert result.success
    assert result.history[0].product in (None, "search")


def test_a_direction_lost_to_overflow_is_replaced_by_the_gradient():
    point = dense(np.eye(2), [1.0, 1.0])
    u = torch.ones(2, dtype=torch.float64)
    wrong = Pairs.first(pair(u.clone(), u.clone(), 1e-8))
    wrong.R[0, 0] = 1e-310
    before = LazyState.after(dense(np.eye(2), [0.0, 2.0]), Used(1.0, wrong))
    new, step, state = LazyStep().step(point, before)
    assert step.product == "descent"
    assert state.S is None
    torch.testing.assert_close(new.x, torch.zeros(2, dtype=torch.float64))


def test_a_failed_step_leaves_the_state_as_it_was():
    x0 = torch.tensor([-0.6, 0.9], dtype=torch.float64)
    point = FunctionObjective(valley, x0).at(x0, 1)
    method, state = LazyStep(), LazyState()
    for _ in range(5):
        point, _, state = method.step(point, state)
    good = method.step(point, state)
    walled = DensePoint(
        point.x,
        lambda z: point.value + 1,
        lambda z: point.grad.numpy(),
        lambda z: np.eye(2),
        order=1,
    )
    walled._f = point.value
    same, step, after = method.step(walled, state)
    assert (same, after) == (walled, state)
    assert step.failure is Failure.GRADIENT
    again = method.step(point, state)
    assert torch.equal(again[0].x, good[0].x)


@given(problems(("convex quadratic", "softmax")))
def test_it_solves_convex_problems_from_anywhere(problem):
    result, _ = run(problem.fun, problem.x, method=LazyStep(), gtol=1e-7)
    assert result.success or result.status is Status.ROUNDING, result.message


@pytest.mark.parametrize(
    ("memory", "error"),
    [(0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError), ("all", ValueError)],
)
def test_a_bad_memory_is_refused(memory, error):
    with pytest.raises(error, match=r"`LazyStep\(memory=...\)` must be .*got"):
        LazyStep(memory=memory)


def test_a_bad_budget_is_refused():
    with pytest.raises(ValueError, match=r"`LazyStep\(max_bytes=...\)` must be .*got"):
        LazyStep(max_bytes=0)

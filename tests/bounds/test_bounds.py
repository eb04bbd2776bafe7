"""Bounds: inside exactly, the properties of the methods on the free variables, degenerate boxes."""

import itertools
import math
import warnings

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, nnls

import firstish
from firstish import FunctionObjective, LazyStep, PlaneStep, ScaledGradient
from firstish.bounds.bounded import BoundedObjective
from firstish.bounds.box import Box
from firstish.bounds.room import Room
from firstish.methods.quasi_newton import between_bounds
from firstish.methods.quasi_newton.between_bounds import FreeProducts
from firstish.methods.quasi_newton.curvature_pairs import (
    LARGE,
    LEAST,
    POSITIVE,
    FreePart,
    Pairs,
    pair,
)
from firstish.objectives.linear.families import LeastSquares

METHODS = ["lazy", "plane", "CGMR", "MR", "GM", "DY"]
EPS = torch.finfo(torch.float64).eps


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def inside(f, lower, upper):
    """f, which raises where it is evaluated outside of the bounds."""

    def call(x):
        assert bool(((x >= lower) & (x <= upper)).all()), f"evaluated at {x}"
        return f(x)

    return call


def quadratic(seed, n=20, condition=100.0):
    """A strictly convex quadratic, its Hessian and linear term."""
    random = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(n, n, generator=random))[0]
    H = Q @ torch.diag(torch.logspace(0, math.log10(condition), n)) @ Q.T
    H = (H + H.T) / 2
    b = H @ torch.randn(n, generator=random)
    return lambda x: x @ (H @ x) / 2 - b @ x, H, b


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("product", ["double-backward", "difference"])
def test_f_is_never_evaluated_outside(method, product):
    lower, upper = torch.full((6,), -0.5), torch.tensor([0.8, 2.0, 0.3, 0.8, 0.9, 0.1])
    f = inside(rosenbrock, lower, upper)
    start = torch.tensor([-0.5, 0.2, 0.3, -0.5, 0.0, 0.1])
    result = firstish.minimize(
        f, start, method=method, product=product, bounds=(lower, upper), max_iterations=200
    )
    x = result.x
    assert bool(((x >= lower) & (x <= upper)).all())
    assert result.value < rosenbrock(start)
    assert bool(((x == lower) | (x == upper)).any())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(3))
def test_the_minimum_of_a_quadratic_is_that_of_an_independent_solver(method, seed):
    f, H, b = quadratic(seed)
    result = firstish.minimize(f, torch.zeros(20), method=method, bounds=(-0.3, 0.4), gtol=1e-9)
    assert result.success
    # min |A x - c|^2 / 2 with A^T A = H, A^T c = b
    A = torch.linalg.cholesky(H).T
    exact = scipy.optimize.lsq_linear(
        A.numpy(), torch.linalg.solve(A.T, b).numpy(), (-0.3, 0.4), method="bvls", tol=1e-14
    )
    # An error of 1e-9 in the first-order conditions is one of 1e-9 / least eigenvalue (1) in x.
    assert np.abs(result.x.numpy() - exact.x).max() < 1e-7


@pytest.mark.parametrize("method", METHODS)
def test_the_first_order_conditions_hold_at_the_end(method):
    f, H, b = quadratic(7, condition=1000.0)
    result = firstish.minimize(f, torch.zeros(20), method=method, bounds=(-0.2, 0.2), gtol=1e-8)
    x, g = result.x, H @ result.x - b
    assert result.success
    projected = torch.clamp(x - g, -0.2, 0.2) - x
    assert result.grad_norm == pytest.approx(float(projected.norm()), rel=1e-3, abs=1e-12)
    assert bool((g[x == -0.2] > -1e-8).all())
    assert bool((g[x == 0.2] < 1e-8).all())
    free = (x > -0.2) & (x < 0.2)
    assert float(g[free].norm()) <= 1e-8 * 1.01


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bound", [1e6, math.inf])
def test_bounds_that_are_never_active_change_no_bit(method, bound):
    start = torch.tensor([-1.2, 1.0, 0.5, -0.3])
    plain = firstish.minimize(rosenbrock, start, method=method, max_iterations=60)
    boxed = firstish.minimize(
        rosenbrock, start, method=method, max_iterations=60, bounds=(-bound, bound)
    )
    assert torch.equal(plain.x, boxed.x)
    assert [row.value for row in plain.history] == [row.value for row in boxed.history]
    assert [row.oracle_calls for row in plain.history] == [
        row.oracle_calls for row in boxed.history
    ]
    assert {row.active for row in boxed.history} == ({None} if bound == math.inf else {0})
    assert {row.active for row in plain.history} == {None}


def test_bounds_that_are_never_active_change_no_bit_of_large_pairs():
    """Where S is large, the lazy step reads it once for the new pair and for the gradient."""
    start = torch.linspace(-1, 1, LARGE // 4)
    weights = torch.linspace(1, 3, len(start))
    f = lambda x: (weights * torch.log(torch.cosh(x - 0.3 * x.roll(1)))).sum()  # noqa: E731
    ends = [
        firstish.minimize(f, start, max_iterations=9, gtol=0, bounds=bounds).x
        for bounds in (None, (-50, 50))
    ]
    assert torch.equal(*ends)


@pytest.mark.parametrize("method", METHODS)
def test_the_active_set_is_found_after_finitely_many_steps(method):
    f, _, _ = quadratic(3)
    result = firstish.minimize(f, torch.zeros(20), method=method, bounds=(-0.3, 0.4), gtol=1e-8)
    active = [row.active for row in result.history]
    at_end = int(((result.x == -0.3) | (result.x == 0.4)).sum())
    assert active[-1] == at_end > 0
    settled = next(k for k in range(len(active)) if set(active[k:]) == {at_end})
    assert settled < len(active)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 8),
    method=st.sampled_from(METHODS),
    share=st.floats(0, 1),
)
def test_f_never_rises_and_x_stays_inside_on_random_quadratics(seed, n, method, share):
    f, _, _ = quadratic(seed, n)
    random = torch.Generator().manual_seed(seed)
    lower = torch.randn(n, generator=random)
    width = torch.rand(n, generator=random) * (torch.rand(n, generator=random) > share)
    upper = lower + width
    start = torch.clamp(torch.randn(n, generator=random), lower, upper)
    result = firstish.minimize(
        inside(f, lower, upper), start, method=method, bounds=(lower, upper), max_iterations=300
    )
    values = [row.value for row in result.history]
    noise = 10 * EPS * max(map(abs, values))
    assert all(b <= a + noise for a, b in itertools.pairwise(values))
    assert result.status.name in ("CONVERGED", "ROUNDING")


@given(seed=st.integers(0, 10**6), scaling=st.sampled_from(["CG", "MR", "GM"]))
def test_the_paper_s_properties_hold_on_the_free_variables(seed, scaling):
    """MR <= GM <= CG, second-order descent <g,p> + <p,Hp> <= 0, and the unit step, over them."""
    f, H, b = quadratic(seed, 8)
    random = torch.Generator().manual_seed(seed)
    x = torch.where(torch.rand(8, generator=random) < 0.5, 0.0, torch.rand(8, generator=random))
    box = Box(torch.zeros(8), torch.full((8,), math.inf))
    point = BoundedObjective(FunctionObjective(f, x, check=False), box).at(x)
    g = H @ x - b
    free = (x > 0) | (g <= 0)
    if not bool(free.any()):
        return
    block, g_free = H[free][:, free], g[free]
    _, step, _ = ScaledGradient(scaling=scaling).step(point, ScaledGradient().init(point))
    gg, gHg = g_free @ g_free, g_free @ block @ g_free
    HgHg = (block @ g_free) @ (block @ g_free)
    expected = {"CG": gg / gHg, "MR": gHg / HgHg, "GM": (gg / HgHg).sqrt()}[scaling]
    assert step.scale == pytest.approx(float(expected), rel=1e-9)
    assert step.active == int((~free).sum())
    assert step.descent_margin <= 1e-9 * float(gg * expected)


def test_the_direction_of_the_lazy_step_is_newton_s_on_the_free_variables():
    """With as many pairs as free variables, of steps among these, B is the inverse of the block."""
    f, H, b = quadratic(1, 8, condition=10.0)
    lower = torch.full((8,), -math.inf)
    lower[:3] = 1e3  # at their bounds and held all the time, whatever the others do
    start = torch.where(torch.isfinite(lower), 1e3, 0.0)
    result = firstish.minimize(f, start, bounds=(lower, None), gtol=1e-6)
    assert {row.active for row in result.history} <= {0, 1, 2, 3}
    held = result.x == lower
    x = result.x.clone()
    free = ~held
    x[free] = torch.linalg.solve(H[free][:, free], (b - H[:, held] @ lower[held])[free])
    assert torch.allclose(result.x, x, rtol=1e-8)


@pytest.mark.parametrize("cheap", [0, 10**6])
def test_the_pairs_over_the_free_variables_are_those_of_the_block(cheap, monkeypatch):
    """BFGS from the free parts of the pairs, in all ways to compute R."""
    monkeypatch.setattr(between_bounds, "CHEAP", cheap)
    _, H, _ = quadratic(4, 9)
    random = torch.Generator().manual_seed(0)
    for size in (3, 6):  # of the free part
        free = torch.arange(9) < size
        pairs = small = None
        for k in range(5):
            s = torch.randn(9, generator=random)
            s = s * free if k > 1 else s  # older steps have moved held variables too
            y = H @ s
            new = pair(s.clone(), y.clone(), POSITIVE)
            part = pair(s[free].clone(), y[free].clone(), POSITIVE)
            pairs = Pairs.first(new) if pairs is None else pairs.plus(new, 0.5, 9)
            if part is not None:
                small = Pairs.first(part) if small is None else small.plus(part, 0.5, 9)
        g = torch.randn(9, generator=random)
        for scaled in (True, False):
            here = FreeProducts.over(free.to(g.dtype), pairs, None)
            part = FreePart.of(here.free, here.R, here.shares, EPS)
            found = pairs.times(g * free, scaled, part)
            assert not found[~free].any()
            assert torch.allclose(found[free], small.times(g[free], scaled), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("memory", [3, 20])
@pytest.mark.parametrize("cheap", [0, 10**6])
def test_the_products_over_the_free_variables_follow_pairs_and_bounds(memory, cheap, monkeypatch):
    """Row by row and column by column they are those computed anew, also once pairs are dropped."""
    monkeypatch.setattr(between_bounds, "CHEAP", cheap)
    random = torch.Generator().manual_seed(1)
    H = quadratic(2, 12)[1]
    pairs = known = None
    free = torch.rand(12, generator=random) < 0.5
    for k in range(15):
        s = torch.randn(12, generator=random)
        new = pair(s, H @ s, POSITIVE)
        pairs = Pairs.first(new) if pairs is None else pairs.plus(new, 0.5, memory)
        known = None if known is None else known.plus_newest(pairs)
        if k % 3 == 0:  # some are held and some released, one or nearly all
            free = free ^ (torch.rand(12, generator=random) < (0.1 if k % 2 else 0.8))
        known = FreeProducts.over(free.to(s.dtype), pairs, known)
        exact = (pairs.Y[:, free] @ pairs.S[:, free].T).tril()
        assert torch.equal(known.free, free.to(s.dtype))
        assert np.allclose(np.tril(known.R), exact, rtol=0, atol=15 * 12 * EPS)
        shares = (pairs.S[:, free] ** 2).sum(1)
        assert np.allclose(known.shares, shares, rtol=0, atol=15 * 12 * EPS)


def test_a_pair_of_held_variables_is_omitted():
    """y_F of a step that moved mostly others is not H_FF s_F: here it shows a tenth of it."""
    free = torch.tensor([1.0, 1.0, 0.0])
    clean = pair(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([2.0, 0.0, 1.0]), POSITIVE)
    other = pair(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([0.0, 0.2, 20.0]), POSITIVE)
    pairs = Pairs.first(clean).plus(other, 1.0, 5)
    known = FreeProducts.over(free, pairs, None)
    part = FreePart.of(free, known.R, known.shares, EPS)
    assert np.isinf(part.R.diagonal()).tolist() == [False, True]
    found = pairs.times(torch.tensor([1.0, 1.0, 0.0]), True, part)
    assert found.tolist() == pytest.approx([0.5, 0.5, 0.0])


def test_an_old_pair_counts_only_if_the_free_variables_moved_alone():
    H = quadratic(6, 30)[1]
    random = torch.Generator().manual_seed(2)
    free = (torch.arange(30) < 25).to(torch.float64)
    pairs, alone = None, []
    for k in range(LEAST + 8):
        s = torch.randn(30, generator=random)
        alone.append(k % 2 == 0)
        s = s * free if alone[-1] else s
        new = pair(s, H @ s, POSITIVE)
        pairs = Pairs.first(new) if pairs is None else pairs.plus(new, 1.0, 99)
    known = FreeProducts.over(free, pairs, None)
    assert float(known.shares.min()) > 0.5
    part = FreePart.of(free, known.R, known.shares, EPS)
    assert np.isfinite(part.R.diagonal()).tolist() == alone[:-LEAST] + [True] * LEAST


def test_pairs_rounded_to_float32_between_bounds():
    """Six pairs fill the memory; the products over the free variables go on in float32."""
    f, _, _ = quadratic(8)
    method = LazyStep(memory=30, max_bytes=6 * 2 * 20 * 8)
    result = firstish.minimize(
        f, torch.zeros(20), method=method, bounds=(-0.3, 0.4), gtol=1e-8, max_iterations=300
    )
    assert result.success
    assert max(row.pairs for row in result.history[:-1]) > 6
    assert max(row.active for row in result.history[:-1]) > 0
    exact = firstish.minimize(f, torch.zeros(20), bounds=(-0.3, 0.4), gtol=1e-8)
    assert float((result.x - exact.x).abs().max()) < 1e-7  # the least eigenvalue is 1


class TestDegenerate:
    @pytest.mark.parametrize("method", METHODS)
    def test_all_bounds_equal(self, method):
        x = torch.tensor([0.3, -1.0])
        result = firstish.minimize(rosenbrock, x, method=method, bounds=(x, x))
        assert result.success
        assert torch.equal(result.x, x)
        assert result.iterations == 0

    @pytest.mark.parametrize("method", METHODS)
    def test_some_bounds_equal(self, method):
        f = lambda x: ((x - torch.tensor([1.0, 2.0, 3.0])) ** 2).sum() + x[0] * x[1]  # noqa: E731
        result = firstish.minimize(
            f,
            torch.full((3,), 0.5),
            method=method,
            bounds=([-5, 0.5, -5], [5, 0.5, 5]),
            gtol=1e-10,
        )
        assert result.success
        assert result.x[1] == 0.5
        assert result.x.tolist() == pytest.approx([0.75, 0.5, 3.0], abs=1e-9)

    @pytest.mark.parametrize("method", METHODS)
    def test_a_gradient_below_the_rounding_of_x_holds_too(self, method):
        result = firstish.minimize(
            lambda x: 1e-7 * x.sum(), [1e10], method=method, bounds=(1e10, None), gtol=1e-9
        )
        assert (result.success, result.iterations, result.history[-1].active) == (True, 0, 1)

    @pytest.mark.parametrize("method", METHODS)
    def test_a_vertex_that_is_the_solution(self, method):
        f = lambda x: (x * torch.tensor([1.0, -2.0])).sum()  # noqa: E731
        result = firstish.minimize(f, torch.tensor([0.0, 1.0]), method=method, bounds=(0, 1))
        assert result.success
        assert result.iterations == 0

    @pytest.mark.parametrize("method", METHODS)
    def test_a_vertex_that_is_not(self, method):
        f = lambda x: ((x - torch.tensor([0.5, 2.0])) ** 2).sum()  # noqa: E731
        result = firstish.minimize(f, torch.tensor([1.0, 0.0]), method=method, bounds=(0, 1))
        assert result.success
        assert result.x.tolist() == pytest.approx([0.5, 1.0], abs=1e-6)

    @pytest.mark.parametrize("method", METHODS)
    def test_a_solution_with_zero_multipliers(self, method):
        f = lambda x: (x**2).sum() + (x[0] - x[1]) ** 2  # noqa: E731
        result = firstish.minimize(f, torch.ones(2), method=method, bounds=(0, None), gtol=1e-10)
        assert result.success
        assert float(result.x.abs().max()) <= 1e-9

    @pytest.mark.parametrize("method", METHODS)
    def test_one_variable(self, method):
        result = firstish.minimize(lambda x: (x - 2) ** 2, 0.0, method=method, bounds=(-1, 1.5))
        assert result.success
        assert result.x == 1.5

    @pytest.mark.parametrize("method", METHODS)
    def test_a_linear_f_goes_to_its_corner_and_stops(self, method):
        f = lambda x: (x * torch.tensor([1.0, -2.0, 3.0])).sum()  # noqa: E731
        result = firstish.minimize(f, torch.full((3,), 0.4), method=method, bounds=(0, 1))
        assert result.success
        assert result.x.tolist() == [0, 1, 0]

    @pytest.mark.parametrize("method", METHODS)
    def test_negative_curvature_ends_at_the_bounds(self, method):
        f = inside(lambda x: -(x**2).sum(), torch.tensor(-1.0), torch.tensor(2.0))
        result = firstish.minimize(f, torch.tensor([0.1, -0.1]), method=method, bounds=(-1, 2))
        assert result.success
        assert result.x.tolist() == [2, -1]
        assert result.oracle_calls < 100


class TestForms:
    @pytest.mark.parametrize(
        "bounds",
        [
            (0, [1, 0.5]),
            (0, np.array([1.0, 0.5])),
            (torch.zeros(2), torch.tensor([1.0, 0.5])),
            [(0, 1), (0, 0.5)],
            Bounds([0, 0], [1, 0.5]),
            (None, [1, 0.5]),
        ],
    )
    def test_the_forms_of_bounds(self, bounds):
        f = lambda x: ((x - 2) ** 2).sum()  # noqa: E731
        result = firstish.minimize(f, torch.full((2,), 0.2), bounds=bounds)
        assert result.success
        assert result.x.tolist() == [1, 0.5]

    def test_a_structure(self):
        f = lambda p: (p["a"] - 3) ** 2 + ((p["b"] + 1) ** 2).sum()  # noqa: E731
        result = firstish.minimize(
            f, {"a": 0.0, "b": [1.0, 2.0]}, bounds=({"a": None, "b": 0}, {"a": 1, "b": None})
        )
        assert result.x["a"] == 1
        assert result.x["b"].tolist() == [0, 0]

    def test_a_start_outside_is_moved_inside_with_a_warning(self):
        f = inside(lambda x: (x**2).sum(), torch.tensor(1.0), torch.tensor(2.0))
        with pytest.warns(UserWarning, match="x0 outside of the bounds"):
            result = firstish.minimize(f, torch.tensor([5.0, 0.0]), bounds=(1, 2))
        assert result.x.tolist() == [1, 1]

    @pytest.mark.parametrize(
        ("bounds", "words"),
        [
            ((1, 0), "lower one must not be above"),
            (([0, math.nan], 1), "has a NaN"),
            (([0, 0, 0], 1), "shape"),
            ((math.inf, None), "excludes every number"),
            ([(0, 1)], "has 1 pairs, but x has 2 entries"),
            ("01", "must be a tuple"),
            ((0, 1, 2), "must be a tuple"),
            ({"a": 1}, "must be a tuple"),
        ],
    )
    def test_wrong_bounds_are_errors_at_the_call(self, bounds, words):
        calls = []
        f = lambda x: calls.append(1) or (x**2).sum()  # noqa: E731
        with pytest.raises(ValueError, match=words):
            firstish.minimize(f, torch.zeros(2), bounds=bounds)
        assert not calls

    def test_a_method_without_bounds_says_so(self):
        with pytest.raises(TypeError, match="FixedStep does not support bounds"):
            firstish.minimize(
                rosenbrock,
                torch.zeros(2),
                bounds=(0, 1),
                method=firstish.baselines.FixedStep(step_size=1e-3),
            )


class TestEverywhere:
    def test_float32(self):
        f, _, _ = quadratic(2)
        exact = firstish.minimize(f, torch.zeros(20), bounds=(-0.3, 0.4), gtol=1e-9)
        Hb = quadratic(2)[1:]
        H, b = (t.float() for t in Hb)
        g = lambda x: x @ (H @ x) / 2 - b @ x  # noqa: E731
        result = firstish.minimize(
            g, torch.zeros(20, dtype=torch.float32), bounds=(-0.3, 0.4), gtol=1e-3
        )
        assert result.success
        assert result.x.dtype == torch.float32
        low, high = torch.tensor(-0.3, dtype=torch.float32), torch.tensor(0.4, dtype=torch.float32)
        assert bool(((result.x >= low) & (result.x <= high)).all())
        assert float((result.x.double() - exact.x).abs().max()) < 1e-2

    @pytest.mark.parametrize("method", ["lazy", "CGMR"])
    def test_non_negative_least_squares_of_a_linear_model(self, method):
        random = np.random.default_rng(0)
        A = random.standard_normal((40, 15))
        y = A @ np.maximum(random.standard_normal(15), 0) + 0.1 * random.standard_normal(40)
        model = firstish.LinearModel(torch.from_numpy(A), torch.from_numpy(y), LeastSquares())
        result = firstish.minimize(
            model, torch.zeros(15), method=method, bounds=(0, None), gtol=1e-9
        )
        assert result.success
        exact, _ = nnls(A, y)
        assert np.abs(result.x.numpy() - exact).max() < 1e-6
        assert ((result.x.numpy() == 0) == (exact == 0)).all()

    def test_a_finite_sum(self):
        torch.manual_seed(0)
        X = torch.randn(50, 4)
        y = X @ torch.tensor([1.0, -1.0, 0.5, -0.2])
        model = torch.nn.Linear(4, 1)
        whole = lambda m: ((m(X)[:, 0] - y) ** 2).mean()  # noqa: E731
        other = torch.nn.Linear(4, 1)
        other.load_state_dict(model.state_dict())
        loss = lambda out, t: ((out[:, 0] - t) ** 2).mean()  # noqa: E731
        sum_ = firstish.FiniteSum(model, loss, (X, y), chunk_size=13)
        for net in (model, other):
            net.weight.data.abs_()
            net.bias.data.abs_()
        one = firstish.minimize(sum_, model, bounds=(0, None), gtol=1e-9)
        two = firstish.minimize(whole, other, bounds=(0, None), gtol=1e-9)
        assert one.success
        assert two.success
        assert torch.allclose(one.x, two.x, atol=1e-7)
        assert bool((model.weight >= 0).all())
        assert bool((one.x == 0).any())

    def test_the_change_of_the_loss_is_seen_in_the_message(self):
        result = firstish.minimize(rosenbrock, torch.zeros(2), bounds=(0, 0.5))
        assert result.success
        assert result.x.tolist() == pytest.approx([0.5, 0.25])


@pytest.mark.parametrize("method", [LazyStep(), PlaneStep(), ScaledGradient()])
def test_a_run_between_bounds_resumes_to_the_same_bits(method):
    from firstish.loop import Limits, Run

    f, _, _ = quadratic(5)
    box = Box(torch.full((20,), -0.3), torch.full((20,), 0.4))

    def fresh(resume=None):
        inner = FunctionObjective(f, torch.zeros(20))
        return Run(BoundedObjective(inner, box), torch.zeros(20), method, resume)

    whole, first = fresh(), fresh()
    for _ in range(12):
        whole.advance(Limits())
    for _ in range(5):
        first.advance(Limits())
    second = fresh(first.snapshot())
    for _ in range(7):
        second.advance(Limits())
    assert torch.equal(whole.point.x, second.point.x)
    assert whole.point.value == second.point.value


def test_no_warning_for_a_start_on_the_boundary():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        firstish.minimize(rosenbrock, torch.zeros(2), bounds=(0, 1), max_iterations=3)


def decay(p, unit=1e-7):
    """Misfit of an amplitude in small units; least at 3 of them."""
    t = torch.linspace(0, 1, 20)
    return (((p[0] / unit - 3) * torch.exp(-t)) ** 2).sum()


class TestProjectedGradient:
    def test_a_variable_in_small_units_is_not_at_its_bound(self):
        result = firstish.minimize(decay, [9e-7], bounds=(0, None))
        assert result.iterations > 0
        assert result.x == pytest.approx([3e-7], rel=1e-6)

    @pytest.mark.parametrize("seed", range(20))
    def test_it_is_never_below_the_projected_step_nor_above_the_gradient(self, seed):
        random = torch.Generator().manual_seed(seed)
        low, wide, where, g = torch.rand(4, 50, generator=random).unbind()
        g = (g - 0.5) * 10 ** (8 * torch.rand(50, generator=random) - 4)
        box = Box(low, low + wide)
        x = low + where.round(decimals=1) * wide
        x = box.project(x)
        step = torch.clamp(-g, box.lower - x, box.upper - x)
        entries = box.projected_gradient(step, g)
        step = step.abs()
        assert bool((entries >= step).all())
        assert bool((entries <= g.abs()).all())
        assert torch.equal(entries == 0, step == 0)
        inside = step == g.abs()
        assert torch.equal(entries[inside], g.abs()[inside])
        # What a step to the bound gains, to first order, is at most the entry or |g_i| is.
        assert bool(((entries >= g.abs() * step) | (entries == g.abs())).all())

    def test_an_infinite_slope_at_the_bound_counts_as_0(self):
        box = Box(torch.zeros(2), torch.full((2,), torch.inf))
        room = Room.at(torch.tensor([0.0, 0.5]), torch.tensor([torch.inf, 2.0]), box)
        assert room.g.tolist() == [0, 2]
        assert room.optimality == 1  # of the second: 0.5 to the bound, times its slope

    @pytest.mark.parametrize("method", ["lazy", "CGMR", "plane"])
    @pytest.mark.parametrize("size", [1e-200, 1e160, 1e300])
    @pytest.mark.parametrize("upper", [None, 1, 0.7])
    def test_a_gradient_of_extreme_size_brings_no_warning(self, method, size, upper):
        """Warnings are errors here. The first variable is held, and the last bounds are active."""
        target = torch.tensor([0.9, 0.9, 0.9])
        result = firstish.minimize(
            lambda x: size * (((x - target) ** 2).sum() + 4 * x[0]),
            torch.tensor([0.0, 0.5, 0.5]),
            bounds=(0, upper),
            method=method,
            gtol=0.0,
            gtol_rel=1e-6,
        )
        assert result.success
        end = 0.9 if upper != 0.7 else 0.7
        assert result.x.tolist() == pytest.approx([0, end, end], rel=1e-5)

    def test_the_message_says_so(self):
        result = firstish.minimize(rosenbrock, [0.1, 0.1], bounds=(0, 0.5))
        assert result.message.startswith("The projected gradient norm is at most gtol.")
        assert "|projected gradient| =" in result.message
        assert "|projected gradient|" in result._repr_html_()
        free = firstish.minimize(rosenbrock, [0.1, 0.1])
        assert "projected" not in free.message + free._repr_html_()

    def test_a_run_without_an_iteration_says_what_to_check(self):
        for bounds in (None, (0, None)):
            result = firstish.minimize(lambda x: 1e-9 * ((x - 3) ** 2).sum(), [1.0], bounds=bounds)
            assert (result.iterations, result.success) == (0, True)
            assert "x0 meets gtol=1e-06 already" in result.message
            assert "gtol_rel=1e-8" in result.message
        assert not firstish.minimize(lambda x: (x**2).sum(), [0.0]).advice


class TestScipy:
    @pytest.mark.parametrize("bounds", [((0, 0.5), (None, 0.1)), Bounds([0, -np.inf], [0.5, 0.1])])
    def test_bounds_as_scipy_documents_them(self, bounds):
        ours = scipy.optimize.minimize(
            scipy.optimize.rosen,
            [0.1, 0.0],
            jac=scipy.optimize.rosen_der,
            bounds=bounds,
            method=firstish.scipy_method,
        )
        theirs = scipy.optimize.minimize(
            scipy.optimize.rosen,
            [0.1, 0.0],
            jac=scipy.optimize.rosen_der,
            bounds=bounds,
            method="L-BFGS-B",
        )
        assert ours.success
        assert ours.x == pytest.approx(theirs.x, abs=1e-5)
        assert ours.fun <= theirs.fun + 1e-10

    def test_bounds_that_scipy_has_used_bring_no_warning(self):
        bounds = Bounds(0, np.inf)
        scipy.optimize.minimize(scipy.optimize.rosen, [0.1, 0.0], bounds=bounds, method="L-BFGS-B")
        read_only = np.zeros(2)
        read_only.flags.writeable = False
        for box in (bounds, (read_only, None)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                result = firstish.minimize(rosenbrock, torch.tensor([0.1, 0.0]), bounds=box)
            assert result.success

    def test_f_is_never_evaluated_outside_without_a_gradient(self):
        def f(x):
            assert (x >= 0).all()
            assert (x <= 1).all()
            return np.sqrt(x[0]) + (x[1] - 2) ** 2 + x[0]

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = scipy.optimize.minimize(
                f, [0.5, 0.5], bounds=[(0, 1), (0, 1)], method=firstish.scipy_method
            )
        assert found.x == pytest.approx([0, 1], abs=1e-4)

    @pytest.mark.parametrize("differences", ["2-point", "3-point", "cs"])
    @pytest.mark.parametrize("eps", [None, [1e-7, 1e-8]])
    def test_a_fixed_variable_needs_no_difference(self, differences, eps):
        calls = []

        def f(x):
            calls.append(x[0])
            return ((x - 0.5) ** 2).sum()

        options = {"finite_diff_method": differences, "eps": eps}
        found = scipy.optimize.minimize(
            f,
            [0.2, 0.1],
            bounds=[(0.2, 0.2), (0, 1)],
            method=firstish.scipy_method,
            options=options,
        )
        assert found.success
        assert found.x == pytest.approx([0.2, 0.5], abs=1e-5)
        assert set(calls) == {0.2}

    def test_every_variable_fixed_without_a_gradient(self):
        found = scipy.optimize.minimize(
            lambda x: ((x - 0.5) ** 2).sum(),
            [0.2, 0.2],
            bounds=[(0.2, 0.2)] * 2,
            method=firstish.scipy_method,
        )
        assert found.success
        assert (found.nit, found.x.tolist(), found.jac.tolist()) == (0, [0.2, 0.2], [0, 0])


class TestScaledGD:
    @pytest.mark.parametrize("method", [None, "CGMR", "plane"])
    @pytest.mark.parametrize("reuse", [False, True])
    def test_groups_with_bounds(self, method, reuse):
        a, b = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.zeros(2))

        def loss():
            assert bool((a >= 0).all())
            return ((a + 1) ** 2).sum() + ((b - 3) ** 2).sum() + a[0] * b[0]

        groups = [{"params": [a], "bounds": (0, None)}, {"params": [b], "bounds": (None, 2)}]
        optimizer = firstish.ScaledGD(groups, method=method, reuse_value=reuse)
        for _ in range(30):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it does not move at the minimum
                optimizer.step(loss)
        assert a.tolist() == [0, 0]
        assert b.tolist() == [2, 2]
        assert optimizer.last_step.active == 4

    def test_a_group_added_later_is_treated_like_the_first_ones(self):
        a, b = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
        optimizer = firstish.ScaledGD([a])
        with pytest.warns(UserWarning, match=r"moved them to the bounds \(params\[1\]\[0\] is 1"):
            optimizer.add_param_group({"params": [b], "bounds": (0, 0.5)})
        assert b.tolist() == [0.5, 0.5]
        optimizer.step(lambda: ((a + 1) ** 2).sum() + ((b - 3) ** 2).sum())
        assert b.tolist() == [0.5, 0.5]
        assert optimizer.last_step.active == 2

    @pytest.mark.parametrize("bounds", [(1, 0), (math.nan, 1), ([0, 0, 0], None), "junk"])
    def test_wrong_bounds_of_a_group_added_later_leave_the_optimizer_as_it_was(self, bounds):
        a, b = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
        optimizer = firstish.ScaledGD([a])
        with pytest.raises((TypeError, ValueError), match=r"[Bb]ounds"):
            optimizer.add_param_group({"params": [b], "bounds": bounds})
        optimizer.step(lambda: ((a + 1) ** 2).sum() + ((b - 3) ** 2).sum())
        assert b.tolist() == [1, 1]
        assert len(optimizer.param_groups) == 1

    def test_the_steps_are_those_of_minimize(self):
        start = torch.tensor([-0.5, 0.2, 0.3])
        x = torch.nn.Parameter(start.clone())
        optimizer = firstish.ScaledGD([{"params": [x], "bounds": (-0.5, 0.6)}])
        for _ in range(8):
            optimizer.step(lambda: rosenbrock(x))
        result = firstish.minimize(rosenbrock, start, bounds=(-0.5, 0.6), max_iterations=8)
        assert torch.equal(x.detach(), result.x)

    def test_bounds_that_are_never_active_change_no_bit(self):
        ends = []
        for bounds in (None, (-1e6, 1e6)):
            x = torch.nn.Parameter(torch.tensor([-1.2, 1.0]))
            optimizer = firstish.ScaledGD([{"params": [x], "bounds": bounds}])
            for _ in range(10):
                optimizer.step(lambda x=x: rosenbrock(x))
            ends.append(x.detach())
        assert torch.equal(*ends)

    def test_parameters_outside_are_moved_with_a_warning(self):
        x = torch.nn.Parameter(torch.tensor([-1.0, 2.0]))
        with pytest.warns(UserWarning, match="moved them to the bounds"):
            optimizer = firstish.ScaledGD([{"params": [x], "bounds": (0, 1)}])
        assert x.tolist() == [0, 1]
        with torch.no_grad():
            x.fill_(5)
        with pytest.raises(ValueError, match="outside of the bounds"):
            optimizer.step(lambda: (x**2).sum())

    def test_the_state_resumes_to_the_same_bits(self):
        def begin():
            x = torch.nn.Parameter(torch.tensor([-0.5, 0.2, 0.3]))
            return x, firstish.ScaledGD([{"params": [x], "bounds": (-0.5, 0.6)}])

        x, optimizer = begin()
        for _ in range(4):
            optimizer.step(lambda: rosenbrock(x))
        y, other = begin()
        with torch.no_grad():
            y.copy_(x)
        other.load_state_dict(optimizer.state_dict())
        for _ in range(4):
            optimizer.step(lambda: rosenbrock(x))
            other.step(lambda: rosenbrock(y))
        assert torch.equal(x, y)

    @pytest.mark.parametrize("bounds", [(1, 0), "ab", (0, [1, 2, 3])])
    def test_wrong_bounds_are_errors_at_construction(self, bounds):
        x = torch.nn.Parameter(torch.zeros(2))
        with pytest.raises(ValueError, match="bounds"):
            firstish.ScaledGD([{"params": [x], "bounds": bounds}])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("targets", [1, 2])
def test_ridge_with_positive_coefficients(intercept, targets):
    from sklearn.linear_model import Ridge

    from firstish.sklearn import ScaledRidge

    random = np.random.default_rng(0)
    X = random.standard_normal((60, 8))
    y = X @ random.standard_normal((8, targets)) + 0.1 * random.standard_normal((60, targets)) + 1
    y = y[:, 0] if targets == 1 else y
    ours = ScaledRidge(alpha=0.5, positive=True, fit_intercept=intercept, tol=1e-9).fit(X, y)
    assert (ours.coef_ >= 0).all()
    assert (ours.coef_ == 0).any()
    for k in range(targets):
        theirs = Ridge(alpha=0.5, positive=True, fit_intercept=intercept, tol=1e-10).fit(
            X, y if targets == 1 else y[:, k]
        )
        coef = ours.coef_ if targets == 1 else ours.coef_[k]
        assert coef == pytest.approx(theirs.coef_, abs=1e-6)


class TestWhatUsersPass:
    def test_two_pairs_in_a_tuple_are_ambiguous_for_two_variables(self):
        f = lambda x: ((x - 0.5) ** 2).sum()  # noqa: E731
        with pytest.raises(ValueError, match=r"may mean a pair .* `\[\(0, 1\), \(0, 1\)\]`"):
            firstish.minimize(f, [0.2, 0.2], bounds=((0, 1), (0, 1)))
        for clear in ([(0, 1), (0, 1)], ([0, 0], [1, 1]), (0, 1)):
            assert firstish.minimize(f, [0.2, 0.2], bounds=clear).x == pytest.approx([0.5, 0.5])

    @pytest.mark.parametrize(
        "bounds",
        [
            ([0, None, 0], [None, 5, 1]),
            ((0, None), (None, 5), (0, 1)),
            np.array([[0, np.inf], [-np.inf, 5], [0, 1]]),
            zip([0, None, 0], [None, 5, 1], strict=True),
        ],
    )
    def test_none_in_lists_and_pairs_in_tuples_arrays_and_iterators(self, bounds):
        f = lambda x: ((x - torch.tensor([-3.0, 7.0, 0.5])) ** 2).sum()  # noqa: E731
        assert firstish.minimize(f, [1.0, 1.0, 1.0], bounds=bounds).x == pytest.approx([0, 5, 0.5])

    def test_pairs_for_a_number_and_for_a_matrix(self):
        assert firstish.minimize(lambda x: (x - 2) ** 2, 0.1, bounds=[(0, 0.5)]).x == 0.5
        result = firstish.minimize(
            lambda x: ((x - 2) ** 2).sum(), np.zeros((2, 2)), bounds=[(0, 1), (0, 3)] * 2
        )
        assert result.x == pytest.approx(np.array([[1, 2], [1, 2]]))

    @pytest.mark.parametrize(
        "bounds", [{"k": (0, None)}, ({"k": 0}, None), ({"k": 0}, {"k": None, "net.bias": 9})]
    )
    def test_parameters_of_a_module_by_name(self, bounds):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = torch.nn.Linear(2, 1)
                self.k = torch.nn.Parameter(torch.tensor(1.0))

        model = Model()
        loss = lambda m: (m.k + 2) ** 2 + ((m.net.weight + 1) ** 2).sum()  # noqa: E731
        assert firstish.minimize(loss, model, bounds=bounds).success
        assert model.k.item() == 0
        assert model.net.weight.tolist()[0] == pytest.approx([-1, -1], abs=1e-5)

    def test_a_parameter_that_the_module_does_not_have(self):
        model = torch.nn.Linear(2, 1)
        with pytest.raises(ValueError, match=r"no parameter 'wieght'.*'weight'"):
            firstish.minimize(lambda m: m.weight.sum(), model, bounds={"wieght": (0, None)})

    @pytest.mark.parametrize(
        "bounds", [{"a": (0, 0.5)}, ({"a": 0}, {"a": 0.5}), {"a": (0, 0.5), "b": (None, 9)}]
    )
    def test_keys_of_a_dict_by_name(self, bounds):
        f = lambda p: (p["a"] - 1) ** 2 + ((p["b"]["c"] - 2) ** 2).sum()  # noqa: E731
        result = firstish.minimize(f, {"a": 0.0, "b": {"c": [0.0, 0.0]}}, bounds=bounds)
        assert result.x["a"] == 0.5
        assert result.x["b"]["c"] == pytest.approx([2, 2])

    def test_a_key_that_the_dict_does_not_have(self):
        with pytest.raises(ValueError, match=r"x0 has no key 'rat'.*'rate'"):
            firstish.minimize(lambda p: p["rate"] ** 2, {"rate": 1.0}, bounds={"rat": (0, 1)})
        with pytest.raises(ValueError, match="a dict of tuples"):
            firstish.minimize(rosenbrock, [1.0, 1.0], bounds={"rat": (0, 1)})

    def test_a_nan_is_named(self):
        with pytest.raises(ValueError, match="has a NaN"):
            firstish.minimize(rosenbrock, torch.zeros(2), bounds=([0, math.nan], 1))

    def test_a_misspelt_key_of_a_group_is_refused(self):
        x = torch.nn.Parameter(torch.ones(1))
        with pytest.raises(ValueError, match="has 'bound': use 'bounds'"):
            firstish.ScaledGD([{"params": [x], "bound": (0, None)}])
        with pytest.raises(TypeError, match="put it into a parameter group"):
            firstish.ScaledGD([x], bounds=(0, None))
        other = {"name": "rates", "initial_lr": 1.0, "param_names": ["x"]}
        firstish.ScaledGD([{"params": [x], **other}])


class TestWhatReadersMet:
    def test_variables_of_very_different_size(self):
        """A step that is lost in the rounding of the largest variable is not the end."""
        doses = torch.logspace(-9, -5, 20)
        for seed in (0, 14, 37, 52, 55, 56, 1000):
            random = np.random.default_rng(seed)
            half = 10 ** random.uniform(-8, -6)
            y = 100 * doses / (doses + half) + torch.from_numpy(random.normal(size=20))
            result = firstish.minimize(
                lambda p: ((p[0] * doses / (doses + p[1]) - y) ** 2).sum(),  # noqa: B023
                [50.0, 1e-6],
                bounds=[(0, None), (1e-12, 1e-3)],
            )
            assert result.value < 50  # the noise has a variance of 1, in 20 doses

    @pytest.mark.parametrize("method", METHODS)
    def test_a_root_whose_slope_is_infinite_at_the_bound(self, method):
        f = lambda x: x.sqrt().sum() + ((x - 1) ** 2).sum()  # noqa: E731
        result = firstish.minimize(f, torch.tensor([0.01, 1.0]), bounds=(0, 2), method=method)
        assert result.success
        assert result.x[0] == 0
        # Each variable is at 0 or where 1/(2 sqrt(x)) = 2 (1 - x).
        assert result.x[1] == 0 or abs(float(result.x[1]) - 0.70151593) < 1e-5

    def test_errors_name_what_was_given(self):
        f = lambda p: ((p["b"] + 1) ** 2).sum()  # noqa: E731
        x0 = {"b": torch.tensor([0.5, 0.7])}
        for bounds, told in (
            ({"b": ((0, 1), (0, 2))}, r"for pairs `\(\[0, 0\], \[1, 2\]\)`"),
            ({"b": [(0, 1), (0, 2)]}, r"bounds=\{'b': \.\.\.\}\)` must be a tuple"),
            ({"b": (0, [1, math.nan])}, r"the upper bound of x0\['b'\]\[1\]"),
        ):
            with pytest.raises(ValueError, match=told):
                firstish.minimize(f, x0, bounds=bounds)
        with pytest.warns(UserWarning, match=r"x0\['b'\]\[1\] is 0.7, its bounds are 0 and 0.6"):
            firstish.minimize(f, x0, bounds={"b": (0, 0.6)})
        with pytest.raises(firstish.NonFiniteError, match="NaN at the starting point"):
            firstish.minimize(f, {"b": torch.tensor([math.nan, 3.0])}, bounds=(0, 1))
        model = torch.nn.Linear(2, 1)
        with pytest.raises(ValueError, match=r"5.0 and 1.0 for x0\['weight'\]\[0, 0\]"):
            firstish.minimize(lambda m: m.weight.sum() ** 2, model, bounds={"weight": (5, 1)})
        parameter = torch.nn.Parameter(torch.zeros(2))
        with pytest.warns(UserWarning, match=r"params\[1\]\[0\] is 0, its bounds are 1 and inf"):
            firstish.ScaledGD(
                [
                    {"params": [torch.zeros(3, requires_grad=True)]},
                    {"params": [torch.zeros(2, requires_grad=True)], "bounds": (1, None)},
                ]
            )
        with pytest.raises(ValueError, match="shaped like the parameter"):
            firstish.ScaledGD([{"params": [parameter], "bounds": [(0, 1), (0, 1)]}])


class TestMoreForms:
    def test_scipys_bounds_are_of_the_vector_of_any_x0(self):
        optimize = pytest.importorskip("scipy.optimize", reason="SciPy is an extra")
        Bounds = optimize.Bounds
        f = lambda t: sum(((v - 3) ** 2).sum() for v in t.values())  # noqa: E731
        x0 = {"a": torch.ones(2, 2), "b": torch.ones(())}
        for bounds in (Bounds(0, 1.5), Bounds([0] * 5, [1.5] * 5), Bounds([0] * 5, 1.5)):
            found = firstish.minimize(f, x0, bounds=bounds).x
            assert found["a"].tolist() == [[1.5, 1.5], [1.5, 1.5]]
            assert found["b"].item() == 1.5
        model = torch.nn.Linear(2, 1)
        loss = lambda m: ((m.weight - 3) ** 2).sum() + m.bias.sum() ** 2  # noqa: E731
        firstish.minimize(loss, model, bounds=Bounds([-1] * 3, [1, 2, 1]))
        assert model.weight.tolist() == [[1, 2]]
        named = firstish.minimize(f, x0, bounds={"a": Bounds(0, 2)})
        assert named.x["a"].tolist() == [[2, 2], [2, 2]]

    def test_bounds_of_a_frozen_parameter_are_refused(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
        model[0].bias.requires_grad_(False)
        loss = lambda m: m(torch.ones(1, 2)).pow(2).sum()  # noqa: E731
        with pytest.raises(ValueError, match=r"'0\.bias' is frozen"):
            firstish.minimize(loss, model, bounds={"0.bias": (5, None)})

    def test_an_entry_that_its_bounds_fix_may_start_anywhere(self):
        f = lambda x: ((x - 3) ** 2).sum()  # noqa: E731
        result = firstish.minimize(f, torch.zeros(2), bounds=([1, -1], [1, 9]))
        assert result.x.tolist() == pytest.approx([1, 3])
        assert result.x[0] == 1
        with pytest.warns(UserWarning, match="entry 1 of x is 0"):
            firstish.minimize(f, torch.zeros(2), bounds=([1, 1], [1, 9]))

    def test_parameters_moved_outside_between_steps_are_named(self):
        p = torch.nn.Parameter(torch.ones(3))
        optimizer = firstish.ScaledGD([{"params": [p], "bounds": (0, None)}])
        optimizer.step(lambda: (p**2).sum())
        with torch.no_grad():
            p[1] = -1
        with pytest.raises(ValueError, match=r"params\[0\]\[1\] is -1"):
            optimizer.step(lambda: (p**2).sum())

"""`minimize`: when it stops, what it says, what it leaves on record."""

import json
import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian
from torch.func import grad

import firstish
from firstish import (
    Armijo,
    Curvature,
    FunctionObjective,
    LazyStep,
    ModuleObjective,
    PlaneStep,
    ScaledGradient,
    Status,
    baselines,
    loop,
)
from firstish.objectives import Meter, Product

# The paper's method is what these tests are about, not the default one.
minimize = partial(firstish.minimize, method="CGMR")

START = torch.tensor([-1.2, 1.0], dtype=torch.float64)


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


def quartic(x):
    return (x**4).sum()


# Budgets and other ends


def test_it_converges_when_the_gradient_is_small_enough_and_says_so():
    result = minimize(rosenbrock, START, gtol=1e-8)
    assert result.success
    assert result.status is Status.CONVERGED
    assert result.grad_norm == result.history[-1].grad_norm <= 1e-8
    assert all(row.grad_norm > 1e-8 for row in result.history[:-1])
    torch.testing.assert_close(result.x, torch.ones(2), rtol=0, atol=1e-7)
    assert result.value == rosenbrock(result.x).item()
    assert result.grad_norm == pytest.approx(torch.linalg.norm(grad(rosenbrock)(result.x)).item())


def test_no_iteration_starts_once_the_oracle_calls_are_spent():
    result = minimize(rosenbrock, START, max_oracle_calls=50)
    assert result.status is Status.MAX_ORACLE_CALLS
    assert not result.success
    assert result.history[-2].oracle_calls < 50 <= result.oracle_calls
    assert result.oracle_calls == result.history[-1].oracle_calls


@pytest.mark.parametrize("budget", [0, 1, 7])
def test_as_many_iterations_are_made_as_were_granted(budget):
    result = minimize(rosenbrock, START, max_iterations=budget)
    assert result.status is Status.MAX_ITERATIONS
    assert result.iterations == budget
    assert len(result.history) == budget + 1
    if budget == 0:
        assert torch.equal(result.x, START)
        assert result.oracle_calls == 2


@pytest.fixture
def passed(monkeypatch):
    """The seconds that have passed by the clock of a run, in a list; they pass when told to."""
    seconds = [0.0]

    class Told(loop.Clock):
        def __init__(self, already=0.0, now=None):
            super().__init__(already, lambda: seconds[0])

    monkeypatch.setattr(loop, "Clock", Told)
    return seconds


def test_no_iteration_starts_once_the_seconds_are_spent(passed):
    def slow(x):
        passed[0] += 1.0
        return quartic(x)

    result = minimize(slow, torch.ones(3), max_seconds=20, gtol=0)
    assert result.status is Status.MAX_SECONDS
    assert result.history[-2].seconds < 20 <= result.seconds
    assert result.seconds - result.history[-2].seconds < 20  # one iteration more, not many
    assert minimize(quartic, torch.ones(3), max_seconds=0).iterations == 0


def test_the_first_of_several_budgets_ends_the_run():
    both = {"max_iterations": 3, "max_oracle_calls": 1000}
    assert minimize(rosenbrock, START, **both).status is Status.MAX_ITERATIONS
    both = {"max_iterations": 1000, "max_oracle_calls": 20}
    assert minimize(rosenbrock, START, **both).status is Status.MAX_ORACLE_CALLS


def test_no_budget_at_all_is_allowed():
    assert minimize(rosenbrock, START, max_oracle_calls=None, gtol=1e-10).success


def test_a_stationary_start_is_converged_even_with_gtol_zero():
    result = minimize(quartic, torch.zeros(3), gtol=0)
    assert (result.success, result.iterations, result.grad_norm) == (True, 0, 0.0)


def test_a_tolerance_relative_to_the_first_gradient():
    result = minimize(rosenbrock, START, gtol=0, gtol_rel=1e-3)
    first = result.history[0].grad_norm
    assert result.status is Status.GTOL_REL
    assert result.success
    assert result.grad_norm <= 1e-3 * first
    assert all(row.grad_norm > 1e-3 * first for row in result.history[:-1])
    scaled = minimize(lambda x: 2.0**10 * rosenbrock(x), START, gtol=0, gtol_rel=1e-3)
    assert scaled.iterations == result.iterations  # in any units, here a power of two


def test_a_tolerance_on_the_change_of_f():
    result = minimize(rosenbrock, START, gtol=0, ftol=1e-2)
    values = [row.value for row in result.history]
    changes = [abs(a - b) / max(abs(a), abs(b)) for a, b in pairwise(values)]
    assert result.status is Status.FTOL
    assert result.success
    assert changes[-1] <= 1e-2 < min(changes[:-1])


def test_the_relative_tolerances_are_off_by_default():
    flat = minimize(lambda x: 1e9 + (x**4).sum(), START, gtol=0, max_iterations=2)
    assert flat.status is Status.MAX_ITERATIONS


def test_a_run_that_is_resumed_stops_by_the_same_tolerances():
    limits = loop.Limits(gtol_rel=1e-3, ftol=1e-9)
    objective, method = FunctionObjective(rosenbrock, START), ScaledGradient()
    whole = loop.Run(objective, START, method)
    for _ in range(5):
        whole.advance(limits)
    rest = loop.Run(objective, START, method, whole.snapshot())
    while not isinstance(one := whole.advance(limits), Status):
        two = rest.advance(limits)
        assert (two.value, two.grad_norm) == (one.value, one.grad_norm)
    assert rest.advance(limits) is one is Status.GTOL_REL
    assert rest.snapshot().value_before == whole.snapshot().value_before


BUDGETS = [("max_iterations", 3), ("max_oracle_calls", 20), ("max_seconds", 0.0)]


@pytest.mark.parametrize(("name", "budget"), BUDGETS)
def test_the_message_of_a_spent_budget_names_the_argument(name, budget):
    result = minimize(rosenbrock, START, **{name: budget})
    assert f"Raise {name}={budget:g} to go on." in result.message


@pytest.mark.parametrize("method", ["lazy", "CGMR", baselines.LineSearch()])
def test_a_gradient_of_the_wrong_sign_is_said(method):
    result = minimize(WrongSign.apply, torch.tensor([3.0, 1.0, 1.0]), method=method)
    assert result.status is Status.LINE_SEARCH
    assert "its entry 0 is -6, but differences of f give 6. Correct the gradient." in result.message


@pytest.mark.parametrize("method", ["lazy", "CGMR", baselines.LineSearch()])
def test_a_jump_is_not_taken_for_a_wrong_gradient(method):
    hole = lambda x: (x * x).sum() + (0.0 if x[0].item() == 1 else 5.0)  # noqa: E731
    result = minimize(hole, torch.ones(3), method=method)
    assert result.status is Status.LINE_SEARCH
    assert "f did not fall as its gradient says, at any step size" in result.message
    assert "check the gradient, and the loss for a kink, a jump or" in result.message


@pytest.mark.parametrize("method", ["lazy", "CGMR"])
def test_trials_that_are_never_finite_are_said(method):
    def wall(x):
        return x.sum() + (0.0 if x[0].item() == 1 else math.nan)

    result = minimize(wall, torch.ones(2), method=method)
    assert result.status is Status.LINE_SEARCH
    assert "f was not finite at any trial" in result.message


@pytest.mark.parametrize("method", ["lazy", "CGMR"])
def test_a_loss_that_becomes_random_after_the_start_is_said_at_its_end(method):
    calls = []

    def noisy(x):
        calls.append(1)
        return rosenbrock(x) + (len(calls) if len(calls) > 8 else 0)  # then it only rises

    result = minimize(noisy, START, method=method)
    assert result.status is Status.LINE_SEARCH
    assert "f is not a function of x alone" in result.message


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_end_at_rounding_is_said_in_plain_words(dtype):
    result = minimize(lambda x: 1 + rosenbrock(x), START.to(dtype), gtol=1e-30)
    assert result.status is Status.ROUNDING
    assert not result.success
    assert "No step from x lowers f by more than its rounding error" in result.message
    assert "If x is the minimum, gtol=1e-30 is out of reach" in result.message
    assert ("badly scaled at x: use float64, " in result.message) == (dtype == torch.float32)


@pytest.mark.parametrize("least", [1.0, 0.0])
def test_a_search_that_cannot_move_any_more_ends_the_run_with_that_reason(least):
    result = minimize(lambda x: least + rosenbrock(x), START, gtol=0)
    assert result.status is Status.ROUNDING
    assert not result.success
    assert result.grad_norm < 1e-12


@pytest.mark.parametrize(("trials", "steps"), [(None, 100), (1, 100), (10, 10), (30, 4)])
def test_steps_without_progress_count_by_their_trials(trials, steps):
    class Idle:
        """Back and forth between two points with the same value."""

        order = 1

        def init(self, point):
            return 1

        def step(self, point, state):
            record = firstish.Step(step_size=1.0, trials=trials)
            return point.at(-point.x, 1), record, state + 1

    result = minimize(lambda x: (x**2).sum(), START, method=Idle())
    assert result.status is Status.ROUNDING
    assert result.iterations == steps


class WrongSign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x @ x

    @staticmethod
    def backward(ctx, grad):
        return -2 * grad * ctx.saved_tensors[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ["lazy", "plane", "CGMR", "GM"])
def test_a_gradient_of_the_wrong_sign_is_not_followed_within_the_rounding_of_f(method, dtype):
    x0 = torch.tensor([1.0, 2.0, -1.0], dtype=dtype)
    result = minimize(WrongSign.apply, x0, method=method)
    assert result.status is Status.LINE_SEARCH
    assert (result.iterations, result.value) == (0, 6.0)


def test_a_search_in_which_no_trial_is_accepted_returns_to_x_and_says_so():
    method = ScaledGradient(line_search=Armijo(max_trials=10))
    result = minimize(WrongSign.apply, torch.ones(3), method=method)
    assert result.status is Status.LINE_SEARCH
    assert (result.iterations, result.x.tolist()) == (0, [1.0] * 3)
    assert result.oracle_calls == 4 + 10  # the refused trials are counted


class Bad(firstish.Point):
    """|x|^4 whose products, from the second on, are not finite."""

    def __init__(self, x, meter, order):
        super().__init__(x, meter, order)

    eps = 2.0**-52

    def at(self, x, order=2):
        return Bad(x, self.meter, order)

    def _value(self):
        return quartic(self.x).item()

    def _gradient(self):
        return 4 * self.x**3

    def _product(self, v):
        first = self.meter.oracle_calls <= 2
        return Product(12 * self.x**2 * v if first else v * math.nan)


class BadObjective:
    def at(self, x, order=2):
        return Bad(x, Meter(), order)


def test_a_product_that_stops_being_finite_ends_the_run_where_it_stands():
    result = minimize(BadObjective(), torch.ones(3))
    assert result.status is Status.NON_FINITE
    assert result.iterations == 1
    assert result.value < 3
    assert result.x.isfinite().all()


def test_trials_where_f_is_not_finite_are_refused():
    method = ScaledGradient(line_search=Armijo(initial_step=64.0))
    result = minimize(lambda x: (x - x.log()).sum(), torch.full((2,), 3.0), method=method)
    assert result.success
    assert result.history[0].trials > 1
    torch.testing.assert_close(result.x, torch.ones(2), rtol=0, atol=1e-5)


FALLING = {
    "linear": lambda x: -x.sum(),
    "concave": lambda x: -(x * x).sum(),
    "steeper and steeper": lambda x: -x.exp().sum(),
    "along one axis": lambda x: x[0] ** 2 - x[1] ** 4,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FALLING)
def test_a_function_without_a_lowest_value_is_named_so(name, dtype):
    x0 = torch.tensor([1.0, 2.0], dtype=dtype)
    result = firstish.minimize(FALLING[name], x0)
    assert result.status is Status.UNBOUNDED
    assert result.x.isfinite().all()
    assert result.value < -1 / torch.finfo(dtype).eps
    assert result.oracle_calls < 200
    assert "|x| = " in result.message


@pytest.mark.parametrize("x0", [torch.zeros(3), torch.zeros(3, dtype=torch.float64)])
def test_a_linear_function_ends_with_its_first_line_search(x0):
    result = firstish.minimize(lambda x: x.sum(), x0)
    assert (result.status, result.iterations) == (Status.UNBOUNDED, 1)
    assert result.oracle_calls < 70


FAR = {
    "a system whose solution is 1e9": lambda x: 0.5 * (x @ x) - 1e9 * x.sum(),
    "with a constant": lambda x: 0.5 * (x @ x) - 1e9 * x.sum() + 1e-3,
    "in large units": lambda x: 1e20 * ((x - 1) ** 2 - 1).sum(),
    "from a saddle in large units": lambda x: 1e20 * (-(x**2) / 2 + x**4 / 4).sum(),
    "far from a saddle": lambda x: (-(x**2) + 1e-28 * x**4).sum(),
    "a slope until 1e12": lambda x: torch.sqrt(1 + (x - 1e12) ** 2).sum() - 2e12 + 1e-3 * x[0],
}


@pytest.mark.parametrize("near", [0.0, 1e-20, 1e-8, 1.0])
@pytest.mark.parametrize("name", FAR)
def test_a_far_or_large_minimum_is_not_called_unbounded(name, near):
    x0 = torch.full((3,), near, dtype=torch.float64)
    result = firstish.minimize(FAR[name], x0, gtol=0, gtol_rel=1e-10)
    assert result.status is not Status.UNBOUNDED, result.message


def test_a_low_but_bounded_function_is_not_called_unbounded():
    offset, x0 = -1e20, torch.tensor([3.0, -2.0], dtype=torch.float64)
    result = minimize(lambda x: (x**4).sum() + offset, x0, max_iterations=1)
    assert result.status is Status.MAX_ITERATIONS
    result = minimize(lambda x: 1e17 * ((x * x).sum() - 1), torch.ones(2, dtype=torch.float64))
    assert result.value == pytest.approx(-1e17, rel=1e-15)
    assert result.success


@pytest.mark.parametrize("status", Status)
def test_every_status_is_a_sentence(status):
    assert status.value[0].isupper() or status.value.startswith("f")
    assert status.value.endswith(".")
    assert len(status.value.split()) > 4


def test_the_message_has_the_sentence_and_the_numbers():
    result = minimize(rosenbrock, START, max_iterations=7)
    assert result.message.startswith(Status.MAX_ITERATIONS.value)
    for number in (f"{result.value:.6g}", "7 iterations", f"{result.oracle_calls:g} oracle calls"):
        assert number in result.message


@pytest.mark.parametrize("shape", [(3,), (64, 10), (200, 200)])
def test_the_repr_is_short_whatever_the_size_of_x(shape):
    result = minimize(quartic, torch.ones(shape), max_iterations=2)
    assert len(repr(result)) < 1000
    assert "MAX_ITERATIONS" in repr(result)


# The callback


@pytest.mark.parametrize("how", ["return", "raise"])
def test_the_callback_can_stop_the_run(how):
    def callback(progress):
        if progress.row.iteration < 4:
            return None
        if how == "raise":
            raise StopIteration
        return True

    result = minimize(rosenbrock, START, callback=callback)
    assert result.status is Status.STOPPED
    assert result.iterations == 5
    assert len(result.history) == 6


@pytest.mark.parametrize("returned", [None, False, 1, "stop", torch.tensor(3.0)])
def test_what_a_callback_happens_to_return_does_not_stop_the_run(returned):
    result = minimize(rosenbrock, START, callback=lambda progress: returned, max_iterations=3)
    assert result.status is Status.MAX_ITERATIONS


def test_other_exceptions_of_the_callback_pass():
    def callback(progress):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        minimize(rosenbrock, START, callback=callback)


def test_the_callback_sees_the_new_point_and_the_row_of_the_step_to_it():
    seen = []
    result = minimize(rosenbrock, START.reshape(2, 1)[:, 0], max_iterations=5, callback=seen.append)
    assert [p.row for p in seen] == list(result.history[:-1])
    for progress, after in zip(seen, result.history[1:], strict=True):
        assert progress.value == after.value == rosenbrock(progress.x).item()
        assert progress.grad_norm == after.grad_norm
    assert torch.equal(seen[-1].x, result.x)


@pytest.mark.parametrize("method", ["lazy", "CGMR", "plane", baselines.Adam(step_size=0.1)])
def test_a_callback_that_writes_to_what_it_is_given_changes_nothing(method):
    alone = minimize(rosenbrock, START, method=method, max_iterations=8)

    def meddle(progress):
        progress.x.clamp_(0, 0.1)
        progress.row.value = progress.row.step_size = math.nan
        assert progress.value == pytest.approx(rosenbrock(progress.x).item(), rel=1e-12)

    watched = minimize(rosenbrock, START, method=method, max_iterations=8, callback=meddle)
    assert torch.equal(watched.x, alone.x)
    assert [(r.value, r.step_size) for r in watched.history] == [
        (r.value, r.step_size) for r in alone.history
    ]


def test_what_a_callback_keeps_is_the_point_it_saw():
    kept = []
    minimize(rosenbrock, START, max_iterations=5, callback=kept.append)
    for progress in kept:
        assert progress.value == pytest.approx(rosenbrock(progress.x).item(), rel=1e-12)


def test_the_result_is_the_users_own():
    x0 = START.clone()
    objective = FunctionObjective(rosenbrock, x0)
    result = minimize(objective, x0, max_iterations=0)
    result.x.zero_()
    assert torch.equal(x0, START)
    model = nn.Linear(2, 1, bias=False)
    before = model.weight.detach().clone()
    of_model = ModuleObjective(model, lambda m: (m.weight**2).sum())
    minimize(of_model, model, max_iterations=0).x.zero_()
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize(
    "write",
    [lambda x: x.data.clamp_(min=0.5), lambda x: x.detach().clamp_(min=0.5)],
    ids=["data", "detach"],
)
def test_a_function_that_writes_to_x_is_refused(write):
    def fun(x):
        write(x)
        return rosenbrock(x)

    with pytest.raises(ValueError, match="writes to its argument x"):
        minimize(fun, START)


def test_the_callbacks_time_is_not_counted(passed):
    def evaluated(x):
        passed[0] += 1.0
        return rosenbrock(x)

    def callback(progress):
        passed[0] += 1000.0

    alone = minimize(evaluated, START, max_iterations=5)
    watched = minimize(evaluated, START, max_iterations=5, callback=callback)
    assert passed[0] > 5000
    assert [row.seconds for row in watched.history] == [row.seconds for row in alone.history]
    assert 0 < watched.seconds < 1000


def test_a_callback_costs_no_oracle_calls_and_changes_no_bit():
    silent = minimize(rosenbrock, START, gtol=1e-8)
    watched = minimize(rosenbrock, START, gtol=1e-8, callback=lambda p: p.grad_norm + p.value)
    assert torch.equal(silent.x, watched.x)
    assert silent.oracle_calls == watched.oracle_calls


# The start


@pytest.mark.parametrize("shape", [(), (1,), (6,), (2, 3), (1, 2, 3)])
def test_x_keeps_the_shape_of_x0_in_the_function_the_callback_and_the_result(shape):
    x0 = torch.full(shape, 2.0)
    shapes = set()

    def fun(x):
        shapes.add(x.shape)
        return quartic(x - 1)

    def callback(progress):
        shapes.add(progress.x.shape)

    result = minimize(fun, x0, callback=callback)
    shapes.add(result.x.shape)
    assert result.success
    assert shapes == {torch.Size(shape)}


def test_x0_is_not_modified_and_not_aliased():
    x0 = START.clone()
    result = minimize(rosenbrock, x0, max_iterations=0)
    result.x.add_(1)
    assert torch.equal(x0, START)


def test_x0_may_be_a_leaf_that_requires_grad_or_a_transposed_view():
    base = torch.arange(6.0).reshape(2, 3)
    leaf = base.clone().requires_grad_()
    A = torch.randn(2, 3)
    one = minimize(lambda x: ((x - A) ** 4).sum(), leaf, max_iterations=5)
    two = minimize(lambda x: ((x - A.T) ** 4).sum(), base.T, max_iterations=5)
    assert leaf.grad is None
    assert not one.x.requires_grad
    torch.testing.assert_close(one.x, two.x.T)


def test_it_runs_inside_no_grad():
    with torch.no_grad():
        inside = minimize(rosenbrock, START, max_iterations=5)
    assert torch.equal(inside.x, minimize(rosenbrock, START, max_iterations=5).x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_dtype_is_kept(dtype):
    result = minimize(rosenbrock, START.to(dtype), gtol=1e-3)
    assert result.success
    assert result.x.dtype is dtype


def test_an_objective_can_be_used_twice_and_each_run_counts_for_itself():
    objective = FunctionObjective(rosenbrock, START, product="double-backward", check=False)
    one = minimize(objective, START, max_iterations=5)
    two = minimize(objective, START, max_iterations=5)
    assert torch.equal(one.x, two.x)
    assert (one.oracle_calls, one.passes) == (two.oracle_calls, two.passes)


def test_aux_is_that_of_the_result():
    result = minimize(lambda x: (quartic(x), x.detach().clone()), torch.ones(2), max_iterations=3)
    assert torch.equal(result.aux, result.x)


# The record


@pytest.fixture(scope="module")
def tracked():
    """A run through all three cases, with every point on record."""

    def fun(x):
        return (x**4).sum() / 4 - (x**2).sum() / 2 + x[0] * x[1] + (3 * x[2]).sin()

    x0 = torch.tensor([0.1, 0.2, -0.3, 0.05], dtype=torch.float64)
    path = [x0]
    result = minimize(fun, x0, gtol=1e-7, callback=lambda progress: path.append(progress.x.clone()))
    assert result.success
    assert {Curvature.NC, Curvature.SPC} <= {row.curvature for row in result.history[:-1]}
    return fun, path, result


def test_the_last_row_has_no_step_and_the_others_have_one(tracked):
    *rows, last = tracked[2].history
    step = firstish.Step.__dataclass_fields__
    assert all(getattr(last, name) is None for name in step)
    for row in rows:
        missing = {name for name in step if getattr(row, name) is None}
        spc = row.curvature is Curvature.SPC
        assert missing == {"failure", "product", "pairs", "active"} | (
            set() if spc else {"scaling"}
        )


def test_counters_grow_from_row_to_row(tracked):
    rows = tracked[2].history
    assert [row.iteration for row in rows] == list(range(len(rows)))
    for a, b in pairwise(rows):
        assert b.oracle_calls - a.oracle_calls == 3 + a.trials
        assert b.passes > a.passes
        assert b.seconds > a.seconds


def test_rows_have_the_value_and_the_gradient_norm_of_their_point(tracked):
    fun, path, result = tracked
    for x, row in zip(path, result.history, strict=True):
        assert row.value == pytest.approx(fun(x).item(), rel=1e-14)
        assert row.grad_norm == pytest.approx(torch.linalg.norm(grad(fun)(x)).item(), rel=1e-12)


def test_rows_have_the_diagnostics_of_the_dense_hessian(tracked):
    fun, path, result = tracked
    for x, after, row in zip(path, path[1:], result.history, strict=False):
        g, H = grad(fun)(x), hessian(fun, x)
        p, alpha = -row.scale * g, row.step_size
        torch.testing.assert_close(after, x + alpha * p, rtol=1e-12, atol=1e-14)
        gHg, gg, Hg = g @ H @ g, g @ g, torch.linalg.norm(H @ g)
        gp, pHp = g @ p, p @ H @ p
        truth = {
            "cosine": gHg / (gg.sqrt() * Hg),
            "local_lipschitz": Hg / gg.sqrt(),
            "descent_margin": gp + pHp,
            "predicted_decrease": -(alpha * gp + alpha**2 / 2 * pHp),
            "slope_ratio": (grad(fun)(after) @ p) / gp,
        }
        # Differences of large terms: as exact as their terms.
        size = {"descent_margin": -gp, "predicted_decrease": -alpha * gp}
        # The gradient itself is a difference of terms of about 1, and small at the end.
        g_error = 1e-10 + 64 * torch.finfo(torch.float64).eps / row.grad_norm
        for name, number in truth.items():
            tolerance = g_error * float(size.get(name, 1))
            assert getattr(row, name) == pytest.approx(number.item(), rel=1e-9, abs=tolerance)
        assert row.actual_decrease == pytest.approx((fun(x) - fun(after)).item(), abs=1e-14)


def test_rows_have_the_case_and_the_scale_of_the_dense_hessian(tracked):
    fun, path, result = tracked
    turn = 0
    for x, row in zip(path, result.history[:-1], strict=False):
        g, H = grad(fun)(x), hessian(fun, x)
        gg, gHg, HgHg = g @ g, g @ H @ g, (H @ g) @ (H @ g)
        case = "SPC" if gHg > 1e-6 * gg else "NC" if gHg < 0 else "LPC"
        assert row.curvature.name == case
        if case == "SPC":
            scale = {"CG": gg / gHg, "MR": gHg / HgHg}
            assert row.scaling == ("CG", "MR")[turn % 2]
            # The terms of g, as large as the first gradient, cancel to |g|: so do their roundings.
            lost = max(1.0, result.history[0].grad_norm / row.grad_norm)
            rel = 100 * torch.finfo(torch.float64).eps * lost
            assert row.scale == pytest.approx(scale[row.scaling].item(), rel=rel)
            turn += 1
        else:
            assert (row.scaling, row.scale) == (None, 1.0)


def test_rows_are_ready_for_json(tracked):
    rows = [json.loads(json.dumps(row.to_dict())) for row in tracked[2].history]
    assert rows[0]["curvature"] in {"SPC", "LPC", "NC"}
    assert rows[-1]["curvature"] is None
    assert [row["value"] for row in rows] == [row.value for row in tracked[2].history]


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("lazy", LazyStep()),
        ("LAZY", LazyStep()),
        ("bfgs", LazyStep()),
        ("SSBFGS", LazyStep()),
        ("self-scaled-bfgs", LazyStep()),
        ("L-BFGS", LazyStep(memory=10, self_scaled=False)),
        ("lbfgs", LazyStep(memory=10, self_scaled=False)),
        ("plane", PlaneStep()),
        ("CGMR", ScaledGradient(scaling="CGMR")),
        ("dy", ScaledGradient(scaling="dy")),
    ],
)
def test_a_name_takes_the_steps_of_the_method(name, method):
    x0 = torch.tensor([1.5, -0.5], dtype=torch.float64)
    fun = lambda x: (x**4).sum() + (x[0] - 2 * x[1]) ** 2  # noqa: E731
    named, given = (firstish.minimize(fun, x0, method=m) for m in (name, method))
    assert torch.equal(named.x, given.x)
    assert named.oracle_calls == given.oracle_calls


def test_the_lazy_step_is_the_default():
    x0 = torch.tensor([1.5, -0.5], dtype=torch.float64)
    result = firstish.minimize(lambda x: (x**4).sum() + x.dot(x), x0)
    assert result.success
    assert [row.scaling for row in result.history[:-1]] == ["pairs"] * result.iterations


@pytest.mark.parametrize(
    ("name", "ours"), [("fun", "value"), ("nit", "iterations"), ("nfev", "oracle_calls")]
)
def test_the_names_of_scipy_s_result_are_answered_with_ours(name, ours):
    result = firstish.minimize(lambda x: (x**2).sum(), [1.0])
    with pytest.raises(AttributeError, match=f"has no `{name}`. Use `{ours}`"):
        getattr(result, name)
    assert not hasattr(result, "nothing_of_the_kind")


@pytest.mark.parametrize("args", [True, False])
def test_numpy_data_in_a_torch_function_are_answered_with_the_remedy(args):
    A, b = np.eye(3), np.ones(3)
    f = (lambda x, A, b: A @ x - b) if args else (lambda x: A @ x - b)
    with pytest.raises(TypeError, match=r"torch\.as_tensor"):
        firstish.minimize(f, np.zeros(3), (A, b) if args else ())


def test_finite_differences_are_named_where_a_run_ends_early():
    import scipy.optimize

    result = scipy.optimize.minimize(
        scipy.optimize.rosen,
        [-1.2, 1.0],
        method=firstish.scipy_method,
        options={"maxiter": 3},
    )
    assert not result.success
    assert "Raise maxiter=3 to go on. The gradient is a finite difference" in result.message


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"gtol": None}, "`minimize\\(gtol=...\\)` must be a number, got None"),
        ({"gtol": "a"}, "must be a number, got 'a'"),
        ({"max_iterations": "10"}, "must be a number, got '10'"),
        ({"callback": 3}, "`minimize\\(callback=...\\)` must be callable, got 3"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(wrong, words):
    with pytest.raises(TypeError, match=words):
        firstish.minimize(lambda x: (x**2).sum(), [1.0], **wrong)


def test_a_progress_answers_scipys_names_and_those_of_its_row():
    seen = []

    def callback(progress):
        for name in ("fun", "nfev", "step_size", "hess_inv"):
            with pytest.raises(AttributeError) as error:
                getattr(progress, name)
            seen.append(str(error.value))

    minimize(rosenbrock, START, callback=callback, max_iterations=1)
    assert seen[:3] == [
        "`Progress` has no `fun`. Use `value`.",
        "`Progress` has no `nfev`. Use `row.oracle_calls`.",
        "`Progress` has no `step_size`. Use `row.step_size`.",
    ]
    assert "torch.autograd.functional.hessian(fun, x)" in seen[3]


def test_a_nan_in_x0_is_named():
    with pytest.raises(
        firstish.NonFiniteError, match="x has a NaN at the starting point, in entry 1"
    ):
        minimize(rosenbrock, torch.tensor([0.0, torch.nan]))


def test_a_relative_tolerance_on_f_is_below_1():
    with pytest.raises(
        ValueError, match=r"`minimize\(ftol=...\)` must be below 1, got 2: it is relative"
    ):
        minimize(rosenbrock, START, ftol=2)
    with pytest.raises(TypeError, match="no absolute tolerance on f: use `ftol`, relative"):
        minimize(rosenbrock, START, fatol=1e-9)

"""One table of our methods through the same trials; joining is one row."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from testbed import BOUNDED, KINDS, problems, run
from torch.nn.functional import cross_entropy

from firstish import (
    AdamDirection,
    Anneal,
    Armijo,
    FunctionObjective,
    LazyStep,
    ModuleObjective,
    MomentumDirection,
    NonMonotone,
    PlaneStep,
    ScaledDirection,
    ScaledGradient,
    Status,
    minimize,
)
from firstish.experiments.storage import checkpoints
from firstish.experiments.storage.rows import Mark
from firstish.loop import Limits, Run
from firstish.methods import Failure
from firstish.scaling import Curvature

MONOTONE = {
    "cgmr": ScaledGradient(),
    "asd": ScaledGradient(scaling="ASD"),
    "dy": ScaledGradient(scaling="DY"),
    "sdc": ScaledGradient(scaling="SDC"),
    "plane": PlaneStep(),
    "lazy": LazyStep(),
    "lazy-1": LazyStep(memory=1),
    "adam": ScaledDirection(direction=AdamDirection()),
    "momentum": ScaledDirection(direction=MomentumDirection()),
}
ALL = {
    **MONOTONE,
    "annealed": ScaledGradient(
        scaling="CG", line_search=NonMonotone(schedule=Anneal(iterations=10, start=1.9))
    ),
}
every = pytest.mark.parametrize("name", ALL)
monotone = pytest.mark.parametrize("name", MONOTONE)

CURVATURES = torch.tensor([1.0, 4.0, 9.0, 16.0], dtype=torch.float64)
START = torch.tensor([3.0, -1.0, 2.0, 0.5], dtype=torch.float64)


def quadratic(x):
    return (CURVATURES.to(x) * x**2).sum() / 2


def valley(x):
    return ((1 - x[:-1]) ** 2 + 5 * (x[1:] - x[:-1] ** 2) ** 2).sum()


VALLEY = torch.tensor([-0.6, 0.9, -0.3, 1.2], dtype=torch.float64)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_minimises_in_the_precision_of_x0(name, dtype):
    tolerance = 1e-3 if dtype is torch.float32 else 1e-6
    for fun, x0 in ((quadratic, START), (valley, VALLEY)):
        result = minimize(fun, x0.to(dtype), method=ALL[name], gtol=tolerance)
        assert result.success, result.message
        assert result.x.dtype == dtype


@every
def test_trains_a_module(name):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 2))
    inputs, targets = torch.randn(20, 3), torch.arange(20) % 2
    objective = ModuleObjective(model, cross_entropy, inputs, targets, weight_decay=1e-3)
    before = objective.at(objective.initial()).value
    result = minimize(objective, model, method=ALL[name], max_oracle_calls=200)
    assert result.value < before
    assert cross_entropy(model(inputs), targets).item() < before


def below(result, dtype):
    """That f never rose beyond rounding, and every step moved."""
    eps = torch.finfo(dtype).eps
    for row, after in itertools.pairwise(result.history):
        assert after.value <= row.value + 10 * eps * abs(row.value)
        assert row.step_size > 0
        assert row.actual_decrease == row.value - after.value


@monotone
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@settings(max_examples=15)
@given(data=st.data())
def test_f_never_rises_on_the_way_to_the_rounding_floor(name, dtype, data):
    problem = data.draw(problems(BOUNDED, dtype))
    result, _ = run(problem.fun, problem.x, method=MONOTONE[name], gtol=0, max_iterations=150)
    below(result, dtype)
    ends = (Status.ROUNDING, Status.LINE_SEARCH, Status.MAX_ITERATIONS)
    assert result.status in ends or result.grad_norm == 0


@monotone
@settings(max_examples=15)
@given(problem=problems(KINDS))
def test_f_never_rises_where_it_may_be_unbounded_below(name, problem):
    result, _ = run(problem.fun, problem.x, method=MONOTONE[name], gtol=0, max_iterations=30)
    below(result, torch.float64)


@pytest.mark.parametrize("name", [n for n in MONOTONE if "lazy" not in n])
@settings(max_examples=25)
@given(problem=problems(BOUNDED))
def test_first_and_second_order_descent_at_every_step(name, problem):
    """<g,p> < 0 by the path, and <g,p> + <p,Hp> <= 0 by the record."""
    result, xs = run(problem.fun, problem.x, method=MONOTONE[name], gtol=1e-5, max_iterations=20)
    for row, (x, new) in zip(result.history[:-1], itertools.pairwise(xs), strict=True):
        g, H = problem.dense(x)
        p = (new - x).double().numpy() / row.step_size
        size = np.linalg.norm(g) * np.linalg.norm(p) + np.linalg.norm(H, 2) * (p @ p)
        assert g @ p < (1e-6 * size if name == "adam" else 0)  # adam may be nearly across g
        assert row.descent_margin <= 1e-9 * size
        if name != "plane":  # whose H d is that of the last step
            assert g @ p + p @ H @ p <= 1e-6 * size


def prices(result):
    return [b.oracle_calls - a.oracle_calls for a, b in itertools.pairwise(result.history)]


@every
def test_an_iteration_costs_what_it_says_and_nothing_is_evaluated_twice(name):
    objective = FunctionObjective(valley, VALLEY, product="double-backward", check=False)
    result = minimize(objective, VALLEY, method=ALL[name], gtol=1e-6)
    rows = result.history[:-1]
    expected = [3 + row.trials for row in rows]
    again = 0
    if isinstance(ALL[name], LazyStep):
        asked = [row.product is not None for row in rows]
        expected = [1 + row.trials + 2 * a for row, a in zip(rows, asked, strict=True)]
        again = 2 * sum(asked)  # a product where no graph was kept: a forward, a backward more
        assert sum(asked) < len(rows) / 3
    assert prices(result) == expected
    assert result.passes == result.oracle_calls + again
    usual = 2 if isinstance(ALL[name], LazyStep) else 4
    assert expected.count(usual) > len(rows) / 2


@every
@pytest.mark.parametrize("stop", [0, 1, 2, 7, 15])
def test_a_run_goes_on_from_its_checkpoint_to_the_same_bits(name, stop, tmp_path):
    method = ALL[name]

    def started(resume=None):
        objective = FunctionObjective(valley, VALLEY, product="double-backward", check=False)
        return Run(objective, VALLEY, method, resume)

    whole, cut = started(), started()
    for _ in range(stop):
        whole.advance(Limits())
        cut.advance(Limits())
    path = tmp_path / "run.npz"
    checkpoints.save(path, cut.snapshot(), Mark(7, 3))
    snapshot, mark = checkpoints.load(path, method.init(cut.point), VALLEY)
    assert mark == Mark(7, 3)
    resumed = started(snapshot)
    for _ in range(6):
        one, two = whole.advance(Limits()), resumed.advance(Limits())
        assert torch.equal(whole.point.x, resumed.point.x)
        if isinstance(one, Status):  # the quickest have converged by then
            assert one is two
            break
        assert one.step == two.step
        assert (one.oracle_calls, one.passes) == (two.oracle_calls, two.passes)


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in tensors(v)] if isinstance(value, tuple) else []


@every
def test_a_state_holds_detached_tensors_and_is_never_written_to(name):
    method = ALL[name]
    point = FunctionObjective(valley, VALLEY).at(VALLEY, method.order)
    state = method.init(point)
    assert type(state).__dataclass_params__.frozen
    for _ in range(12):
        held = [t for f in dataclasses.fields(state) for t in tensors(getattr(state, f.name))]
        before = [t.clone() for t in held]
        assert not any(t.requires_grad or t.grad_fn for t in held)
        g = point.grad.clone()
        new, step, after = method.step(point, state)
        assert torch.equal(point.grad, g)
        assert all(map(torch.equal, held, before))
        assert step.failure is None
        point, state = new, after


@every
def test_settings_are_frozen(name):
    with pytest.raises(dataclasses.FrozenInstanceError):
        ALL[name].line_search = Armijo()


@every
def test_a_zero_gradient_is_no_accident(name):
    point = FunctionObjective(quadratic, START).at(torch.zeros_like(START), ALL[name].order)
    new, step, _ = ALL[name].step(point, ALL[name].init(point))
    assert step.failure is Failure.STATIONARY
    assert new is point


@every
@pytest.mark.parametrize("scale", [1e-200, 1e-140, 1e140])
def test_extreme_values_of_f_raise_nothing(name, scale):
    fun = lambda x: scale * quadratic(x)  # noqa: E731
    result = minimize(fun, START, method=ALL[name], gtol=0, max_iterations=40)
    assert math.isfinite(result.value)
    if scale > 1:  # below, the curvature is under sigma
        assert result.value < 1e-2 * float(fun(START))


@every
@pytest.mark.parametrize("size", [1e-70, 1e70])
def test_extreme_sizes_of_x_raise_nothing(name, size):
    fun = lambda x: quadratic(x / size)  # noqa: E731
    result = minimize(fun, START * size, method=ALL[name], gtol=0, max_iterations=40)
    assert math.isfinite(result.value)
    if size < 1:
        assert result.value < 1e-2 * float(quadratic(START))


@every
def test_a_wall_of_nan_raises_nothing(name):
    def walled(x):
        return (-torch.log(x + 0.05) + 3 * x).sum()

    result = minimize(walled, torch.full((2,), 0.5), method=ALL[name], max_oracle_calls=300)
    assert result.success, result.message


@every
def test_a_linear_function_has_limited_curvature_and_is_no_error(name):
    result = minimize(lambda x: x.sum(), torch.zeros(3), method=ALL[name], max_iterations=4)
    assert {row.curvature for row in result.history[:-1]} == {Curvature.LPC}
    if isinstance(ALL[name], LazyStep):  # tracked forward until rounding ends it
        assert result.value < -1e15
    else:
        assert result.iterations == 4


@pytest.mark.parametrize("name", [n for n in MONOTONE if n not in ("adam",)])
@settings(max_examples=20)
@given(problem=problems(), k=st.integers(-60, 60), sign=st.sampled_from([-1.0, 1.0]))
def test_rescaling_x_by_a_power_of_two_changes_no_bit(name, problem, k, sign):
    """On f(c y) with y = x/c, iterates are y_k = x_k/c, as long as curvature is strong."""
    c, method = sign * 2.0**k, MONOTONE[name]
    if hasattr(method, "sigma"):
        method = dataclasses.replace(method, sigma=0.0)
    options = {"method": method, "gtol": 0, "max_iterations": 10}
    plain, xs = run(problem.fun, problem.x, **options)
    _, ys = run(lambda y: problem.fun(c * y), problem.x / c, **options)
    for x, y, row in zip(xs, ys, plain.history, strict=False):
        assert torch.equal(x, c * y)
        if row.curvature not in (Curvature.SPC, None):
            break

"""One table of competitors through the same trials; joining is one row."""

import dataclasses
import doctest
import importlib
import io
import itertools
import math
import pkgutil

import numpy as np
import pytest
import torch

import firstish
from firstish import Armijo, FunctionObjective, ModuleObjective, Status, baselines, minimize
from firstish.baselines import (
    CDAT,
    LBFGS,
    ABBmin,
    Adam,
    AdGD,
    AdGD2,
    FixedStep,
    HeavyBall,
    LineSearch,
    Nesterov,
    PoNo,
)
from firstish.methods import Failure

from .problems import FUNCTIONS, VALLEY, run, tensor

ALL = [
    FixedStep(step_size=0.05),
    HeavyBall(step_size=0.02),
    Nesterov(step_size=0.02),
    Adam(step_size=0.05),
    LineSearch(reset="full"),
    LineSearch(reset="no"),
    LineSearch(reset="limited"),
    PoNo(),
    PoNo(max_step=1e10),
    LBFGS(),
    AdGD(),
    AdGD2(),
    ABBmin(),
    CDAT(),
]
every = pytest.mark.parametrize("method", ALL, ids=lambda method: type(method).__name__)

CURVATURES = torch.tensor([1.0, 4.0, 9.0, 16.0], dtype=torch.float64)
START = torch.tensor([3.0, -1.0, 2.0, 0.5], dtype=torch.float64)


def quadratic(x):
    return (CURVATURES.to(x) * x**2).sum() / 2


@every
def test_minimises_a_quadratic(method):
    result = minimize(quadratic, START, method=method, gtol=1e-4, max_oracle_calls=4000)
    if isinstance(method, PoNo):  # it settles slowly, and is judged by its best iterate
        assert min(row.value for row in result.history) < 1e-3 * quadratic(START)
    else:
        assert result.success, result.message
    assert result.value < 0.1 * quadratic(START)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_works_in_the_precision_of_x0(method, dtype):
    x0 = START.to(dtype)
    result = minimize(quadratic, x0, method=method, gtol=1e-2, max_oracle_calls=600)
    assert result.x.dtype == dtype
    assert min(row.value for row in result.history) < 0.01 * quadratic(x0)


@every
def test_trains_a_module(method):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 2))
    inputs, targets = torch.randn(20, 3), torch.arange(20) % 2
    objective = ModuleObjective(model, torch.nn.functional.cross_entropy, inputs, targets)
    before = objective.at(objective.initial()).value
    result = minimize(objective, model, method=method, max_oracle_calls=200)
    assert min(row.value for row in result.history) < before
    assert all(row.step_size is not None for row in result.history[:-1])


@every
def test_nothing_is_evaluated_twice(method):
    """Then each oracle call is one pass: a forward 1, a backward 1, a double backward 2."""
    _, result = run(method, VALLEY, 25)
    assert result.passes == result.oracle_calls


@every
def test_an_iteration_costs_what_it_says(method):
    trace, _ = run(method, VALLEY, 25)
    spent = np.diff(trace.oracle_calls)
    if isinstance(method, LBFGS):
        expected = [2 * trials for trials in trace.trials]
    elif isinstance(method, LineSearch | PoNo | ABBmin):
        expected = [1 + trials for trials in trace.trials]
    elif isinstance(method, AdGD2):
        expected = [2 * trace.trials[0]] + [2] * 24
    else:
        expected = [4 if isinstance(method, CDAT) else 2] * 25
    assert spent.tolist() == expected
    assert trace.oracle_calls[0] == 2


@every
def test_rows_tell_the_step(method):
    _, result = run(method, VALLEY, 25)
    rows = result.history
    for row, after in itertools.pairwise(rows):
        assert row.step_size > 0
        assert row.actual_decrease == row.value - after.value
        assert row.failure is None
    searches = isinstance(method, LineSearch | PoNo | ABBmin | LBFGS)
    assert all((row.trials is not None) == searches for row in rows[1:-1])


@every
def test_slope_ratio_is_that_of_the_gradients(method):
    trace, result = run(method, VALLEY, 10)
    for k, row in enumerate(result.history[:-1]):
        if row.slope_ratio is None:
            assert isinstance(method, HeavyBall | Nesterov | Adam)
            continue
        moved = trace.x[k + 1] - trace.x[k]
        slopes = [VALLEY.g(trace.x[j]) @ moved for j in (k, k + 1)]
        tolerance = 1e-4 if row.step_size < 1e-6 else 1e-9  # of the difference of two iterates
        assert row.slope_ratio == pytest.approx(slopes[1] / slopes[0], rel=tolerance, abs=1e-12)


def advanced(method, x, state, steps):
    """The iterates and the last state, from x and a state, on a new objective."""
    objective = FunctionObjective(FUNCTIONS[VALLEY], x, product="double-backward")
    point = objective.at(x, method.order)
    state = method.init(point) if state is None else state
    iterates = []
    for _ in range(steps):
        point, step, state = method.step(point, state)
        assert step.failure is None
        iterates.append(point.x)
    return iterates, state


def is_allowed(value):
    if isinstance(value, torch.Tensor):
        return not value.requires_grad and value.grad_fn is None
    if isinstance(value, tuple):
        return all(isinstance(item, torch.Tensor) and is_allowed(item) for item in value)
    return value is None or type(value) in (float, int, bool)


def through_npz(state):
    """The state written to npz and read back, without pickle."""
    arrays, file = {}, io.BytesIO()
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if isinstance(value, tuple):
            arrays |= {f"{field.name}.{k}": item.numpy() for k, item in enumerate(value)}
        elif value is not None:
            arrays[field.name] = np.asarray(value)
    np.savez(file, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as loaded:
        read = {name: loaded[name] for name in loaded.files}
    fields = {}
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if isinstance(value, tuple):
            items = [read[f"{field.name}.{k}"] for k in range(len(value))]
            fields[field.name] = tuple(torch.from_numpy(item) for item in items)
        elif isinstance(value, torch.Tensor):
            fields[field.name] = torch.from_numpy(read[field.name])
        elif value is not None:
            fields[field.name] = type(value)(read[field.name])
    return type(state)(**fields)


@every
@pytest.mark.parametrize("stop", [0, 1, 2, 7, 15])
def test_a_run_goes_on_from_x_and_state_to_the_same_bits(method, stop):
    x0 = tensor(VALLEY.x0)
    whole, _ = advanced(method, x0, None, 22)
    start, state = advanced(method, x0, None, stop)
    assert dataclasses.is_dataclass(state)
    assert all(is_allowed(getattr(state, f.name)) for f in dataclasses.fields(state))
    saved = through_npz(state)
    frozen = through_npz(state)
    rest, _ = advanced(method, start[-1] if start else x0, saved, 22 - stop)
    assert all(map(torch.equal, whole[stop:], rest))
    for field in dataclasses.fields(saved):  # a state handed in is not written to
        before, after = getattr(frozen, field.name), getattr(saved, field.name)
        if isinstance(before, torch.Tensor):
            assert torch.equal(before, after)
        elif isinstance(before, tuple):
            assert all(map(torch.equal, before, after))


@every
def test_settings_and_state_are_frozen(method):
    name = dataclasses.fields(method)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(method, name, 1)
    state = method.init(FunctionObjective(quadratic, START).at(START, method.order))
    assert type(state).__dataclass_params__.frozen


@every
def test_a_zero_gradient_is_no_accident(method):
    result = minimize(quadratic, torch.zeros(4, dtype=torch.float64), method=method)
    assert result.success
    point = FunctionObjective(quadratic, START).at(torch.zeros_like(START), method.order)
    new, step, _ = method.step(point, method.init(point))
    assert torch.equal(new.x, point.x)
    if not isinstance(method, HeavyBall | Nesterov | Adam):
        assert step.failure is Failure.STATIONARY


@every
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_runs_to_the_end_of_the_precision_without_an_error(method, offset):
    def raised(x):
        return quadratic(x) + offset

    result = minimize(raised, START, method=method, gtol=0, max_oracle_calls=1500)
    assert isinstance(result.status, Status)
    assert math.isfinite(result.value)


@every
@pytest.mark.parametrize("scale", [1e-160, 1e160])
def test_extreme_scales_raise_nothing(method, scale):
    result = minimize(
        lambda x: scale * quadratic(x), START, method=method, gtol=0, max_oracle_calls=300
    )
    assert math.isfinite(result.value)


def quartic(x):
    return (x**4).sum()


@pytest.mark.parametrize(
    "method",
    [
        FixedStep(step_size=10.0),
        HeavyBall(step_size=10.0),
        Nesterov(step_size=10.0),
        CDAT(sigma=10.0),
    ],
    ids=lambda method: type(method).__name__,
)
def test_divergence_is_a_status(method):
    result = minimize(quartic, START, method=method)
    assert result.status is Status.NON_FINITE
    assert torch.isfinite(result.x).all()
    assert math.isfinite(result.value)


@every
def test_a_wall_of_nan_raises_nothing(method):
    """f is not a number beyond a wall that the first long step crosses."""

    def walled(x):
        return (-torch.log(x + 0.05) + 3 * x).sum()

    result = minimize(walled, torch.full((2,), 0.5), method=method, max_oracle_calls=300)
    assert torch.isfinite(result.x).all()


def test_pono_ends_where_rounding_accepts_a_null_step():
    class Wrong(torch.autograd.Function):
        """|x|^2 / 2 with the gradient's sign wrong, so that every step rises."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x**2).sum() / 2

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return -x * grad

    result = minimize(Wrong.apply, torch.ones(2), method=PoNo())
    assert result.status is Status.ROUNDING
    assert result.x.tolist() == [1.0, 1.0]


def test_pono_takes_no_step_from_a_tiny_gradient():
    result = minimize(lambda x: 1e-9 * (x**2).sum() + 1, torch.ones(1), method=PoNo(), gtol=0)
    assert result.status is Status.LINE_SEARCH
    assert result.iterations == 0


def test_adgd_grows_out_of_a_first_step_lost_to_rounding():
    x0 = torch.full((3,), 100.0, dtype=torch.float32)
    result = minimize(lambda x: (x**2).sum() / 2, x0, method=AdGD(), gtol=1e-3)
    sizes = [row.step_size for row in result.history[:-1]]
    assert sizes[1] == pytest.approx(10 * sizes[0])
    assert result.success


def test_adgd2_stops_growing_where_there_is_no_curvature():
    result = minimize(lambda x: x.sum(), torch.zeros(2), method=AdGD2(), max_iterations=3)
    assert result.history[0].step_size == pytest.approx(10.0)
    assert result.history[0].trials == 4


def test_adgd2_shrinks_a_first_step_that_overflows():
    result = minimize(lambda x: torch.exp(x**2).sum(), torch.full((2,), 6.0), method=AdGD2())
    assert result.success


def test_abbmin_keeps_its_first_trial_within_bounds():
    method = ABBmin(min_step=0.01, max_step=0.02)
    trace, _ = run(method, VALLEY, 25)
    assert all(s <= 0.02 for s in trace.step_size[1:])
    firsts = [s / 0.5 ** (t - 1) for s, t in zip(trace.step_size, trace.trials, strict=True)]
    assert all(0.01 <= first <= 0.02 for first in firsts[1:])


def test_limited_reset_starts_at_one_over_theta():
    point = FunctionObjective(quartic, START).at(START / 100, 1)
    method = LineSearch(reset="limited", line_search=Armijo(theta=0.25))
    _, step, state = method.step(point, method.init(point))
    assert (step.step_size, step.trials, state.step_size) == (4.0, 1, 4.0)


BAD = [
    (FixedStep, {"step_size": -1}, "`FixedStep(step_size=...)` must be positive"),
    (FixedStep, {"step_size": math.nan}, "`FixedStep(step_size=...)` must be positive"),
    (HeavyBall, {"step_size": math.inf}, "`HeavyBall(step_size=...)`"),
    (HeavyBall, {"step_size": 1, "momentum": 1.0}, "`HeavyBall(momentum=...)` must lie in [0, 1)"),
    (Nesterov, {"step_size": 0}, "`Nesterov(step_size=...)`"),
    (Nesterov, {"step_size": 1, "momentum": -0.1}, "`Nesterov(momentum=...)`"),
    (Adam, {"step_size": 0}, "`Adam(step_size=...)`"),
    (Adam, {"step_size": 1, "betas": (0.9, 1.0)}, "`Adam(betas=...)`"),
    (Adam, {"step_size": 1, "betas": (0.9,)}, "`Adam(betas=...)` must be two numbers"),
    (Adam, {"step_size": 1, "eps": 0}, "`Adam(eps=...)`"),
    (LineSearch, {"reset": "half"}, "Use one of 'full', 'no', 'limited'."),
    (PoNo, {"max_step": 0}, "`PoNo(max_step=...)`"),
    (PoNo, {"min_step": 11.0}, "`PoNo(min_step=...)` must lie in (0, max_step], max_step=10.0"),
    (PoNo, {"c": 0}, "`PoNo(c=...)` must lie in (0, 1), got 0."),
    (PoNo, {"c_p": -1}, "`PoNo(c_p=...)`"),
    (PoNo, {"delta": 1}, "`PoNo(delta=...)`"),
    (PoNo, {"xi": 1.1}, "`PoNo(xi=...)`"),
    (PoNo, {"f_star": -math.inf}, "`PoNo(f_star=...)` must be finite"),
    (LBFGS, {"memory": 0}, "`LBFGS(memory=...)` must be at least 1, got 0."),
    (LBFGS, {"memory": 2.5}, "`LBFGS(memory=...)` must be an int"),
    (LBFGS, {"max_trials": True}, "`LBFGS(max_trials=...)` must be an int"),
    (AdGD, {"step_size": 0}, "`AdGD(step_size=...)`"),
    (AdGD2, {"step_size": math.inf}, "`AdGD2(step_size=...)`"),
    (ABBmin, {"tau": 1.0}, "`ABBmin(tau=...)` must lie in (0, 1)"),
    (ABBmin, {"memory": -1}, "`ABBmin(memory=...)`"),
    (ABBmin, {"eta": 2}, "`ABBmin(eta=...)`"),
    (ABBmin, {"max_step": math.inf}, "`ABBmin(max_step=...)`"),
    (ABBmin, {"min_step": 0}, "`ABBmin(min_step=...)`"),
    (CDAT, {"sigma": 0}, "`CDAT(sigma=...)`"),
    (CDAT, {"eps": 0}, "`CDAT(eps=...)`"),
    (FixedStep.from_constants, {"mu": -1, "lipschitz": 1}, "`FixedStep.from_constants(mu=...)`"),
    (FixedStep.from_constants, {"mu": 0, "lipschitz": 0}, "from_constants(lipschitz=...)`"),
    (HeavyBall.from_constants, {"mu": 0, "lipschitz": 1}, "`HeavyBall.from_constants(mu=...)`"),
    (Nesterov.from_constants, {"mu": 2, "lipschitz": 1}, "must lie in (0, lipschitz]"),
]


@pytest.mark.parametrize(("make", "settings", "message"), BAD)
def test_bad_settings_are_refused_at_construction(make, settings, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        make(**settings)
    assert message in str(caught.value)
    assert "got " in str(caught.value) or "Use one of" in str(caught.value)


def test_a_bounded_convex_problem_has_a_fixed_step_without_mu():
    assert FixedStep.from_constants(mu=0, lipschitz=4).step_size == 0.25


def test_the_table_has_every_method():
    names = {name for name in baselines.__all__ if hasattr(getattr(baselines, name), "step")}
    assert names == {type(method).__name__ for method in ALL}


MODULES = [module.name for module in pkgutil.iter_modules(baselines.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(f"firstish.baselines.{name}")
    assert doctest.testmod(module, extraglobs={"firstish": firstish}).failed == 0


@pytest.mark.parametrize("name", ["lr", "momentum", "betas", "weight_decay", "max_iter"])
@pytest.mark.parametrize("kind", [k for k in vars(baselines).values() if hasattr(k, "order")])
def test_a_keyword_of_torchs_optimizers_is_answered(kind, name):
    if name in kind.__dataclass_fields__:
        return
    with pytest.raises(TypeError, match=rf"`{kind.__name__}\({name}=...\)` is not an argument: "):
        kind(**{name: 0.1})


def test_lr_is_answered_with_step_size():
    with pytest.raises(TypeError, match="use `step_size`"):
        baselines.Adam(lr=0.1)

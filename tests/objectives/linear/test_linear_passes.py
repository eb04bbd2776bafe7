"""How often a linear model really looks at its features, counted at the matrix products."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from linear_cases import SETTINGS, Setting, make
from torch.utils._python_dispatch import TorchDispatchMode

from firstish import Armijo, LinearModel, ScaledGradient, baselines, families, minimize
from firstish.experiments.storage import checkpoints
from firstish.experiments.storage.rows import Mark
from firstish.loop import Limits, Run
from firstish.objectives.linear.model import REFRESH
from firstish.result import Status

SLOW = Setting(weight_decay=1e-4)
PRODUCTS = {"mm", "mv", "addmm", "addmv", "matmul", "linear", "_sparse_mm", "bmm", "dot"}


class Looks(TorchDispatchMode):
    """Counts the products in which a matrix as large as A, or its transpose, takes part."""

    def __init__(self, shape):
        super().__init__()
        self.shapes = {tuple(shape), tuple(shape)[::-1]}
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        shapes = {tuple(a.shape) for a in args if isinstance(a, torch.Tensor)}
        if func.overloadpacket.__name__ in PRODUCTS and shapes & self.shapes:
            self.count += 1
        return func(*args, **(kwargs or {}))


def looks_of(made, method, iterations, **limits):
    """The result, and the looks at A until each point was known."""
    with Looks(made.A.shape) as looks:
        counts = []
        result = minimize(
            made.linear,
            made.linear.initial(),
            method=method,
            gtol=0.0,
            max_iterations=iterations,
            callback=lambda progress: counts.append(looks.count),
            **limits,
        )
    return result, [2, *counts]


def prices(counts):
    return [b - a for a, b in pairwise(counts)]


DENSE_AND_SPARSE = pytest.mark.parametrize("setting", ["decay", "sparse", "all"])


@DENSE_AND_SPARSE
@pytest.mark.parametrize("case", ["logistic", "pinned", "multinomial"])
@pytest.mark.parametrize(
    ("scaling", "wanted"),
    [("CG", [2] * 8), ("MR", [3] * 8), ("GM", [3] * 8), ("CGMR", [2, 3] * 4), ("MRCG", [3, 2] * 4)],
)
def test_a_unit_step_looks_twice_for_cg_and_three_times_for_mr(case, scaling, wanted, setting):
    made = make(case, SETTINGS[setting], condition=10.0)
    result, counts = looks_of(made, ScaledGradient(scaling=scaling, sigma=0.0), 8)
    steps = result.history[:-1]
    assert {(row.step_size, row.trials) for row in steps} == {(1.0, 1)}
    assert prices(counts) == wanted
    assert [row.passes for row in result.history] == counts  # the meter tells the truth
    assert prices([row.oracle_calls for row in result.history]) == [4] * 8


def test_a_refused_trial_looks_at_nothing():
    made = make("pinned", SETTINGS["decay"])
    method = ScaledGradient(scaling="CG", line_search=Armijo(initial_step=64.0))
    result, counts = looks_of(made, method, 6)
    assert all(row.trials > 2 for row in result.history[:-1])
    assert prices(counts) == [2] * 6
    assert prices([row.oracle_calls for row in result.history]) == [
        3 + row.trials for row in result.history[:-1]
    ]


@pytest.mark.parametrize("reset", ["full", "limited"])
def test_a_line_search_looks_twice_however_many_trials_it_makes(reset):
    made = make("poisson", SETTINGS["decay"])
    result, counts = looks_of(made, baselines.LineSearch(reset=reset), 8)
    assert max(row.trials for row in result.history[:-1]) > 2
    assert prices(counts) == [2] * 8
    assert [row.passes for row in result.history] == counts


def test_scores_are_computed_anew_at_fixed_counts():
    made = make("pinned", SLOW, condition=100.0)
    result, counts = looks_of(
        made, ScaledGradient(scaling="MR", sigma=0.0), 2 * REFRESH + 5, max_oracle_calls=None
    )
    assert {row.trials for row in result.history[:-1]} == {1}
    assert prices(counts) == [3 + (k % REFRESH == 0) for k in range(1, 2 * REFRESH + 6)]


def test_the_curvature_and_the_product_along_one_vector_are_paid_for_once():
    made = make("logistic", SETTINGS["decay"])
    point = made.linear.at(torch.ones(made.size))
    v = torch.arange(float(made.size))
    spent = []
    for ask in (
        lambda: point.grad,
        lambda: point.curvature(v),
        lambda: point.hvp(v),
        lambda: point.curvature(v),
        lambda: point.along(v, 0.1).value,
        lambda: point.hvp(v + 1),
    ):
        ask()
        spent.append((point.meter.oracle_calls, point.meter.passes))
    assert spent == [(2, 2), (4, 3), (4, 4), (4, 4), (5, 4), (7, 6)]


def test_a_released_point_computes_its_scores_again():
    made = make("logistic", SETTINGS["decay"])
    x = torch.ones(made.size)
    point, wanted = made.linear.at(x), made.linear.at(x)
    _ = point.grad
    point.release()
    torch.testing.assert_close(point.hvp(x).vector, wanted.hvp(x).vector, rtol=0, atol=0)


def drift(objective, point):
    """How far the carried scores are from A x."""
    fresh = objective.features.times(point.x)
    return float((point._scores() - fresh).norm() / fresh.norm())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_carried_scores_stay_close_to_those_of_x(dtype):
    made = make("pinned", SLOW, dtype, condition=100.0)
    run = Run(made.linear, made.linear.initial(), ScaledGradient(scaling="MR", sigma=0.0))
    seen = []
    for _ in range(REFRESH + 3):
        assert not isinstance(run.advance(Limits()), Status)
        seen.append(drift(made.linear, run.point))
    assert seen[REFRESH - 1] == 0  # computed from x
    assert seen[REFRESH - 2] > 0  # carried
    assert max(seen) <= 20 * torch.finfo(dtype).eps


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scaling", ["CGMR", "MR"])
@pytest.mark.parametrize("cut", [1, 30, REFRESH - 1, REFRESH, REFRESH + 1])
def test_a_run_saved_at_any_step_goes_on_to_the_same_bits(tmp_path, sparse, scaling, cut):
    made = make("pinned", replace(SLOW, sparse=sparse), condition=100.0)
    method, limits = ScaledGradient(scaling=scaling, sigma=0.0), Limits()
    x0 = made.linear.initial()

    def rows(run, count):
        return [run.advance(limits)._replace(seconds=0) for _ in range(count)]

    whole = Run(made.linear, x0, method)
    steps = REFRESH + 20
    wanted, end = rows(whole, steps), whole.here()._replace(seconds=0)
    begun = Run(made.linear, x0, method)
    before = rows(begun, cut)
    checkpoints.save(tmp_path / "c.npz", begun.snapshot(), Mark())
    snapshot, _ = checkpoints.load(tmp_path / "c.npz", method.init(whole.point), x0)
    resumed = Run(made.linear, x0, method, resume=snapshot)
    assert before + rows(resumed, steps - cut) == wanted
    assert resumed.here()._replace(seconds=0) == end
    assert torch.equal(resumed.point.x, whole.point.x)


def test_without_its_scores_a_resumed_run_would_differ():
    """What the snapshot carries matters: the test above can fail."""
    made = make("pinned", SLOW, condition=100.0)
    run = Run(made.linear, made.linear.initial(), ScaledGradient(sigma=0.0))
    for _ in range(30):
        run.advance(Limits())
    fresh = made.linear.at(run.point.x)
    assert not torch.equal(run.point._scores(), fresh._scores())
    assert run.snapshot().inherited[1] == 30
    assert fresh.inherited() == ()


def test_no_copy_of_strided_features_is_made():
    A = torch.rand(5, 3)
    objective = LinearModel(A, torch.ones(5), families.LeastSquares(), intercept=True)
    assert objective.features._A.data_ptr() == A.data_ptr()

"""Step by step beside straight-line NumPy references of the methods beyond the paper."""

from itertools import pairwise

import beyond
import numpy as np
import paper
import pytest
import torch
from test_reference import logistic, wells
from tolerances import bounded, distance

from firstish import (
    AdamDirection,
    Anneal,
    FunctionObjective,
    LazyStep,
    MomentumDirection,
    NonMonotone,
    PlaneStep,
    ScaledDirection,
    ScaledGradient,
    minimize,
)

LOGISTIC = logistic, (paper.logistic_f, paper.logistic_g, paper.logistic_Hv)
WELLS = wells, (paper.wells_f, paper.wells_g, paper.wells_Hv)
STARTS = [[0.05, 0.1, 0.02], [0.1, -0.05, 0.6], [1.7, 0.3, -0.2]]


def note_of(row):
    return row.scaling or row.curvature.name


def expected(reference, problem, x0, **options):
    """The reference's decisions and numbers, with the tolerances of these."""

    def run(f, g, Hv):
        return [
            ((note, trials, s > 0), (x, np.log(np.abs(s)), np.log(alpha), f(x)))
            for x, note, s, alpha, trials in reference(f, g, Hv, np.array(x0), **options)
        ]

    return bounded(run, problem[1])


def side_by_side(problem, x0, method, theirs, note=note_of, product="double-backward"):
    """Our rows, after checking that they agree with the reference's."""
    xs = [torch.tensor(x0)]
    ours = minimize(
        FunctionObjective(problem[0], xs[0], product=product),
        xs[0],
        method=method,
        gtol=0,
        max_iterations=len(theirs),
        callback=lambda p: xs.append(p.x.clone()),
    )
    rows = [row for row in ours.history[:-1] if row.grad_norm > 1e-5]  # then rounding decides
    assert min(len(rows), len(theirs)) >= 8
    # A difference of gradients has an error of sqrt(eps), 1e-8, which grows from step to step.
    rows, coarse = (rows, 0.0) if product == "double-backward" else (rows[:3], 1e-6)
    for row, x, (decided, numbers, bounds) in zip(rows, xs, theirs, strict=False):
        assert (note(row), row.trials, row.scale > 0) == decided
        mine = x.numpy(), np.log(np.abs(row.scale)), np.log(row.step_size), row.value
        for a, b, tolerance in zip(mine, numbers, bounds, strict=True):
            assert distance(a, b) <= max(tolerance, coarse)
    return rows


@pytest.mark.parametrize("memory", [1, 2, 3, 5])
def test_the_plane_step_on_logistic_regression(memory):
    theirs = expected(beyond.plane, LOGISTIC, [0.0] * 6, sigma=0.0, steps=20, memory=memory)
    rows = side_by_side(LOGISTIC, [0.0] * 6, PlaneStep(sigma=0.0, memory=memory), theirs)
    assert [row.scaling for row in rows[:4]] == ["CG", "plane", "plane", "plane"]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("sigma", [0.1, 0.5])
@pytest.mark.parametrize("memory", [1, 3])
def test_the_plane_step_on_a_nonconvex_function(start, sigma, memory):
    theirs = expected(beyond.plane, WELLS, start, sigma=sigma, steps=16, memory=memory)
    side_by_side(WELLS, start, PlaneStep(sigma=sigma, memory=memory), theirs)


def test_the_plane_step_meets_every_case():
    theirs = beyond.plane(*WELLS[1], np.array(STARTS[0]), sigma=0.5, steps=16)
    assert {note for _, note, *_ in theirs} == {"NC", "LPC", "CG", "plane"}


def test_the_settings_reach_the_plane_step():
    options = {"sigma": 0.3, "s_lpc": 0.5, "s_nc": 3.0}
    theirs = expected(beyond.plane, WELLS, STARTS[0], steps=16, **options)
    side_by_side(WELLS, STARTS[0], PlaneStep(**options), theirs)


@pytest.mark.parametrize("memory", [1, 3, 10, "auto"])
@pytest.mark.parametrize("self_scaled", [True, False])
def test_the_lazy_step_on_logistic_regression(memory, self_scaled):
    """With all pairs kept, this is full-matrix self-scaled BFGS."""
    options = {} if memory == "auto" else {"memory": memory}
    theirs = expected(
        beyond.lazy, LOGISTIC, [0.0] * 6, self_scaled=self_scaled, steps=20, **options
    )
    method = LazyStep(memory=memory, self_scaled=self_scaled)
    rows = side_by_side(LOGISTIC, [0.0] * 6, method, theirs, lambda row: row.product)
    assert {row.product for row in rows} == {None}
    most = len(rows) if memory == "auto" else memory
    assert [row.pairs for row in rows] == [min(k, most) for k in range(len(rows))]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("product", ["double-backward", "auto", "difference"])
def test_the_lazy_step_on_a_nonconvex_function(start, product):
    theirs = expected(beyond.lazy, WELLS, start, steps=14)
    side_by_side(WELLS, start, LazyStep(), theirs, lambda row: row.product, product)


def test_the_lazy_references_meet_products_cuts_and_forward_tracking():
    runs = [beyond.lazy(*WELLS[1], np.array(start), steps=14) for start in STARTS]
    rows = [row for run in runs for row in run]
    assert {note for _, note, *_ in rows} == {"curvature", None}
    assert any(alpha > 1 for *_, alpha, _ in rows)
    assert any(alpha < 1 and alpha not in (0.5, 0.25) for *_, alpha, _ in rows)


@pytest.mark.parametrize("rule", ["ASD", "DY", "SDC"])
def test_a_rule_on_logistic_regression(rule):
    theirs = expected(beyond.ruled, LOGISTIC, [0.0] * 6, rule=rule, sigma=0.0, steps=24)
    rows = side_by_side(LOGISTIC, [0.0] * 6, ScaledGradient(scaling=rule, sigma=0.0), theirs)
    turns = {"ASD": {"ASD"}, "DY": {"CG", "Y"}, "SDC": {"CG", "Y", "held"}}
    assert {row.scaling for row in rows} == turns[rule]


@pytest.mark.parametrize("rule", ["ASD", "DY", "SDC"])
@pytest.mark.parametrize("start", STARTS)
def test_a_rule_on_a_nonconvex_function(rule, start):
    theirs = expected(beyond.ruled, WELLS, start, rule=rule, sigma=0.1, steps=16)
    side_by_side(WELLS, start, ScaledGradient(scaling=rule.lower(), sigma=0.1), theirs)


def test_the_rules_begin_again_after_other_curvature_and_after_a_cut():
    runs = [
        beyond.ruled(*WELLS[1], np.array(start), rule="DY", sigma=0.1, steps=16) for start in STARTS
    ]
    followed = [(one, two) for run in runs for one, two in pairwise(run)]
    after = {"NC": set(), "cut": set()}
    for (_, note, _, _, trials), (_, following, *_) in followed:
        if note == "NC":
            after["NC"].add(following)
        elif trials > 1:
            after["cut"].add(following)
    assert after["NC"] <= {"NC", "LPC", "CG"}
    assert "CG" in after["NC"]
    assert after["cut"] == {"CG", "LPC"}


@pytest.mark.parametrize(
    ("kind", "direction"), [("adam", AdamDirection()), ("momentum", MomentumDirection())]
)
def test_a_scaled_direction(kind, direction):
    theirs = expected(beyond.directed, LOGISTIC, [0.0] * 6, kind=kind, sigma=0.0, steps=20)
    rows = side_by_side(
        LOGISTIC, [0.0] * 6, ScaledDirection(direction=direction, sigma=0.0), theirs
    )
    assert "direction" in {row.scaling for row in rows}
    for start in STARTS:
        options = {"sigma": 0.1, "s_lpc": 0.5, "s_nc": 2.0}
        theirs = expected(beyond.directed, WELLS, start, kind=kind, steps=12, **options)
        side_by_side(WELLS, start, ScaledDirection(direction=direction, **options), theirs)


def test_annealed_steps_with_a_non_monotone_search():
    theirs = expected(beyond.annealed, LOGISTIC, [0.0] * 6, steps=25, over=20)
    method = ScaledGradient(
        scaling="CG", sigma=0.0, line_search=NonMonotone(schedule=Anneal(iterations=20))
    )
    rows = side_by_side(LOGISTIC, [0.0] * 6, method, theirs)
    assert any(row.actual_decrease < 0 for row in rows)  # f rose, and was allowed to
    firsts = [row.step_size / 0.5 ** (row.trials - 1) for row in rows]
    assert firsts == pytest.approx([2.0 - min(1.0, k / 20) for k in range(len(rows))])

"""The rules ASD, DY and SDC: where their scales lie, and when they begin again."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from testbed import DensePoint

from firstish import (
    Anneal,
    Armijo,
    FunctionObjective,
    NonMonotone,
    ScaledGradient,
    baselines,
    minimize,
)
from firstish.line_search import SearchState
from firstish.methods.rules import RuleMemory, rule_scale, yuan
from firstish.methods.scaled_gradient import CycleState, cycle_of
from firstish.scaling import Angle, scale

angles = st.builds(
    Angle,
    st.floats(1e-8, 1e8),
    st.floats(1e-8, 1e8),
    st.floats(1e-3, 1.0),
    error=st.just(0.0),
    partial=st.just(False),
)
memories = st.builds(RuleMemory, st.floats(1e-8, 1e8), st.floats(1e-8, 1e8), st.floats(1e-8, 1e8))


@given(angles, memories, st.sampled_from(["ASD", "Y", "held"]))
def test_every_rule_keeps_within_cg_and_a_tenth_of_mr(angle, memory, name):
    s = rule_scale(name, angle, 0.0, memory)
    CG, MR = scale("CG", angle, 0.0), scale("MR", angle, 0.0)
    assert 0.1 * MR <= s <= CG
    if name == "ASD":
        assert s >= MR * (1 - 1e-15)


@given(angles, memories)
def test_yuans_step_is_at_most_both_cg_steps_by_itself(angle, memory):
    assert yuan(angle, memory) <= min(1 / memory.curvature, 1 / angle.rayleigh) * (1 + 1e-12)


@given(angles, st.floats(1e-6, 1.0), st.sampled_from(["ASD", "Y", "held"]))
def test_no_rule_exceeds_one_over_sigma(angle, share, name):
    sigma = share * angle.rayleigh
    memory = RuleMemory(angle.rayleigh, angle.grad_norm, 1e300)
    assert rule_scale(name, angle, sigma, memory) <= 1 / sigma


def test_yuans_step_ends_a_quadratic_in_two_dimensions():
    """CG, then Y, then CG: in two dimensions the third step lands on the minimiser (Yuan 2006)."""
    for ratio in (2.0, 30.0, 1000.0):
        h, x = np.array([1.0, ratio]), np.array([1.0, 0.7])
        a = length = None
        for name in ("CG", "Y", "CG"):
            g = h * x
            Hg = h * g
            cosine = g @ Hg / np.linalg.norm(g) / np.linalg.norm(Hg)
            angle = Angle(float(np.linalg.norm(g)), float(np.linalg.norm(Hg)), float(cosine))
            s = scale("CG", angle, 0.0) if name == "CG" else yuan(angle, RuleMemory(a, length))
            a, length = angle.rayleigh, s * angle.grad_norm
            x = x - s * g
        assert np.linalg.norm(x) < 1e-10


def test_asd_takes_the_short_step_above_a_half_and_a_shortened_long_one_below():
    close = Angle(1.0, 2.0, math.sqrt(0.51))
    far = Angle(1.0, 2.0, math.sqrt(0.49))
    MR, CG = scale("MR", close, 0.0), scale("CG", close, 0.0)
    assert rule_scale("ASD", close, 0.0, RuleMemory()) == MR
    MR, CG = scale("MR", far, 0.0), scale("CG", far, 0.0)
    assert rule_scale("ASD", far, 0.0, RuleMemory()) == CG - MR / 2


@pytest.mark.parametrize("name", ["asd", "Dy", "SDC"])
def test_a_rule_is_one_word_in_any_letters(name):
    assert ScaledGradient(scaling=name).scaling == name
    assert cycle_of(name) == cycle_of(name.upper())


@pytest.mark.parametrize("name", ["ASDCG", "CGDY", "Y", "held", "SD", ""])
def test_rules_do_not_mix_with_cycles(name):
    with pytest.raises(ValueError, match=r"is unknown. Use 'CG'.*'ASD', 'DY' and 'SDC'"):
        ScaledGradient(scaling=name)


H = np.diag([1.0, 3.0, 10.0])


def quadratic_point(x):
    return DensePoint(torch.tensor(x), lambda z: z @ H @ z / 2, lambda z: H @ z, lambda z: H)


def test_dy_and_sdc_take_their_scales_in_order():
    for rule, names in (("DY", "CG CG Y Y"), ("SDC", "CG CG CG CG Y held held held")):
        method, point = ScaledGradient(scaling=rule, sigma=0.0), quadratic_point([1.0, 1.0, 1.0])
        state, seen, scales = method.init(point), [], []
        for _ in range(8):
            point, step, state = method.step(point, state)
            seen.append(step.scaling)
            scales.append(step.scale)
        assert seen == (names.split() * 2)[:8]
        if rule == "SDC":
            assert scales[5] == scales[4]  # held, and not cut


@pytest.mark.parametrize("rule", ["DY", "SDC"])
def test_a_cut_step_begins_the_rule_again(rule):
    method = ScaledGradient(scaling=rule, sigma=0.0, line_search=Armijo(initial_step=3.0))
    state = CycleState(turns=2, memory=(1.0, 1.0, 0.5))
    _, step, after = method.step(quadratic_point([1.0, 1.0, 1.0]), CycleState(turns=0))
    assert step.trials > 1
    assert (after.turns, after.memory) == (0, ())
    _, step, after = ScaledGradient(scaling=rule, sigma=1e3).step(
        quadratic_point([1.0, 1.0, 1.0]), state
    )
    assert step.curvature.name == "LPC"
    assert (after.turns, after.memory) == (0, ())


def test_a_cycle_keeps_no_memory_and_is_not_begun_again_by_a_cut():
    method = ScaledGradient(scaling="CGMR", sigma=0.0, line_search=Armijo(initial_step=3.0))
    _, step, after = method.step(quadratic_point([1.0, 1.0, 1.0]), CycleState(turns=1))
    assert step.trials > 1
    assert after == CycleState(turns=2)


# Schedules and the non-monotone search


def test_twice_the_cg_step_leaves_a_quadratic_where_it_was_and_armijo_refuses_it():
    point = quadratic_point([1.0, 2.0, 3.0])
    step = ScaledGradient(scaling="CG", sigma=0.0, line_search=Armijo(initial_step=2.0)).step(
        point, CycleState()
    )[1]
    assert (step.trials, step.step_size) == (2, 1.0)
    search = NonMonotone(initial_step=2.0)
    method = ScaledGradient(scaling="CG", sigma=0.0, line_search=search)
    past = CycleState(search=(0, 1.0, point.value + 10.0))
    new, step, after = method.step(point, past)
    assert (step.trials, step.step_size) == (1, 2.0)
    assert new.value == pytest.approx(point.value, rel=1e-14)
    assert SearchState(*after.search).mean == pytest.approx(
        (0.85 * past.search[2] + point.value) / 1.85
    )


def test_f_stays_below_its_mean_and_the_mean_never_rises():
    h = torch.logspace(0, 3, 30)
    schedule = Anneal(iterations=100, start=2.2)
    search = NonMonotone(schedule=schedule)
    method = ScaledGradient(scaling="CG", sigma=0.0, line_search=search)
    x0 = torch.ones(30)
    point = FunctionObjective(lambda x: (h * x**2).sum() + torch.cosh(x[0]), x0).at(x0)
    state, means, rises = method.init(point), [math.inf], 0
    for _ in range(100):
        new, _, state = method.step(point, state)
        rises += new.value > point.value
        means.append(SearchState(*state.search).mean)
        assert new.value <= SearchState(*state.search).mean
        assert means[-1] <= means[-2] * (1 + 1e-15)
        point = new
    assert rises > 5


def test_a_schedule_multiplies_the_first_step_and_eta_zero_is_armijo():
    h = torch.tensor([1.0, 5.0, 20.0])
    runs = [
        minimize(
            lambda x: (h * x**2).sum(),
            torch.ones(3),
            method=ScaledGradient(line_search=replace(search, schedule=schedule)),
            max_iterations=12,
        ).x
        for search, schedule in (
            (Armijo(), None),
            (NonMonotone(eta=0.0), None),
            (Armijo(initial_step=2.0), lambda k: 0.5),
        )
    ]
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: NonMonotone(eta=1.1), ValueError, r"`NonMonotone\(eta=...\)`.*got 1.1"),
        (lambda: NonMonotone(rho=0.7), ValueError, r"`Armijo\(rho=...\)`.*got 0.7"),
        (lambda: Anneal(iterations=0), ValueError, r"`Anneal\(iterations=...\)`.*got 0"),
        (lambda: Anneal(iterations=1.5), TypeError, r"`Anneal\(iterations=...\)`.*got 1.5"),
        (lambda: Anneal(iterations=5, end=0.0), ValueError, r"`Anneal\(end=...\)`.*got 0.0"),
        (lambda: Armijo(schedule=2.0), TypeError, r"schedule=...\)`.*Anneal.*got 2.0"),
    ],
)
def test_bad_settings_are_refused_at_construction(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("method", "past"),
    [
        (
            ScaledGradient(line_search=NonMonotone(initial_step=2.0), sigma=0),
            {"search": (0, 1.0, 10.0)},
        ),
        (baselines.ABBmin(), {"weight": 1.0, "mean": 10.0}),
    ],
    ids=["NonMonotone", "ABBmin"],
)
def test_below_a_mean_a_null_step_is_no_progress(method, past):
    # The step of 1 to the minimiser is below the last place of x = 2^60, and the mean above f(x).
    x0 = torch.tensor([2.0**60], dtype=torch.float64)
    objective = FunctionObjective(lambda x: ((x - 2.0**60 - 1) ** 2).sum() / 2, x0)
    point = objective.at(x0, method.order)
    state = replace(method.init(point), **past)
    new, step, after = method.step(point, state)
    assert (new, after) == (point, state)
    assert (step.step_size, step.failure is None) == (0.0, False)

"""The cycle of scalings: its names, and that it advances on SPC steps only."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from firstish import Armijo, Point, ScaledGradient, minimize
from firstish.methods import Failure
from firstish.objectives import Meter, Product
from firstish.scaling import Curvature, parse_cycle

SPC, LPC, NC = Curvature
CASES = {SPC: (2.0, 1.0), LPC: (0.5, 2.0), NC: (-1.0, 3.0)}  # Hg for g = (1, 0)
FORMULA = {"CG": 1 / 2, "MR": 2 / 5, "GM": 1 / math.sqrt(5)}


class Scripted(Point):
    """g = (1, 0) everywhere, f falls by its slope, and the k-th point has the k-th case."""

    eps = 2.0**-52

    def __init__(self, cases, x=None, k=0, meter=None):
        super().__init__(torch.zeros(2) if x is None else x, meter or Meter(), 2)
        self.cases = cases
        self.k = k

    def at(self, x, order=2):
        return Scripted(self.cases, x, self.k + 1, self.meter)

    def _value(self):
        return float(self.x[0])

    def _gradient(self):
        return torch.tensor([1.0, 0.0])

    def _product(self, v):
        return Product(torch.tensor(CASES[self.cases[self.k]]))


def play(scaling, cases):
    method = ScaledGradient(scaling=scaling, sigma=1.0, line_search=Armijo(max_trials=2))
    point = Scripted(cases)
    state = method.init(point)
    steps = []
    for _ in cases:
        point, step, state = method.step(point, state)
        steps.append(step)
    return steps, state


@given(
    st.lists(st.sampled_from(["CG", "MR", "GM"]), min_size=1, max_size=4),
    st.lists(st.sampled_from([SPC, LPC, NC]), min_size=1, max_size=12),
)
def test_the_cycle_advances_on_spc_steps_only(names, cases):
    steps, state = play("".join(names), cases)
    turn = 0
    for step, case in zip(steps, cases, strict=True):
        assert step.curvature is case
        assert step.scaling == (names[turn % len(names)] if case is SPC else None)
        assert step.scale == pytest.approx(FORMULA[step.scaling] if case is SPC else 1.0)
        turn += case is SPC
    assert state.turns == turn


@pytest.mark.parametrize("case", [LPC, NC])
def test_other_steps_leave_the_turn_where_it_is(case):
    steps, _ = play("CGMR", [SPC, case, case, case, SPC, SPC])
    assert [s.scaling for s in steps] == ["CG", None, None, None, "MR", "CG"]


def test_a_failed_search_leaves_the_turn_where_it_is():
    class Wall(Scripted):
        def at(self, x, order=2):
            return Wall(self.cases, x, self.k, self.meter)

        def _value(self):
            return 0.0 if float(self.x[0]) == 0 else 1.0

    point = Wall([SPC])
    method = ScaledGradient(line_search=Armijo(max_trials=3))
    same, step, state = method.step(point, method.init(point))
    assert same is point
    assert (step.failure, step.step_size, step.trials) == (Failure.GRADIENT, 0.0, 3)
    assert state.turns == 0


def test_negative_curvature_tracks_forward_and_the_rest_does_not():
    for case, trials in ((SPC, 1), (LPC, 1), (NC, 2)):
        ((step,), _) = play("CG", [case])
        assert (step.curvature, step.trials, step.step_size) == (case, trials, float(trials))


@given(st.lists(st.sampled_from(["CG", "MR", "GM"]), min_size=1, max_size=5), st.data())
def test_names_are_read_in_any_case_of_letters(names, data):
    word = "".join(names)
    flips = data.draw(st.lists(st.booleans(), min_size=len(word), max_size=len(word)))
    mixed = "".join(c.lower() if low else c for c, low in zip(word, flips, strict=True))
    assert parse_cycle(mixed) == tuple(names)


@pytest.mark.parametrize("bad", ["", "C", "CGM", "CG MR", "CG-MR", "SD", None, 3, "GMC", "CG\n"])
def test_unknown_names_are_refused_at_construction(bad):
    with pytest.raises(ValueError, match="scaling"):
        ScaledGradient(scaling=bad)


def test_a_run_through_a_saddle_alternates_over_its_spc_steps():
    x0 = torch.tensor([0.01, 1.0, 0.7])
    weights = torch.tensor([1.0, 5.0, 2.0])
    fun = lambda x: (x[0] ** 2 - 1) ** 2 / 4 + (weights * x**2)[1:].sum() / 2  # noqa: E731
    result = minimize(fun, x0, method=ScaledGradient(scaling="cgMRgm"), gtol=1e-8)
    cases = [row.curvature for row in result.history[:-1]]
    used = [row.scaling for row in result.history[:-1] if row.curvature is SPC]
    assert result.success
    assert SPC in cases[: cases.index(NC)]  # before and after the negative curvature
    assert SPC in cases[cases.index(NC) :]
    assert used == [("CG", "MR", "GM")[k % 3] for k in range(len(used))]

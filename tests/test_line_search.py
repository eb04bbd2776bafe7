"""The line search alone, in pure Python: phi in, alpha out."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from firstish import Armijo
from firstish.line_search import NOISE_ULPS, LineFunction

EPS = 2.0**-52


class Phi:
    """f along a ray, a record of what was asked, and faults on request."""

    def __init__(self, f, slope, derivative=None, moves=True, usable=lambda alpha: True):
        self.f = f
        self.slope = slope
        self.derivative = derivative
        self.moves = moves
        self.usable = usable
        self.tried = []
        self.slopes = []

    def ray(self):
        return LineFunction(value=self.f(0.0), slope=self.slope, trial=self.trial, eps=EPS)

    def trial(self, alpha):
        self.tried.append(alpha)
        return FakeTrial(self, alpha)


@dataclass
class FakeTrial:
    phi: Phi
    alpha: float
    linear: float | None = None

    @property
    def value(self):
        return self.phi.f(self.alpha)

    def slope(self):
        self.phi.slopes.append(self.alpha)
        return self.phi.derivative(self.alpha)

    def moved(self):
        return self.phi.moves

    def usable(self):
        return self.phi.usable(self.alpha)


def quadratic(h):
    """-alpha + h alpha^2/2: Armijo holds up to 2(1-rho)/h. At h = 2 it is back at 0 for 1."""
    return Phi(lambda a: -a + h * a * a / 2, -1.0, lambda a: -1 + h * a)


def up_to(limit):
    """Decreases by its slope until `limit`, and is too high beyond."""
    return Phi(lambda a: -a if a <= limit else 1.0, -1.0)


# Backtracking


@given(st.floats(0.1, 1e6), st.floats(0, 0.49), st.floats(0.05, 0.95), st.floats(0.1, 10))
def test_backtracking_returns_the_first_power_of_theta_that_armijo_accepts(h, rho, theta, first):
    phi = quadratic(h)
    search = Armijo(rho=rho, theta=theta, initial_step=first, max_trials=1000)
    found = search.backtrack(phi.ray())
    f = phi.f
    alphas = [first]
    while not f(alphas[-1]) <= -rho * alphas[-1]:
        alphas.append(alphas[-1] * theta)
    assert phi.tried == alphas
    assert (found.step_size, found.trials) == (alphas[-1], len(alphas))
    assert found.trial.alpha == alphas[-1]
    assert phi.slopes == []


@pytest.mark.parametrize(("rho", "accepted"), [(0.0, 0.5), (0.24, 0.5), (0.26, 0.25), (0.49, 0.25)])
def test_rho_decides_how_much_decrease_is_enough(rho, accepted):
    # With h = 3 Armijo holds up to 2(1-rho)/3.
    assert Armijo(rho=rho).backtrack(quadratic(3.0).ray()).step_size == accepted


def test_equality_is_accepted():
    phi = Phi(lambda a: -0.25 * a, -1.0)
    assert Armijo(rho=0.25).backtrack(phi.ray()).trials == 1


def test_a_unit_step_is_one_trial():
    phi = quadratic(1.0)
    found = Armijo().backtrack(phi.ray())
    assert (found.step_size, found.trials, phi.tried) == (1.0, 1, [1.0])


def test_backtracking_ends_at_the_cap_empty_handed():
    phi = Phi(lambda a: 1.0 if a else 0.0, -1.0)
    found = Armijo(max_trials=7).backtrack(phi.ray())
    assert (found.trial, found.step_size, found.trials) == (None, 0.0, 7)
    assert phi.tried == [0.5**k for k in range(7)]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_trials_are_refused(bad):
    phi = Phi(lambda a: bad if a > 0.3 else -a, -1.0)
    found = Armijo().backtrack(phi.ray())
    assert (found.step_size, found.trials) == (0.25, 3)
    phi = Phi(lambda a: bad if a > 0.3 else -a, -1.0)
    found = Armijo().forward_track(phi.ray())
    assert (found.step_size, phi.tried) == (0.25, [1.0, 0.5, 0.25])


def test_a_trial_whose_gradient_is_not_finite_is_refused():
    phi = Phi(lambda a: -a, -1.0, usable=lambda alpha: alpha < 0.3)
    assert Armijo().backtrack(phi.ray()).step_size == 0.25
    phi = Phi(lambda a: -a if a < 5 else 1.0, -1.0, usable=lambda alpha: alpha < 3)
    found = Armijo().forward_track(phi.ray())  # 1, 2, 4 pass, 8 does not, 4 is of no use: back to 2
    assert (found.step_size, phi.tried) == (2.0, [1.0, 2.0, 4.0, 8.0, 2.0])


# Forward tracking


@given(st.floats(0.01, 1000), st.floats(0.1, 0.9))
def test_forward_tracking_returns_the_last_accepted_step(limit, theta):
    phi = up_to(limit)
    found = Armijo(theta=theta, max_trials=10_000).forward_track(phi.ray())
    assert found.step_size <= limit
    assert found.trial.alpha == found.step_size
    assert found.trials == len(phi.tried)
    if limit >= 1:
        assert found.step_size / theta > limit
        assert phi.tried[-2:] == [found.step_size, found.step_size / theta]
    else:
        assert found.step_size / theta > limit * (1 - 1e-12)
        assert phi.tried[-1] == found.step_size


def test_forward_tracking_grows_by_one_over_theta():
    phi = up_to(5.0)
    found = Armijo().forward_track(phi.ray())
    assert (found.step_size, found.trials, phi.tried) == (4.0, 4, [1.0, 2.0, 4.0, 8.0])


def test_forward_tracking_backtracks_when_the_first_step_is_refused():
    phi = up_to(0.3)
    found = Armijo().forward_track(phi.ray())
    assert (found.step_size, found.trials, phi.tried) == (0.25, 3, [1.0, 0.5, 0.25])


@pytest.mark.parametrize("rho", [0.0, 1e-4])
def test_forward_tracking_on_f_unbounded_below_ends_at_the_cap_with_the_last_accepted(rho):
    phi = Phi(lambda a: -a - a * a, -1.0)
    found = Armijo(rho=rho, max_trials=9).forward_track(phi.ray())
    assert (found.step_size, found.trials, len(phi.tried)) == (2.0**8, 9, 9)
    assert found.trial.alpha == 2.0**8


def test_forward_tracking_with_rho_zero_on_f_that_flattens_ends_at_the_cap():
    phi = Phi(lambda a: -a / (1 + a), -1.0)  # decreases for ever, to -1
    found = Armijo(rho=0.0, max_trials=12).forward_track(phi.ray())
    assert (found.step_size, found.trials) == (2.0**11, 12)
    assert Armijo(rho=0.1, max_trials=12).forward_track(phi.ray()).step_size == 8.0


def test_a_step_is_lengthened_to_the_minimum_of_a_parabola():
    phi = quadratic(0.02)  # lowest at 50
    found = Armijo().lengthen(phi.ray(), 1.0)
    assert phi.tried == pytest.approx([1.0, 10.0])  # where f falls short of its tangent by 0.1
    assert (found.step_size, found.trials) == (pytest.approx(10.0), 2)
    phi = quadratic(0.09)  # short by 0.045 at 1, lowest at 11.1, beyond 10 times the step
    assert Armijo().lengthen(phi.ray(), 1.0).step_size == pytest.approx(10.0)
    phi = quadratic(0.06)  # lowest at 16.7, below 1/theta
    assert Armijo(theta=0.05).lengthen(phi.ray(), 1.0).step_size == pytest.approx(20.0)


def test_a_step_that_is_long_enough_is_not_lengthened():
    phi = quadratic(0.2)  # short by 0.1
    assert (Armijo().lengthen(phi.ray(), 1.0).step_size, phi.tried) == (1.0, [1.0])


def test_a_longer_step_that_f_refuses_is_not_taken():
    phi = up_to(1.5)
    found = Armijo().lengthen(phi.ray(), 1.0)
    assert (found.step_size, found.trials, phi.tried) == (1.0, 2, [1.0, 10.0])


def test_a_step_to_lengthen_that_is_refused_is_cut_to_the_minimum_of_a_parabola():
    phi = quadratic(4.0)
    found = Armijo().lengthen(phi.ray(), 1.0)
    assert (found.step_size, found.trials) == (pytest.approx(0.25), 2)


def test_lengthening_ends_at_the_cap_and_where_the_gradient_is_finite():
    phi = Phi(lambda a: -a - a * a, -1.0)
    assert Armijo(max_trials=4).lengthen(phi.ray(), 1.0).step_size == pytest.approx(1e3)
    phi = Phi(lambda a: -a if a < 50 else 1.0, -1.0, usable=lambda alpha: alpha < 6)
    found = Armijo().lengthen(phi.ray(), 1.0)
    assert (found.step_size, phi.tried) == (5.0, [1.0, 10.0, 100.0, 5.0])


def test_forward_tracking_stops_before_the_step_overflows():
    phi = Phi(lambda a: -1.0 if a else 0.0, -1e-320)
    found = Armijo(rho=0.0, theta=1e-200, max_trials=50).forward_track(phi.ray())
    assert (found.step_size, found.trials) == (1e200, 2)


def test_forward_tracking_refused_at_the_cap_comes_back_empty_handed():
    phi = Phi(lambda a: 1.0 if a else 0.0, -1.0)
    found = Armijo(max_trials=4).forward_track(phi.ray())
    assert (found.trial, found.step_size, found.trials) == (None, 0.0, 4)


def test_one_trial_is_a_search_too():
    assert Armijo(max_trials=1).backtrack(quadratic(1.0).ray()).step_size == 1.0
    assert Armijo(max_trials=1).forward_track(up_to(100.0).ray()).step_size == 1.0
    assert Armijo(max_trials=1).backtrack(quadratic(100.0).ray()).trial is None


@pytest.mark.parametrize("track", ["backtrack", "forward_track"])
def test_the_first_trial_is_the_initial_step(track):
    phi = quadratic(1.0)
    getattr(Armijo(initial_step=1.5), track)(phi.ray())
    assert phi.tried[0] == 1.5


# Rounding


def flat(change, derivative, moves=True):
    """f = 1 but for `change` ulps at every trial, the slope going from -1e-18 to `derivative`."""
    return Phi(lambda a: 1.0 + change * EPS * (a > 0), -1e-18, lambda a: derivative, moves)


@pytest.mark.parametrize("ulps", [0, 1, NOISE_ULPS])
def test_within_the_noise_the_slopes_decide(ulps):
    rho = 0.1  # accepted up to (2 rho - 1) slope = 0.8e-18
    assert Armijo(rho=rho).backtrack(flat(ulps, 0.79e-18).ray()).step_size == 1.0
    assert Armijo(rho=rho).backtrack(flat(ulps, -1e-18).ray()).step_size == 1.0
    found = Armijo(rho=rho, max_trials=5).backtrack(flat(ulps, 0.81e-18).ray())
    assert (found.trial, found.trials) == (None, 5)


def test_a_decrease_that_f_does_resolve_needs_no_slope():
    phi = flat(-1, math.nan)
    assert Armijo().backtrack(phi.ray()).step_size == 1.0
    assert phi.slopes == []


def test_above_the_noise_the_slopes_are_not_asked():
    phi = flat(NOISE_ULPS + 1, -1e-18)
    assert Armijo(max_trials=3).backtrack(phi.ray()).trial is None
    assert phi.slopes == []


@pytest.mark.parametrize("track", ["backtrack", "forward_track"])
def test_a_null_step_is_no_progress_and_shorter_ones_are_not_tried(track):
    phi = flat(0, -1e-18, moves=False)
    found = getattr(Armijo(max_trials=9), track)(phi.ray())
    assert (found.trial, found.step_size) == (None, 0.0)
    assert len(phi.tried) == found.trials <= 2


def test_a_slope_that_is_not_a_number_is_no_progress():
    assert Armijo(max_trials=3).backtrack(flat(0, math.nan).ray()).trial is None


def test_the_noise_is_that_of_the_arithmetic_f_is_computed_in():
    phi = flat(1000, -1e-18)  # 1000 ulps of float64, nothing in float32
    assert Armijo(max_trials=3).backtrack(phi.ray()).trial is None
    narrow = LineFunction(value=1.0, slope=-1e-18, trial=phi.trial, eps=2.0**-23)
    assert Armijo().backtrack(narrow).step_size == 1.0


def test_with_rho_zero_an_unchanged_f_is_not_a_decrease():
    # rho = 0 would take f = f(x) as accepted; the slope says that the step overshoots.
    assert Armijo(rho=0.0, max_trials=3).backtrack(flat(0, 1.1e-18).ray()).trial is None
    assert Armijo(rho=0.0, max_trials=3).backtrack(flat(0, 0.9e-18).ray()).step_size == 1.0


@given(st.floats(1e-3, 3), st.floats(0, 0.49))
def test_on_a_quadratic_the_slopes_decide_as_armijo_does(h, rho):
    """phi'(a) <= (2 rho - 1) phi'(0) and phi(a) <= rho a phi'(0) both say a <= 2(1-rho)/h."""
    largest = 2 * (1 - rho) / h  # between 1/4 and infinity: trials are at 1, 1/2 and 1/4
    assume(min(abs(largest - 1), abs(largest - 0.5)) > 1e-9)  # or rounding decides
    by_f = Armijo(rho=rho).backtrack(quadratic(h).ray())
    tiny = 1e-20  # phi scaled so that f = 1 cannot see it
    phi = Phi(lambda a: 1.0, -tiny, lambda a: tiny * (-1 + h * a))
    by_slopes = Armijo(rho=rho).backtrack(phi.ray())
    assert (by_slopes.step_size, by_slopes.trials) == (by_f.step_size, by_f.trials)


# A slope that f denies


@pytest.mark.parametrize("theta", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("interpolate", [True, False])
def test_a_slope_of_the_wrong_sign_is_not_accepted_where_f_cannot_tell(theta, interpolate):
    phi = Phi(
        lambda a: 1.0 + a, -1.0, derivative=lambda a: -1.0
    )  # f rises, the slopes say it falls
    found = Armijo(theta=theta, max_trials=500).backtrack(phi.ray(), interpolate=interpolate)
    assert found.trial is None
    assert len(phi.slopes) == 0
    assert phi.tried[-1] <= 1.1 * NOISE_ULPS * EPS  # it gave up where f had nothing more to say


@given(h=st.floats(2.5, 1e12), theta=st.floats(0.1, 0.9), power=st.sampled_from([1.5, 2, 3, 4]))
def test_an_overshoot_is_not_taken_for_a_wrong_slope(h, theta, power):
    """A smooth f whose trials are refused down to where rounding hides it is still followed."""
    phi = Phi(
        lambda a: 1.0 - 1e-9 * a + 1e-9 * h * a**power,
        -1e-9,
        derivative=lambda a: -1e-9 + power * 1e-9 * h * a ** (power - 1),
    )
    assert Armijo(theta=theta, max_trials=2000).backtrack(phi.ray()).trial is not None

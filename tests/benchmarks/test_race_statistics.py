"""The arithmetic of the race against examples worked by hand."""

import math

import pytest
from race import statistics as st
from race.board import Board, Cost, board
from race.store import Key, Result
from race.traces import Outcome, Steps, Trace, median_seconds


def test_the_target_is_more_and_wilds():
    assert st.target(10.0, 2.0, 0.25) == 4.0
    assert st.target(5.0, 5.0, 0.1) == 5.0
    assert st.target(3.0, -1.0, 1e-3) == pytest.approx(-0.996)


TRACE = Trace(calls=[2, 6, 11], seconds=[0.1, 0.3, 0.7], values=[9.0, 4.0, 1.0])


@pytest.mark.parametrize(
    ("value", "budget", "expected"),
    [
        (9.0, 100, (2, 0.1)),
        (4.0, 100, (6, 0.3)),  # equality counts
        (3.9, 100, (11, 0.7)),
        (0.5, 100, None),
        (1.0, 11, (11, 0.7)),
        (1.0, 10, None),  # an iteration that ran over the budget
    ],
)
def test_the_cost_is_that_of_the_first_iterate_within_the_budget(value, budget, expected):
    assert st.cost(TRACE, value, budget) == expected


def test_a_trace_keeps_the_best_so_far_and_nothing_else():
    trace = Trace()
    for calls, value in [(2, 5.0), (4, 7.0), (6, 5.0), (8, 3.0), (10, math.nan), (12, 2.0)]:
        trace.add(calls, calls / 10, value)
    assert trace == Trace([2, 8, 12], [0.2, 0.8, 1.2], [5.0, 3.0, 2.0])


def test_failures_are_charged_twice_the_budget():
    assert st.charged_calls(7.0, 100) == 7.0
    assert st.charged_calls(None, 100) == 200.0
    assert st.charged_seconds(0.5, 100, 40, 2.0) == 0.5
    # 40 calls took 2 s, so that 200 would have taken 10 s.
    assert st.charged_seconds(None, 100, 40, 2.0) == 10.0


def test_the_geometric_mean():
    assert st.geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    # Two solved at 10 and 1000, one failure at a budget of 50000: the cube root of 1e9.
    costs = [st.charged_calls(c, 50_000) for c in (10.0, 1000.0, None)]
    assert st.geometric_mean(costs) == pytest.approx(1000.0)


def test_the_ratio_is_the_quotient_of_the_geometric_means():
    ours, theirs = [1.0, 4.0, 6.0], [2.0, 2.0, 3.0]
    assert st.ratio(ours, theirs) == pytest.approx(2 ** (1 / 3))
    quotient = st.geometric_mean(ours) / st.geometric_mean(theirs)
    assert st.ratio(ours, theirs) == pytest.approx(quotient)


def test_the_interval_of_equal_ratios_is_a_point():
    assert st.interval([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]) == pytest.approx((2.0, 2.0))


def test_the_interval_of_two_problems_spans_both():
    # Resampling two ratios, 1/4 and 4, gives 1/4, 1, 1 and 4 with a probability of 1/4 each.
    assert st.interval([1.0, 4.0], [4.0, 1.0]) == pytest.approx((0.25, 4.0))
    low, high = st.interval([1.0, 4.0], [4.0, 1.0], level=0.4)
    assert (low, high) == pytest.approx((1.0, 1.0))


def test_the_interval_is_that_of_the_normal_approximation_for_many_problems():
    logs = [math.sin(k) for k in range(400)]
    ours = [math.exp(x) for x in logs]
    low, high = st.interval(ours, [1.0] * 400)
    mean = sum(logs) / 400
    error = math.sqrt(sum((x - mean) ** 2 for x in logs) / 400 / 400)
    assert math.log(low) == pytest.approx(mean - 1.96 * error, abs=0.15 * error)
    assert math.log(high) == pytest.approx(mean + 1.96 * error, abs=0.15 * error)
    assert (low, high) == st.interval(ours, [1.0] * 400)  # the same each time


def test_a_performance_profile_by_hand():
    costs = {"a": [10.0, 30.0, None, None], "b": [20.0, 10.0, 5.0, None]}
    ratios = st.performance_ratios(costs)
    assert ratios == {"a": [1.0, 3.0, math.inf, math.inf], "b": [2.0, 1.0, 1.0, math.inf]}
    assert [st.fraction_within(ratios["a"], t) for t in (1, 2.9, 3, 100)] == [0.25, 0.25, 0.5, 0.5]
    assert [st.fraction_within(ratios["b"], t) for t in (1, 2, 100)] == [0.5, 0.75, 0.75]


def outcome(values, calls, **more):
    trace = Trace(calls, [c / 100 for c in calls], values)
    return Outcome("TARGET", trace, calls[-1], calls[-1] / 100, Steps(), **more)


def result(problem, method, done, budget=1000):
    return Result(Key(problem, method, "", budget, 10.0), done, "today")


def test_a_board_by_hand():
    # beale's minimum is 0, so that from f0 = 10 the first target is 0.01.
    fast = result("beale", "fast", outcome([10.0, 0.005], [2, 20]))
    slow = result("beale", "slow", outcome([10.0, 0.5], [2, 500], other_calls=70.0))
    found = {("beale", "fast"): fast, ("beale", "slow"): slow}
    table = board(["beale"], ["fast", "slow"], found, found.values())
    assert table.references == {"beale": 0.0}
    assert table.methods == ("fast", "slow", "slow +grid")
    assert table.costs[1e-3]["fast"] == [Cost(20, 0.2, 20, 0.2)]
    assert table.costs[1e-3]["slow"] == [Cost(None, None, 2000.0, pytest.approx(20.0))]
    assert table.calls("slow +grid", 1e-3) == [2070.0]
    assert [table.solved(m, 1e-3) for m in table.methods] == [1, 0, 0]
    assert table.solved("fast", 1e-6) == 0


def test_a_known_minimum_stands_whatever_others_find():
    # The start of Freudenstein and Roth leads to 48.98...; who finds 0 has reached it too.
    name = "freudenstein-roth"
    local = result(name, "local", outcome([400.5, 48.984253679240], [2, 20]))
    lucky = result(name, "lucky", outcome([400.5, 1e-12], [2, 90]))
    found = {(name, "local"): local, (name, "lucky"): lucky}
    table = board([name], ["local", "lucky"], found, found.values())
    assert [table.costs[1e-9][m][0].calls for m in table.methods] == [20, 90]


def test_without_a_known_minimum_the_best_of_any_method_is_the_reference_for_all():
    name = "digits-mlp"
    poor = result(name, "poor", outcome([2.5, 1.0], [2, 20]))
    good = result(name, "good", outcome([2.5, 0.5], [2, 90]))
    alone = board([name], ["poor"], {(name, "poor"): poor}, [poor])
    assert alone.solved("poor", 1e-9) == 1
    # A method that is not on the board has its say too: what it stored stays stored.
    both = board([name], ["poor"], {(name, "poor"): poor}, [poor, good])
    assert both.references[name] == 0.5
    assert both.solved("poor", 1e-3) == 0


def test_part_of_a_board_keeps_its_columns():
    cost = [Cost(k, k, k, k) for k in (1, 2, 3)]
    whole = Board(("p", "q", "r"), ("m",), {"p": 0, "q": 0, "r": 0}, {1e-3: {"m": cost}})
    part = whole.of(["r", "p"])
    assert part.problems == ("p", "r")
    assert part.calls("m", 1e-3) == [1, 3]


def test_seconds_are_medians_of_the_repeats_point_by_point():
    runs = [outcome([3.0, 1.0], [2, 4]) for _ in range(4)]
    for run, seconds in zip(runs, ([0.1, 0.9], [0.2, 0.5], [0.3, 0.4], [7.0]), strict=True):
        run.trace.seconds = seconds
        run.seconds = 2 * seconds[-1]
    runs[3].trace.calls, runs[3].trace.values = [2], [3.0]  # the clock cut it short
    done = median_seconds(runs)
    assert done.trace.seconds == [0.2, 0.5]
    assert done.seconds == 1.0

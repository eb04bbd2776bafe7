"""The verdicts on the paper's claims: the words fixed beforehand, on numbers made by hand."""

from dataclasses import replace

import pytest
from claims import ABOUT, BETTER, CLAIMS, KINDS, PAPERS, compare, judge

from firstish.experiments.report.summary import Line, Reached, Summary


def line(key, gtol=None, *, spent=2000.0, **more):
    """A method that met the tolerance after so many calls."""
    return Line(
        key=key,
        label=key,
        rate=None,
        outcome={"oracle_calls": spent, "seconds": 1.0},
        tuning=None,
        best=more.get("best", 1.0),
        to_gap=(Reached(None, None),) * 3,
        to_gtol=Reached(gtol, None),
        unit_steps=None,
        curvature_condition=None,
        backtracks=more.get("backtracks"),
        cases={},
    )


@pytest.mark.parametrize(
    ("ours", "other", "told"),
    [
        (line("a", 8), line("b", 12), "b 1.50× (tolerance)"),
        (line("a", 4), line("b"), "b more than 500× (tolerance)"),
        (line("a"), line("b", 20), "b less than 0.01× (tolerance)"),
        (line("a", 8), line("b", spent=6), "b more than 0.75× (tolerance)"),  # it ended early
    ],
)
def test_the_common_target_is_the_tolerance_if_one_of_them_met_it(ours, other, told):
    assert str(compare(ours, other, {})) == told


def falling(*values):
    return [{"value": v, "oracle_calls": 10 * (k + 1)} for k, v in enumerate(values)]


def test_a_bound_that_does_not_decide_gives_way_to_the_lowest_f_that_both_reached():
    ours, other = line("a", best=0.5), line("b", 1900, best=0.2)
    rows = {"a": falling(3.0, 2.0, 1.0, 0.5), "b": falling(3.0, 0.4, 0.2)}
    assert str(compare(ours, other, rows)) == "b less than 0.95× (tolerance)"
    assert str(compare(ours, other, rows, 0.0, 0.8)) == "b 0.50× (f ≤ 0.5)"


def test_where_none_met_it_the_common_target_is_the_lowest_f_that_both_reached():
    ours, other = line("a", best=0.2), line("b", best=0.5)
    rows = {"a": falling(3.0, 0.6, 0.4, 0.2), "b": falling(3.0, 2.0, 1.0, 0.5)}
    assert str(compare(ours, other, rows)) == "b 1.33× (f ≤ 0.5)"
    assert str(compare(other, ours, rows)) == "a 0.75× (f ≤ 0.5)"


def test_no_common_target():
    assert compare(line("a", best=None), line("b"), {}) is None


def row(curvature="SPC", step_size=1.0, scale=1.0, grad_norm=1.0, value=1.0):
    return {
        "curvature": curvature,
        "step_size": step_size,
        "scale": scale,
        "grad_norm": grad_norm,
        "value": value,
        "oracle_calls": 1,
        "seconds": 1,
        "trials": 1,
    }


def verdicts(problem, lines, rows):
    run = {"problem": problem, "gtol": 1e-6, "budget": 2000}
    found = judge(Summary(run=run, lowest=0.0, lines=lines, rows=rows))
    return {v.text: v for v in found}


def test_level_and_wide_margin():
    text = "CGMR is level with tuned Adam and the accelerated methods."
    wide = "CGMR is ahead of line search, PoNo and fixed step by a wide margin."
    ours = line("cgmr", 100)
    for adam, search, level, margin in ((125, 200, True, True), (126, 199, False, False)):
        lines = [ours]
        lines += [line(k, adam) for k in ("adam", "heavy-ball", "nesterov")]
        searches = ("line-search", "line-search-full", "line-search-no", "pono", "fixed")
        lines += [line(k, search) for k in searches]
        found = verdicts("digits-logistic", lines, {})
        assert found[text].holds is level
        assert found[wide].holds is margin
    assert verdicts("digits-logistic", [ours], {})[text].holds is None


def test_a_rise_of_the_gradient_norm_is_counted_but_not_after_negative_curvature():
    text = "MR with α = 1 lowers the gradient norm at every step (but for NC)."
    falling = [row(grad_norm=n) for n in (3.0, 2.0, 1.0)]
    assert verdicts("digits-logistic", [], {"mr": falling})[text].holds is True
    rising = [row(grad_norm=n) for n in (3.0, 2.0, 4.0)]
    found = verdicts("digits-logistic", [], {"mr": rising})[text]
    assert found.holds is False
    assert found.detail == "it rose in 1 of 2 such steps, by a factor of 2 at call 1"
    rising[1]["curvature"] = "NC"
    assert verdicts("digits-logistic", [], {"mr": rising})[text].holds is True


def test_unit_steps_and_cases_of_the_mlp():
    steps = [row()] * 97 + [row(step_size=0.5)] * 2 + [row("NC", step_size=4.0)]
    found = verdicts("digits-mlp", [], {"cgmr": steps})
    units = found["α = 1 at nearly every SPC step of CGMR."]
    assert units.holds is True
    others = "the first exception at call 1; 1 of 100 steps were NC or LPC"
    assert units.detail == f"97 of 99 SPC steps took α = 1, {others}"
    assert found["NC is rare and exploited by forward tracking, LPC never happens."].holds is True
    steps = [*steps, row("LPC")]
    found = verdicts("digits-mlp", [], {"cgmr": steps})
    assert found["NC is rare and exploited by forward tracking, LPC never happens."].holds is False


def test_mushrooms():
    text = "A fixed α⁰ either backtracks a lot or creeps; the scaled gradient next to never."
    ours = line("cgmr", 100, backtracks=0.04)
    creeps = line("line-search-full@0.1", 200, backtracks=0.0)
    backtracks = line("line-search-full@100", 120, backtracks=6.0)
    good = line("line-search-full@1", 120, backtracks=0.1)
    assert verdicts("mushrooms", [ours, creeps, backtracks], {})[text].holds is True
    assert verdicts("mushrooms", [ours, creeps, good], {})[text].holds is False


def test_a_claim_is_open_while_one_of_its_methods_is_missing():
    text = "CGMR is ahead of line search, PoNo and fixed step by a wide margin."
    lines = [line("cgmr", 100), line("pono", 900)]
    found = verdicts("digits-logistic", lines, {})[text]
    assert found.holds is None
    assert "not run: Line search, limited" in found.detail
    lines += [line("fixed", 150)]  # one that contradicts is enough
    found = verdicts("digits-logistic", lines, {})[text]
    assert found.holds is False
    assert "; not so for fixed; not run: Line search, limited" in found.detail


def swinging(*scales):
    return [row()] * 10 + [row(scale=s) for s in scales]


@pytest.mark.parametrize(
    ("scales", "holds"),
    [
        ((1e3, 1.0), True),  # 1/μ = 1000 on digits-logistic
        ((500.0, 1.0), True),
        ((499.0, 1.0), False),
        ((2001.0, 1.0), False),
        ((1e3, 11.0), False),  # that is not small
    ],
)
def test_scales_that_reach_about_one_over_mu(scales, holds):
    found = verdicts("digits-logistic", [], {"cgmr": swinging(*scales)})
    assert found["CGMR's scales swing between about 1/μ and small."].holds is holds


def test_scales_that_swing_less():
    text = "The scales of CG and MR alone swing less than CGMR's."
    rows = {"cgmr": swinging(9.0, 1.0), "cg": swinging(8.0, 1.0), "mr": swinging(2.0, 1.0)}
    assert verdicts("digits-logistic", [], rows)[text].holds is True
    rows["mr"] = swinging(10.0, 1.0)
    assert verdicts("digits-logistic", [], rows)[text].holds is False


def grid(*seconds, status="CONVERGED", calls=40.0):
    """A grid of step sizes 1, 0.1, ... that took so long each."""
    trials = [
        {"rate": 10.0**-k, "seconds": s, "oracle_calls": calls, "status": status, "value": 1.0}
        for k, s in enumerate(seconds)
    ]
    return {"trials": trials, "seconds": sum(seconds), "oracle_calls": calls * len(trials)}


def of_a_grid(*adams):
    """The verdict where CGMR takes a second and 8 calls."""
    ours = replace(line("cgmr", 8), to_gtol=Reached(8, 1.0))
    return verdicts("digits-logistic", [ours, *adams], {})[TUNING]


TUNING = "Tuning Adam took about 20 CGMR runs, in time."


@pytest.mark.parametrize(
    ("seconds", "holds"), [(9.9, False), (10.0, True), (40.0, True), (41.0, False)]
)
def test_about_twenty_runs_for_a_grid(seconds, holds):
    assert ABOUT == 2
    verdict = of_a_grid(replace(line("adam", 3), tuning=grid(seconds - 1, 1.0)))
    assert verdict.holds is holds
    better = f"; CGMR is {BETTER}" if seconds > 40 else ""  # a dearer grid, not a cheaper one
    assert verdict.detail.endswith(f"10.0 in calls (80){better}")


@pytest.mark.parametrize(("seconds", "holds"), [(9.0, None), (20.0, None), (41.0, False)])
def test_a_grid_at_a_smaller_budget_is_a_lower_bound(seconds, holds):
    tuning = grid(seconds - 1, 1.0, status="MAX_ORACLE_CALLS")
    verdict = of_a_grid(replace(line("adam", 3), tuning=tuning))
    assert verdict.holds is holds
    assert verdict.detail.startswith("more than")
    better = "" if holds is None else f"; CGMR is {BETTER}"
    assert verdict.detail.endswith(f"2 of 2 step sizes were given up after 40 calls{better}")


def test_step_sizes_that_went_on_are_charged_what_they_spent():
    """The winner of a grid, and another one given, at the whole budget of 2000 calls."""
    tuning = grid(1.0, 1.0, 1.0, status="MAX_ORACLE_CALLS")
    spent = {"oracle_calls": 2000.0, "seconds": 20.0, "status": "MAX_ORACLE_CALLS", "value": 0.5}
    winner = replace(line("adam"), rate=1.0, tuning=tuning, outcome=spent)
    assert of_a_grid(winner).detail.startswith("more than 22.0 in seconds")
    given = replace(line("adam@0.1"), rate=0.1, outcome={**spent, "value": 0.4})
    assert of_a_grid(winner, given).detail.startswith("more than 41.0 in seconds")
    assert of_a_grid(winner, given).holds is False
    last = replace(line("adam@0.01"), rate=0.01, outcome={**spent, "seconds": 0.0})
    assert of_a_grid(winner, given, last).detail.startswith("40.0 in seconds")


@pytest.mark.parametrize(
    ("values", "met", "best"),
    [
        ((0.5, 0.4), (None, None), "adam@0.1"),
        ((0.4, 0.5), (None, None), "adam"),
        ((0.4, float("nan")), (None, None), "adam"),
        ((0.4, 0.5), (None, 1900), "adam@0.1"),
        ((0.5, 0.4), (1800, 1900), "adam"),
    ],
)
def test_the_best_of_several_step_sizes_stands_for_the_method(values, met, best):
    """By the rule of a grid: fewest calls to the tolerance, else the lowest final objective."""
    text = "MRCG is behind the tuned methods."
    lines = [
        replace(line(key, gtol), outcome={"oracle_calls": 2000.0, "seconds": 1.0, "value": value})
        for key, value, gtol in zip(("adam", "adam@0.1"), values, met, strict=True)
    ]
    found = verdicts("imagenette-resnet", [line("mrcg", 100), *lines], {})[text]
    assert found.detail.startswith(f"calls relative to mrcg: {best} ")
    assert found.detail.count("adam") == 2  # and once in "not so for"


@pytest.mark.parametrize("keys", [("adam", "adam@0.1"), ("adam@0.1", "adam")])
def test_with_the_rows_of_that_step_size(keys):
    """Whichever comes last."""
    peaks = {"adam": 2.0, "adam@0.1": 5.0}
    lines = [replace(line(key), outcome={"value": 1 / peaks[key]}) for key in keys]
    rows = {key: [row(value=1.0), row(value=peaks[key])] for key in keys}
    found = verdicts("imagenette-resnet", lines, rows)
    detail = found["The tuned methods are unstable early: f rises."].detail
    assert detail.startswith("highest f of the first quarter over f at the start: adam@0.1 5.00;")


def test_seconds_are_compared_among_the_papers_methods_only():
    slow = replace(line("lbfgs", 3), outcome={"oracle_calls": 1.0, "seconds": 9.0})
    lines = [*(line(key, 3) for key in PAPERS if key != "pono"), slow]
    text = "Seconds agree with calls."
    assert verdicts("digits-mlp", [*lines, line("pono", 3)], {})[text].holds is True
    assert verdicts("digits-mlp", lines, {})[text].holds is None  # pono is still to come
    assert verdicts("digits-mlp", [*lines, replace(slow, key="pono")], {})[text].holds is False


def test_seconds_of_one_session_are_compared_where_there_are_such():
    slow = {"oracle_calls": 1.0, "seconds": 9.0}  # on another machine
    lines = [replace(line(key, 3), outcome=slow) if key == "mr" else line(key, 3) for key in PAPERS]
    together = {"calls": 500, "seconds": dict.fromkeys(PAPERS, 0.1)}
    together["seconds"] |= {"lbfgs": 9.0, "adam@0.1": 0.21}
    del together["seconds"]["adam"]
    run = {"problem": "fashion-mlp", "gtol": 1e-6, "budget": 2000}
    for paces, pace, other in ((None, "mr 18000", "cgmr"), (together, "adam 2.10", "cgmr")):
        told = Summary(run={**run, "paces": paces}, lowest=0.0, lines=lines, rows={})
        (found,) = (v for v in judge(told) if v.text == "Seconds agree with calls.")
        assert found.holds is False
        name, times = pace.split()
        assert found.detail.startswith(f"a call of {name} took {float(times):.2f}× one of {other}")
    assert found.detail.endswith("(all methods one after another, 500 calls each)")


def test_scales_of_the_alternation_are_compared_with_those_that_were_run():
    text = "The alternation's scales are far larger than those of CG, MR or GM alone."

    def found(**largest):
        return verdicts("digits-mlp", [], {k: [row(scale=s)] for k, s in largest.items()})[text]

    assert found(cgmr=8.0, cg=4.0, mr=2.0, gm=1.0).holds is True
    assert found(cgmr=8.0, cg=2.0, mr=5.0, gm=1.0).holds is False
    assert found(cgmr=8.0, cg=4.0, mr=2.0).holds is None
    assert found(cgmr=8.0, cg=5.0).holds is False
    assert found(cgmr=8.0, cg=5.0).detail.endswith("; not run: MR, GM")
    assert found(cg=5.0, mr=2.0, gm=1.0).detail == "not run: CGMR"


def test_of_those_that_are_not_level_it_is_said_which_way():
    text = "CGMR is level with tuned Adam and the accelerated methods."
    lines = [line("cgmr", 100), line("adam", 60), line("heavy-ball", 110), line("nesterov", 300)]
    verdict = verdicts("digits-logistic", lines, {})[text]
    assert verdict.holds is False
    assert verdict.detail.endswith("; cgmr is ahead of nesterov; cgmr is behind adam")
    level = verdicts("digits-logistic", [lines[0], *lines[2:]], {})[text]
    assert "cgmr is ahead of nesterov; cgmr is better than claimed" in level.detail
    lines = [line("mrcg", 100), line("adam", 60), line("nesterov", 90)]
    behind = verdicts("imagenette-resnet", lines, {})["MRCG is behind the tuned methods."]
    assert "; not so for nesterov; mrcg is better than claimed" in behind.detail
    lines = [line("mrcg", 100), line("pono", 90)]
    ahead = verdicts("imagenette-resnet", lines, {})["MRCG is ahead of line search and PoNo."]
    assert "; not so for pono" in ahead.detail
    assert "better" not in ahead.detail


def test_a_given_step_size_stands_for_a_method_that_was_not_tuned():
    text = "CGMR is level with tuned Adam."
    lines = [line("cgmr", best=0.2), line("adam@paper", best=0.5)]
    rows = {"cgmr": falling(3.0, 0.5, 0.2), "adam@paper": falling(3.0, 1.0, 0.5)}
    rows = {key: [{**row(), **r} for r in rs] for key, rs in rows.items()}
    assert verdicts("digits-mlp", lines, rows)[text].holds is False
    lines.append(replace(lines[1], key="adam", best=0.2, outcome={"value": 0.2}))
    rows["adam"] = rows["cgmr"]
    assert verdicts("digits-mlp", lines, rows)[text].holds is True


def test_a_problem_of_ones_own_has_no_verdicts():
    assert verdicts("my-quadratic", [line("cgmr", 8)], {}) == {}


def of_all_methods(problem):
    """Verdicts on a run of that problem with all of the paper's methods."""
    rows = {key: swinging(1e3, 1.0) for key in PAPERS}
    lines = [line(key, 100) for key in PAPERS] + [line("line-search-full@1", 100, backtracks=2)]
    lines[0] = replace(lines[0], backtracks=0.0)
    lines[PAPERS.index("adam")] = replace(lines[PAPERS.index("adam")], tuning=grid(20.0))
    run = {"gtol": 1e-6, "budget": 2000, "problem": problem}
    return judge(Summary(run=run, lowest=0.0, lines=lines, rows=rows))


def test_every_verdict_belongs_to_a_claim_that_is_stated():
    assert {v.claim for problem in KINDS for v in of_all_methods(problem)} == set(CLAIMS)

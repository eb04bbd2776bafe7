"""One verdict from two budgets, and where methods cross: on numbers made by hand."""

from dataclasses import replace
from itertools import product

import pytest
from budgets import RULES, crossing, cut, verdict
from test_verdicts import line, row

from firstish.experiments.report.summary import Summary


@pytest.mark.parametrize(
    ("short", "early", "whole", "word"),
    [
        (True, True, True, "holds"),
        (None, None, True, "holds"),
        (True, False, True, "holds"),
        (False, False, True, "holds only late"),
        (False, None, True, "holds only late"),
        (False, True, True, "depends on the size"),
        (True, False, False, "depends on the size"),
        (True, True, False, "does not hold"),
        (False, True, False, "does not hold"),
        (None, None, False, "does not hold"),
        (True, True, None, "cannot be judged"),
    ],
)
def test_the_verdict(short, early, whole, word):
    assert verdict(short, early, whole) == word


def test_every_case_has_one_of_the_words():
    answers = (True, False, None)
    assert {verdict(*case) for case in product(answers, repeat=3)} == set(RULES)


def curve(*points):
    return [{**row(value=f), "oracle_calls": calls} for calls, f in points]


OURS = curve((1, 9.0), (10, 5.0), (40, 1.0), (90, 0.5))


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (
            curve((1, 9.0), (20, 4.0), (60, 3.0), (95, 2.0)),
            "a passes b after 40 calls, the last of 2 changes of the lead",
        ),
        (curve((1, 9.0), (10, 4.0), (30, 0.9), (80, 0.1)), "b is ahead of a throughout"),
        (curve((1, 9.0), (20, 8.0), (60, 7.0)), "a is ahead of b throughout"),
        (curve((1, 9.0), (20, 8.0), (80, 0.2)), "b passes a after 80 calls"),
        (curve((1, 9.0), (10, 5.0), (40, 1.0), (90, 0.5)), "a and b end level"),
        # It fell below at a call that ours did not reach.
        (curve((1, 9.0), (20, 8.0), (95, 0.2)), "a is ahead of b throughout"),
    ],
)
def test_the_last_crossing(other, told):
    found = crossing(line("a"), line("b"), {"a": OURS, "b": other})
    assert found.sentence("a") == told


def test_a_method_that_met_the_tolerance_keeps_its_value():
    other = curve((1, 9.0), (20, 8.0), (900, 0.2))
    found = crossing(line("a", 90), line("b"), {"a": OURS, "b": other})
    assert found.sentence("a") == (
        "a met the tolerance after 90 calls, and b passed its f after 900"
    )
    sooner = curve((1, 9.0), (20, 8.0), (85, 0.2))
    found = crossing(line("a", 90), line("b"), {"a": OURS, "b": sooner})
    assert found.sentence("a") == "b passes a after 85 calls"


def test_a_method_that_rounding_ended_keeps_its_value_too():
    other = curve((1, 9.0), (20, 4.0), (900, 0.2))
    rounded = replace(line("a"), outcome={"oracle_calls": 90, "status": "ROUNDING"})
    found = crossing(rounded, line("b"), {"a": OURS, "b": other})
    assert found.sentence("a").startswith("b passes a after 900 calls")
    spent = replace(rounded, outcome={"oracle_calls": 90, "status": "MAX_ORACLE_CALLS"})
    found = crossing(spent, line("b"), {"a": OURS, "b": other})
    assert found.sentence("a").startswith("a passes b after 40 calls")


def test_a_tie_does_not_change_the_lead_and_at_the_end_is_level():
    ours = curve((1, 9.0), (10, 5.0), (40, 1.0), (95, 0.5))
    tied = curve((1, 9.0), (20, 4.0), (50, 1.0 - 1e-9), (95, 0.9))
    found = crossing(line("a"), line("b"), {"a": ours, "b": tied})
    assert found.sentence("a") == "a passes b after 40 calls, the last of 2 changes of the lead"
    tied = curve((1, 9.0), (20, 4.0), (95, 0.5 - 1e-9))
    found = crossing(line("a"), line("b"), {"a": ours, "b": tied})
    led = "until then a is ahead after 40 calls, the last of 2 changes of the lead"
    assert found.sentence("a") == f"a and b end level; {led}"
    early = curve((1, 9.0), (20, 8.0), (95, 0.5))
    found = crossing(line("a"), line("b"), {"a": ours, "b": early})
    led = "until then a is ahead of b throughout"
    assert found.sentence("a") == f"a and b end level; {led}"


def test_a_run_is_cut_at_calls():
    rows = [{**r, "slope_ratio": None, "scaling": None} for r in OURS]
    run = {"problem": "digits-mlp", "gtol": 1e-6, "budget": 100}
    whole = Summary(run=run, lowest=0.5, lines=[line("cgmr")], rows={"cgmr": rows})
    early = cut(whole, 50)
    assert [r["oracle_calls"] for r in early.rows["cgmr"]] == [1, 10, 40]
    assert (early.lowest, early.lines[0].best) == (1.0, 1.0)
    assert early.lines[0].outcome["oracle_calls"] == 40
    assert early.lines[0].outcome["value"] == 1.0  # by which step sizes are compared

"""The sentence that a run ends with, where the lowest objective is of an unfinished run."""

import pytest

from firstish.experiments.console import headline
from firstish.experiments.report.summary import summary_of


def rows(*points):
    """(calls, f, |g|) of each."""
    names = ("curvature", "scaling", "step_size", "trials", "slope_ratio")
    return [
        dict.fromkeys(names) | {"oracle_calls": n, "seconds": 1.0, "value": f, "grad_norm": g}
        for n, f, g in points
    ]


def told(**methods):
    """The headline of a run of the ResNet with these rows."""
    records = {key.replace("_", "-"): rows(*points) for key, points in methods.items()}
    run = {"problem": "imagenette-resnet", "gtol": 1e-4, "budget": 900}
    outcomes = {key: {"oracle_calls": 900.0, "seconds": 1.0} for key in records}
    summary = summary_of(run, outcomes, records, dict.fromkeys(records))
    return headline(summary), summary.lowest_is_final


START = (2, 3.0, 9.0)


def test_a_method_that_met_the_tolerance_higher_up_is_named_and_the_lowest_values_compared():
    lower = (800, 0.01, 0.1)
    sentence, final = told(
        lazy=[START, lower], line_search=[START, (500, 0.5, 1e-5)], lbfgs=[START, (100, 0.2, 1.0)]
    )
    assert not final
    assert sentence == (
        "Line search, limited met |g| ≤ 0.0001 after 500 calls; within 900 oracle calls "
        "Lazy step, the default, came down to f = 0.01; L-BFGS, torch 0.2"
    )


@pytest.mark.parametrize("value", [0.01, 0.01 + 2e-6])
def test_gaps_are_told_where_a_method_met_the_tolerance_at_the_lowest_f(value):
    """To within a millionth of the decrease, 3e-6."""
    sentence, final = told(lazy=[START, (800, 0.01, 0.1)], lbfgs=[START, (500, value, 1e-5)])
    assert final
    assert sentence.startswith("Lazy step, the default, took 800 oracle calls to gap 1e-06; ")


def test_where_the_default_met_the_tolerance_its_calls_are_told():
    sentence, final = told(lazy=[START, (300, 0.5, 1e-5)], mrcg=[START, (900, 0.01, 0.1)])
    assert not final
    assert sentence.startswith("Lazy step, the default, took 300 oracle calls to |g| ≤ 0.0001; ")

"""The race from end to end, on two problems."""

import json
import locale
import math
import subprocess
import sys
from pathlib import Path

import pytest
from race import entrants, store
from race.catalogue import PROBLEMS
from race.heat import Rules, heat
from race.problem import function
from race.traces import Outcome, Steps, Trace

from firstish.experiments.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]


def test_every_method_of_the_registry_races():
    assert set(METHODS) <= set(entrants.ENTRANTS)
    assert set(entrants.CORE) | set(entrants.MAIN) <= set(entrants.ENTRANTS)


@pytest.mark.parametrize("method", entrants.ENTRANTS)
def test_every_method_lowers_a_quadratic_within_its_budget(method):
    package = entrants.missing_package(method)
    if package:
        pytest.skip(f"{package} is not installed: pip install '.[bench]'")
    rules = Rules(max_calls=200, max_seconds=math.inf, repeats=1)
    name = "quadratic-geometric-1e+02"
    (outcome,) = heat(name, [method], rules).values()
    assert not outcome.status.startswith("FAILED")
    assert outcome.trace.values[-1] < 0.2 * outcome.trace.values[0]
    assert all(a > b for a, b in zip(outcome.trace.values, outcome.trace.values[1:], strict=False))


def test_a_heat_repeats_short_runs_with_the_same_steps():
    rules = Rules(max_calls=500, max_seconds=math.inf, repeats=3)
    once = Rules(max_calls=500, max_seconds=math.inf, repeats=1)
    many, one = (heat("rosenbrock", ["cgmr", "adam"], r) for r in (rules, once))
    for method in many:
        assert many[method].trace.values == one[method].trace.values
        assert many[method].trace.calls == one[method].trace.calls
        assert many[method].rate == one[method].rate


def test_our_share_of_unit_steps_is_counted():
    rules = Rules(max_calls=2000, max_seconds=math.inf, repeats=1)
    steps = heat("quadratic-geometric-1e+02", ["cg"], rules)["cg"].steps
    # On a quadratic every CG step is exact: a unit step after which the slope is 0.
    assert steps.taken == steps.spc == steps.unit == steps.spc_unit == steps.spc_unit_curved > 10


def test_step_sizes_come_from_theory_or_from_a_grid():
    plain = PROBLEMS["beale"].build()
    convex = PROBLEMS["quadratic-uniform-1e+02"].build()
    assert entrants.rates("cgmr", plain) == (None,)
    assert entrants.rates("adam", convex) == entrants.GRIDS["adam"]
    assert entrants.rates("nesterov", plain) == entrants.GRID
    assert entrants.rates("nesterov", convex) == (None,)
    assert function(lambda x: x.dot(x), plain.x0).mu is None


def tried(rate, status, calls, best):
    trace = Trace([2, calls], [0.1, calls / 10], [1.0, best])
    return Outcome(status, trace, calls, calls / 10, Steps(), rate)


def test_the_quickest_finisher_of_a_grid_wins_or_else_the_lowest():
    a = tried(1.0, "TARGET", 50, 1e-11)
    b = tried(0.1, "TARGET", 40, 5e-11)
    c = tried(0.01, "MAX_ORACLE_CALLS", 100, 1e-12)
    best = entrants.winner([a, b, c])
    assert best is b
    assert (best.other_calls, best.other_seconds) == (150, 15.0)
    assert entrants.winner([c, tried(1.0, "NON_FINITE", 4, 0.5)]) is c
    assert entrants.winner([c, tried(1.0, "TARGET", 4, 0.5)]) is c  # all units saturated


def test_the_store_keeps_the_last_result_and_survives_a_torn_line(tmp_path):
    path = tmp_path / "results.jsonl"
    key = store.Key("beale", "cgmr", "s", 100, 1.0)
    first, second = (store.Result(key, tried(None, "TARGET", c, 0.5), "t") for c in (5, 7))
    store.write(path, [first])
    store.write(path, [second])
    with path.open("a") as stream:
        stream.write('{"problem": "be')
    assert store.read(path) == {key: second}


def race(out, *words):
    command = [sys.executable, str(ROOT / "benchmarks/race.py"), "--out", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_the_command_races_what_is_missing_and_reports_all(tmp_path):
    words = ("--quick", "--problems", "rosenbrock,beale,rosenbrock", "--jobs", "1")
    first = race(tmp_path, *words, "--methods", "cgmr,lbfgs", "--pairs", "cgmr/lbfgs")
    assert "1/2 rosenbrock" in first.stderr
    assert "HELD OUT: 1 problems" in first.stdout
    assert "Held out of these: beale" in first.stdout
    written = (tmp_path / "report.txt").read_text(encoding="utf-8")
    encoding = locale.getpreferredencoding(False)  # of the terminal, which may lack an accent
    assert written.encode(encoding, "replace").decode(encoding) == first.stdout
    assert (tmp_path / "profiles-rest-quick.png").stat().st_size > 10_000
    lines = (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4

    # A third method: only that one runs. The same again: nothing does.
    more = race(tmp_path, *words, "--methods", "cgmr,lbfgs,cg")
    now = (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert now[:4] == lines
    assert [json.loads(line)["method"] for line in now[4:]] == ["cg", "cg"]
    assert "On 2 problems the seconds come from several sessions" in more.stdout
    again = race(tmp_path, *words, "--methods", "cgmr,lbfgs,cg")
    assert again.stderr == ""
    assert again.stdout == more.stdout


def test_an_unknown_name_is_an_error_that_lists_the_known_ones(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks/race.py"), "--methods", "magic"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "--methods: unknown 'magic'" in done.stderr
    assert "cgmr" in done.stderr

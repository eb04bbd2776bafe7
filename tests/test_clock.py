"""The clock of a run: it stands still while told to, and goes by what it is given."""

import time

import torch

from firstish import ScaledGradient
from firstish.experiments.methods import parse_choice
from firstish.experiments.settings import Settings
from firstish.loop import Clock, Limits, Run
from firstish.objectives.function import FunctionObjective


def test_a_clock_goes_by_what_it_is_given_and_forgets():
    times = iter([10.0, 13.0, 20.0, 25.0])
    clock = Clock(already=2.0, now=lambda: next(times))
    assert clock.seconds() == 5.0
    clock.forget_since(5.0)  # at 20
    assert clock.seconds() == 10.0  # at 25


def test_a_run_counts_the_seconds_of_its_own_clock():
    now = [0.0]

    def fun(x):
        now[0] += 1.0
        return (x**4).sum()

    x0 = torch.ones(2, dtype=torch.float64)
    objective = FunctionObjective(fun, x0, check=False)
    run = Run(objective, x0, ScaledGradient(), now=lambda: now[0])
    rows = [run.advance(Limits()) for _ in range(4)]
    passed = [row.seconds for row in rows]
    assert passed == sorted(passed)
    assert run.here().seconds == now[0]


def test_the_settings_choose_the_clock():
    chosen = (parse_choice("cgmr"),)
    assert Settings(problem="digits-logistic", methods=chosen).now() is time.perf_counter
    own = Settings(problem="digits-logistic", methods=chosen, processor_time=True)
    assert own.now() is time.process_time

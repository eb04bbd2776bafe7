"""One run of a method of firstish, ours or a baseline."""

from __future__ import annotations

from firstish.loop import Limits, Run
from firstish.methods import AnyMethod
from firstish.problems.base import Instance
from firstish.result import Entry, Status
from firstish.scaling import Curvature
from race.limits import Clock, Finish
from race.traces import ETA, Outcome, Steps, Trace


def run(instance: Instance, method: AnyMethod, finish: Finish) -> Outcome:
    """Run it to the finish; a run that breaks is an outcome too."""
    trace, steps = Trace(), Steps()
    limits = Limits(max_oracle_calls=finish.max_calls)
    clock = Clock()
    race = Run(instance.objective, instance.x0, method)
    here = race.here()
    trace.add(here.oracle_calls, clock.seconds(), here.value)
    best = race.point.x
    status = "TARGET"
    while not finish.reached(here.value, here.grad_norm):
        if clock.seconds() >= finish.max_seconds:
            status = "MAX_SECONDS"
            break
        try:
            entry = race.advance(limits)
        except Exception as error:  # a method that breaks is a row in the table
            status = f"FAILED: {type(error).__name__}: {error}"
            break
        if isinstance(entry, Status):
            status = entry.name
            break
        here = race.here()
        if trace.add(here.oracle_calls, clock.seconds(), here.value):
            best = race.point.x
        _count(steps, entry)
    seconds = clock.seconds()
    spent = race.here().oracle_calls
    race.point.release()
    outcome = Outcome(status, trace, spent, seconds, steps)
    outcome.x = best
    return outcome


def _count(steps: Steps, entry: Entry) -> None:
    step = entry.step
    assert step is not None
    unit = step.step_size == 1
    steps.taken += 1
    steps.unit += unit
    steps.nc += step.curvature is Curvature.NC
    if step.curvature is Curvature.SPC:
        steps.spc += 1
        steps.spc_unit += unit
        ratio = step.slope_ratio
        steps.spc_unit_curved += unit and ratio is not None and ratio <= ETA

"""The stored trace of a fixed run."""

import json

import pytest
import torch
from noise import Noise
from tolerances import SEEDS, agreeing, allowed, distance
from trace_run import STEPS, STORED, net, trace


def parted(row):
    """What was decided in a row, and its numbers."""
    numbers = {k: v for k, v in row.items() if isinstance(v, float)}
    return {k: v for k, v in row.items() if k not in numbers}, list(numbers.values())


def other_roundings(seed):
    with Noise(seed):
        return [parted(row) for row in trace()]


def test_the_run_is_the_stored_one():
    """As far as the run's own growth of errors allows: `tolerances`."""
    stored, ours = (
        [parted(row) for row in rows]
        for rows in (json.loads(STORED.read_text(encoding="utf-8")), trace())
    )
    assert len(stored) == len(ours) == STEPS
    others = [other_roundings(seed) for seed in SEEDS]
    same = min(agreeing([d for d, _ in ours], [d for d, _ in other]) for other in others)
    numbers = [[row for _, row in rows] for rows in (ours[:same], *others)]
    bounds = allowed(numbers[0], numbers[1:])
    assert len(bounds) >= 20
    for (decided, row), (expected, values), bound in zip(ours, stored, bounds, strict=False):
        assert decided == expected
        assert distance(row, values) <= bound


def test_the_run_is_repeated_to_the_bit():
    assert trace() == trace()


def test_the_trace_shows_more_than_one_case():
    stored = json.loads(STORED.read_text(encoding="utf-8"))[:10]
    assert len({row["curvature"] for row in stored}) >= 2
    assert {row["scaling"] for row in stored} >= {"CG", "MR", "GM"}


def test_the_stored_start_is_the_function_by_hand():
    x0 = 0.2 * torch.sin(5.0 * torch.arange(20, dtype=torch.float64))
    stored = json.loads(STORED.read_text(encoding="utf-8"))[0]
    assert stored["value"] == pytest.approx(float(net(x0)), rel=1e-12)
    g = torch.autograd.functional.jacobian(net, x0)
    assert stored["grad_norm"] == pytest.approx(float(g.norm()), rel=1e-12)

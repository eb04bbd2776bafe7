"""The stored trace of a fixed run."""

import json

import pytest
import torch
from trace_run import STEPS, STORED, net, trace


def test_the_run_is_the_stored_one():
    stored, rows = json.loads(STORED.read_text(encoding="utf-8")), trace()
    assert len(stored) == len(rows) == STEPS
    for row, expected in zip(rows[:10], stored[:10], strict=True):
        numbers = {k: v for k, v in expected.items() if isinstance(v, float)}
        assert {k: row[k] for k in numbers} == pytest.approx(numbers, rel=1e-9, abs=1e-12)
        assert {k: v for k, v in row.items() if k not in numbers} == {
            k: v for k, v in expected.items() if k not in numbers
        }


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

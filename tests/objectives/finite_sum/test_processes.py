"""Two processes = one; they stop together; a lost or stalled one ends the other with a reason."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import firstish

sys.path.insert(0, str(Path(__file__).parent))
import ranks

SCRIPT = Path(ranks.__file__)
SOURCE = Path(firstish.__file__).parents[1]


def start(task, out):
    """Both ranks, without torchrun's own watching, so that each must end by itself."""
    common = {**os.environ, "WORLD_SIZE": "2", "PYTHONPATH": str(SOURCE)}
    return [
        subprocess.Popen(
            [sys.executable, SCRIPT, task, out],
            env={**common, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def told(out, rank):
    lines = Path(f"{out}.{rank}").read_text(encoding="utf-8").splitlines()
    return [(tuple(n) if isinstance(n, list) else n, t) for n, t in map(json.loads, lines)]


def both(task, tmp_path):
    out = tmp_path / task
    processes = start(task, out)
    errors = [p.communicate(timeout=1000)[1] for p in processes]
    assert [p.returncode for p in processes] == [0, 0], errors
    return told(out, 0), told(out, 1)


def close(one, two, rel):
    if isinstance(one, list):
        scale = max(map(abs, one))
        assert all(abs(a - b) <= rel * scale for a, b in zip(one, two, strict=True))
    else:
        assert two == pytest.approx(one, rel=rel)


def test_two_processes_equal_one(tmp_path):
    zero, one = both("equal", tmp_path)
    assert zero == one  # to the bit: every rank sees the same numbers
    for (model, _, sample), theirs in zero:
        mine = ranks.tell(ranks.build(model, slice(None), hessian_sample=sample))
        if sample is None:  # a sample depends on the last bit of f
            for a, b in zip(mine["points"], theirs["points"], strict=True):
                for x, y in zip(a, b, strict=True):
                    close(x, y, 1e-13)
            close(mine["x"], theirs["x"], 1e-12)
            assert mine["steps"] == theirs["steps"]
            assert mine["calls"] == theirs["calls"]
        else:
            for a, b in zip(mine["points"], theirs["points"], strict=True):
                close(a[0], b[0], 1e-13)
                close(a[1], b[1], 1e-13)
    assert len(zero) == 8


def test_a_linear_model_in_two_processes_equals_one(tmp_path):
    zero, one = both("equal_linear", tmp_path)
    assert zero == one
    ((_, theirs),) = zero
    mine = ranks.tell(ranks.linear(slice(None)))
    for a, b in zip(mine["points"], theirs["points"], strict=True):
        for x, y in zip(a, b, strict=True):
            close(x, y, 1e-13)
    close(mine["x"], theirs["x"], 1e-12)
    assert mine["steps"] == theirs["steps"]


def test_two_processes_equal_one_between_bounds(tmp_path):
    zero, one = both("bounded", tmp_path)
    assert zero == one  # to the bit, also which variables are held
    *cases, (_, refused) = zero
    assert len(cases) == 12
    assert "bounds: rank 0 differs from rank 1" in refused
    for (name, method, *rest), theirs in cases:
        objective = ranks.linear(slice(None)) if rest else ranks.build("logistic", slice(None))
        mine = ranks.between(objective, ranks.BOXES[name], method)
        assert mine["success"]
        assert theirs["success"]
        assert mine["active"] == theirs["active"]
        close(mine["few"], theirs["few"], 1e-10)  # five steps from sums in another order
        # Both ends meet |P(x - g) - x| <= 1e-9; the Hessian is at least the weight decay, 1e-2.
        assert max(abs(a - b) for a, b in zip(mine["x"], theirs["x"], strict=True)) <= 2e-7
        low, high = ranks.BOXES[name]
        at_bound = [x in (low, high) for x in theirs["x"]]
        assert any(at_bound) == (name == "active")
        assert at_bound == [x in (low, high) for x in mine["x"]]


def test_ranks_stop_together(tmp_path):
    zero, one = both("stop", tmp_path)
    assert zero == one
    said = dict(zero)
    assert said["callback"] == ["STOPPED", 4]
    assert said["seconds"][0] == "MAX_SECONDS"
    assert said["seconds"][1] < 20  # by the clock of rank 1 it would be a hundred times as many
    assert said["only 0"] == ["STOPPED", 4]
    assert said["only 1"] == ["MAX_ITERATIONS", 6]


def test_settings_of_minimize_that_differ_are_refused_on_every_rank(tmp_path):
    zero, one = both("different_settings", tmp_path)
    assert zero == one
    *refused, (_, last) = zero
    assert len(refused) == 4
    for _, message in refused:
        assert (
            "different methods, tolerances, budgets or bounds: rank 0 differs from rank 1"
            in message
        )
    assert last == "MAX_ITERATIONS"


def test_ranks_that_differ_are_refused_on_every_rank(tmp_path):
    zero, one = both("different", tmp_path)
    assert zero == one
    messages = dict(zero)
    assert "different models or settings: rank 0 differs from rank 1" in messages["model"]
    assert "different models or settings" in messages["decay"]
    assert "the starting point, parameter 'weight' of rank 1 is not rank 0's" in messages["start"]
    assert "set the seed first" in messages["start"]


def test_models_and_losses_that_differ_are_refused_by_name_on_every_rank(tmp_path):
    zero, one = both("different_models", tmp_path)
    assert zero == one
    messages = dict(zero)
    assert messages.pop("nothing") == "no error"
    names = {
        "start": "starting point, parameter 'inner.bias'",
        "buffer": "model, buffer 'shift'",
        "frozen": "model, frozen parameter 'scale'",
        "dtype": "model, buffer 'shift'",
        "training": "model, module 'drop'",
        "dropout": "model, module 'drop'",
        "class weights": "loss, buffer 'weight'",
        "argument": "loss, argument 'weight'",
        "smoothing": "settings of the loss",
    }
    assert messages.keys() == names.keys()
    for what, name in names.items():
        assert (
            f"`FiniteSum(process_group=...)` has ranks that differ: the {name} of rank 1 "
            in (messages[what])
        )
        assert "torch.distributed.broadcast(tensor, 0)" in messages[what]
    assert "float32" in messages["dtype"]
    assert "float64" in messages["dtype"]
    assert "p=0.5" in messages["dropout"]


def test_linear_models_that_differ_are_refused_on_every_rank(tmp_path):
    zero, one = both("different_linear", tmp_path)
    assert zero == one
    messages = dict(zero)
    assert messages["nothing"] == "no error"
    assert "different models or settings" in messages["intercept"]
    assert "different models or settings" in messages["penalty"]
    assert "the starting point of rank 1 is not rank 0's" in messages["start"]


def test_a_killed_rank_ends_the_other_with_the_reason(tmp_path):
    out = tmp_path / "lost"
    processes = start("lost", out)
    errors = [p.communicate(timeout=1000)[1] for p in processes]
    assert [p.returncode for p in processes] == [3, -9], errors[0]
    ((_, message),) = told(out, 0)
    assert "lost or did not answer in time (this is rank 0 of 2)" in message


def test_a_stalled_rank_ends_the_other_by_the_time_out(tmp_path):
    out = tmp_path / "stalled"
    zero, one = start("stalled", out)
    try:
        _, error = zero.communicate(timeout=1000)
        assert one.poll() is None  # it sleeps on
    finally:
        one.kill()
        one.communicate()
    assert zero.returncode == 3, error
    ((_, message),) = told(out, 0)
    assert "did not answer in time" in message

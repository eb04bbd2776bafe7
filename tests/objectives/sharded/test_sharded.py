"""A model sharded over two processes = the whole model on one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import firstish
from firstish import FiniteSum

sys.path.insert(0, str(Path(__file__).parent))
import shards

SCRIPT = Path(shards.__file__)
SOURCE = Path(firstish.__file__).parents[1]


def both(task, tmp_path):
    """What the two ranks wrote."""
    common = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(SOURCE)}
    out = tmp_path / task
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, task, out],
            env={**common, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [p.communicate(timeout=1000)[1] for p in processes]
    assert [p.returncode for p in processes] == [0, 0], errors
    texts = [Path(f"{out}.{rank}").read_text(encoding="utf-8").splitlines() for rank in range(2)]
    return [[json.loads(line) for line in text] for text in texts]


def apart(one, two):
    """The distance of two vectors over the length of the first."""
    one, two = torch.tensor(one), torch.tensor(two)
    return float((one - two).norm() / one.norm())


def whole(name, product, **settings):
    model = shards.whole(name)
    settings = {**shards.SETTINGS, **settings}
    return FiniteSum(model, shards.loss_fn(), shards.data(), product=product, **settings)


def test_sharded_equals_whole(tmp_path):
    zero, one = both("equal", tmp_path)
    sizes = []
    for (case, theirs), (_, others) in zip(zero, one, strict=True):
        sizes.append([case[0], *theirs.pop("entries"), others.pop("entries")[1]])
        assert theirs == others  # to the bit: every rank sees the same numbers
        objective = whole(case[0], "difference")
        x0 = objective.initial()
        starts = shards.points(x0, shards.length(*case))
        mine = shards.tell(objective, starts, x0)
        exact = whole(case[0], "double-backward")
        for x, a, b in zip(starts, mine["points"], theirs["points"], strict=True):
            assert b[0] == pytest.approx(a[0], rel=1e-13)
            assert apart(a[1], b[1]) <= 1e-13
            assert apart(a[2], b[2]) <= 1e-6
            assert b[3] == pytest.approx(a[3], rel=1e-13)
            point = exact.at(x)
            assert apart(point.hvp(point.grad).vector.tolist(), b[2]) <= 1e-5  # truncation
        (plain, scaled), (their_plain, their_scaled) = mine["x"], theirs["x"]
        assert apart(plain, their_plain) <= 1e-12
        # A difference over eps magnifies the last bit of the gradient by 1 / eps, about 1e8: sums
        # in another order, even on one process, move the iterates by that much.
        assert apart(scaled, their_scaled) <= 1e-7
        assert mine["steps"] == theirs["steps"]
        assert mine["calls"] == theirs["calls"]
    # All entries; those of rank 0; those of rank 1, which of a parameter of one row has none.
    assert sizes[0] == ["logistic", 28, 14, 14]
    assert sizes[4] == ["scaled", 7 + 8 + 4, 7 + 4 + 4, 0 + 4 + 4]
    assert sizes[5][:2] == ["tied", 36 + 6 + 6 + 28]


def test_every_method_takes_the_same_steps(tmp_path):
    zero, one = both("methods", tmp_path)
    assert zero == one
    for method, (name, (value, sizes, x)) in zip(shards.METHODS, zero, strict=True):
        assert name == type(method).__name__
        objective = whole("scaled", "difference")
        mine = firstish.minimize(
            objective, objective.initial(), method=method, gtol=0, max_iterations=10
        )
        rough = 1e3 if method == firstish.LazyStep(max_bytes=1) else 1.0  # sums in float32
        assert value == pytest.approx(mine.value, rel=rough * 1e-8), name
        expected = [row.step_size for row in mine.history]
        assert sizes[:-1] == pytest.approx(expected[:-1], rel=rough * 1e-5), name
        assert apart(mine.x.tolist(), x) <= rough * 1e-6, name  # see above: differences


def test_a_sample_is_the_same_however_rows_and_parameters_lie(tmp_path):
    zero, one = both("sample", tmp_path)
    assert zero == one
    for case, (value, grad_norm, vector, passes) in zero:
        objective = whole("mlp", "difference", hessian_sample=9)
        point = objective.at(objective.initial())
        assert value == pytest.approx(point.value, rel=1e-13)
        assert grad_norm == pytest.approx(point.grad_norm, rel=1e-13)
        point._f, point._g_norm = value, grad_norm  # the draw depends on their last bits
        assert apart(point.hvp(point.grad).vector.tolist(), vector) <= 1e-6, case
        assert passes == pytest.approx(2 + 2 * 2 * 9 / shards.ROWS)


def test_the_model_holds_what_it_held_until_the_end(tmp_path):
    zero, one = both("holds", tmp_path)
    assert zero == one
    told = dict(zero)
    mine, theirs = told.pop("value")
    assert mine == pytest.approx(theirs, rel=1e-12)
    assert told == {
        "untouched": True,
        "loaded": True,
        "grads": True,
        "buffers": 0.0,
        "saved": True,
        "again": True,
    }


def test_every_evaluation_sees_the_same_dropout_mask(tmp_path):
    zero, one = both("dropout", tmp_path)
    assert zero == one
    assert len(zero) == 2
    for _, (values, without) in zero:
        assert values == pytest.approx([values[0]] * 3, rel=1e-14)
        assert abs(values[0] - without) > 1e-3


def test_a_vector_in_parts_behaves_as_the_whole(tmp_path):
    zero, one = both("vector", tmp_path)
    assert zero == one
    told = dict(zero)
    kind, *sums = told["addmv"]
    assert kind == "Shard"
    assert sums[0] == pytest.approx(sums[1], rel=1e-13)
    for name in ("dot", "mv", "sum", "max", "min", "norm", "tiny", "huge", "cosine"):
        mine, theirs = told[name]
        assert mine == pytest.approx(theirs, rel=1e-14), name
    assert told["elements"] is True
    assert told["equal"] == [True, False]
    assert told["numel"] == [7, True]
    assert told["repr"] is True
    for name in ("cumsum", "item", "mean", "cat"):
        assert f"`{name}` of a vector that is sharded over processes" in told[name]
    assert "`__getitem__` of a vector" in told["index"]
    assert "need another one of the same objective" in told["plain"]


def test_an_iteration_sends_what_the_documents_say(tmp_path):
    zero, one = both("messages", tmp_path)
    assert zero == one
    told = dict(zero)
    d, exact = told["double-backward"]
    # The seconds and the callback's answer; the product with a flag; the gradient, f, denominator.
    assert exact == {"broadcast": [1, 1], "all_reduce": [d + 1, d + 2]}
    _, difference = told["difference"]
    assert difference == {"broadcast": [1, 1], "all_reduce": [d + 2, d + 2]}
    # Eight dots, and twice f and its denominator: no message grows with the parameters but FSDP's.
    assert told["sharded"] == {"broadcast": [1, 1], "all_reduce": [1] * 8 + [2] * 2}
    layers = 3  # each gathered going forward, and again going back once it was let go
    assert told["value"]["c10d._allgather_base_"] == layers
    assert told["gradient"]["c10d._allgather_base_"] == 2 * layers
    assert told["gradient"]["c10d._reduce_scatter_base_"] == layers


def test_bad_input_is_refused_on_every_rank(tmp_path):
    zero, one = both("refused", tmp_path)
    assert zero[:-1] == one[:-1]
    told = dict(zero)
    expected = {
        "plain": "fully_shard(model)` first, or use `FiniteSum(..., process_group=...)`",
        "double-backward": "`ShardedSum(product='double-backward')` is not supported",
        "gauss-newton": "`ShardedSum(product='gauss-newton')` is not supported",
        "exact": "`ShardedSum(product='exact')`",
        "decay": "`ShardedSum(weight_decay=...)` must be at least 0",
        "empty": "`ShardedSum(data=...)` is empty",
        "divided": "gives a gradient that is 2 times that of f",
        "hybrid": "must be sharded over a one-dimensional mesh",
        "different": "starting point, parameter",
        "settings": "different models or settings",
        "mixing": "rows are not independent of each other",
        "restless": "differs between two evaluations at the same point",
        "batch norm": "has BatchNorm that depends on the chunk",
        "independent": "the loss does not depend on the parameters",
        "ignoring": "`ShardedSum(loss_fn=...)` leaves rows with negative labels out of its mean",
        "ignoring, whole": "`FiniteSum(loss_fn=...)` leaves rows with negative labels out",
        "FiniteSum": "`FiniteSum(model)` got sharded parameters",
        "ModuleObjective": "Use `firstish.ShardedSum(model, loss_fn, data)`",
        "ScaledGD": "`ScaledGD(params)` got sharded parameters",
        "length": "got a point of 3 numbers",
    }
    assert told.keys() == expected.keys()
    for name, message in expected.items():
        assert message in told[name][1], name

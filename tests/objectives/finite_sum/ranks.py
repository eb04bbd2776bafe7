"""What two processes do, started by `torchrun`; each task prints one JSON line on each rank."""

import json
import os
import signal
import sys
import time
import traceback
from datetime import timedelta
from functools import partial
from itertools import count

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import firstish
from firstish import FiniteSum, LazyStep, ScaledGradient, loop

ROWS = 53


def logistic():
    return nn.Linear(6, 4).double()


def mlp():
    layers = nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 4)
    return nn.Sequential(*layers).double()


MODELS = {"logistic": logistic, "mlp": mlp}


def data():
    torch.manual_seed(2)
    return torch.randn(ROWS, 6, dtype=torch.float64), torch.randint(4, (ROWS,))


def build(model, share, group=None, **settings):
    torch.manual_seed(1)
    inputs, labels = data()
    weight = torch.tensor([1.0, 0.5, 2.0, 1.0], dtype=torch.float64)
    loss_fn = nn.CrossEntropyLoss(weight)
    part = (inputs[share], labels[share])
    settings = {"chunk_size": 20, "weight_decay": 1e-2, **settings}
    return FiniteSum(MODELS[model](), loss_fn, part, process_group=group, **settings)


def points(objective, count):
    generator = torch.Generator().manual_seed(3)
    x0 = objective.initial()
    return [x0 + torch.randn(len(x0), generator=generator, dtype=x0.dtype) for _ in range(count)]


def tell(objective):
    """f, g and Hg at 50 points, x after 5 steps, the steps of 50."""
    told = []
    for x in points(objective, 50):
        point = objective.at(x)
        told.append([point.value, point.grad.tolist(), point.hvp(point.grad).vector.tolist()])
    run = {"gtol": 0, "method": ScaledGradient()}
    few = firstish.minimize(objective, objective.initial(), max_iterations=5, **run)
    many = firstish.minimize(objective, objective.initial(), max_iterations=50, **run)
    steps = [[str(r.curvature), r.scaling, r.step_size, r.trials] for r in many.history]
    return {"points": told, "x": few.x.tolist(), "steps": steps, "calls": many.oracle_calls}


def equal(rank, group):
    """Uneven shards, one of them empty in the last case."""
    for model in MODELS:
        for cut in (20, ROWS):
            share = slice(0, cut) if rank == 0 else slice(cut, ROWS)
            for sample in (None, 0.3):
                yield [model, cut, sample], tell(build(model, share, group, hessian_sample=sample))


def linear(share, group=None):
    inputs, labels = data()
    family = firstish.families.Multinomial(classes=4)
    weight = torch.linspace(0.5, 2.0, ROWS, dtype=torch.float64)[share]
    part = (inputs[share], labels[share])
    return firstish.LinearModel(
        *part, family, sample_weight=weight, weight_decay=1e-2, intercept=True, process_group=group
    )


def equal_linear(rank, group):
    share = slice(0, 20) if rank == 0 else slice(20, ROWS)
    yield "linear", tell(linear(share, group))


BOXES = {"far": (-100.0, 100.0), "active": (-0.02, 0.03)}
METHODS = ("lazy", "plane", "CGMR")


def between(objective, bounds, method):
    """x after a few steps, and at the end of a run between bounds."""
    start = objective.initial().clamp(*bounds)
    few = firstish.minimize(
        objective, start, bounds=bounds, method=method, gtol=0, max_iterations=5
    )
    whole = firstish.minimize(objective, start, bounds=bounds, method=method, gtol=1e-9)
    return {
        "few": few.x.tolist(),
        "active": [row.active for row in few.history],
        "x": whole.x.tolist(),
        "success": whole.success,
    }


def bounded(rank, group):
    """A convex problem, uneven shards, every method; the last case has bounds that differ."""
    share = slice(0, 20) if rank == 0 else slice(20, ROWS)
    for name, bounds in BOXES.items():
        for method in METHODS:
            yield [name, method], between(build("logistic", share, group), bounds, method)
            yield [name, method, "linear"], between(linear(share, group), bounds, method)
    objective = build("logistic", share, group)
    try:
        firstish.minimize(objective, objective.initial(), bounds=(-5.0 - rank, 5.0))
    except ValueError as error:
        yield "different", str(error)


def stop(rank, group):
    """Rank 0's clock and callback decide for all; their own would differ."""
    objective = build("mlp", slice(rank, None, 2), group)

    def look(progress):
        return rank == 0 and progress.row.iteration == 3

    result = firstish.minimize(objective, objective.initial(), gtol=0, callback=look)
    yield "callback", [result.status.name, result.iterations]
    objective = build("mlp", slice(rank, None, 2), group)
    ticks, real = count(step=1.0 if rank == 0 else 0.01), loop.Clock
    loop.Clock = lambda already=0.0, now=None: real(already, ticks.__next__)
    result = firstish.minimize(objective, objective.initial(), gtol=0, max_seconds=20)
    yield "seconds", [result.status.name, result.iterations]
    loop.Clock = real
    for only in (0, 1):  # who has a callback at all; rank 0's decides
        result = firstish.minimize(
            build("mlp", slice(rank, None, 2), group),
            objective.initial(),
            gtol=0,
            max_iterations=6,
            callback=look if rank == only else None,
        )
        yield f"only {only}", [result.status.name, result.iterations]


def different(rank, group):
    """What ranks must have in common."""
    for what in ("model", "decay", "start"):
        torch.manual_seed(1)
        model = nn.Linear(6, 4 + (rank if what == "model" else 0)).double()
        decay = 0.1 * rank if what == "decay" else 0.1
        try:
            objective = FiniteSum(
                model, F.cross_entropy, data(), weight_decay=decay, process_group=group
            )
            _ = objective.at(objective.initial() + (rank if what == "start" else 0)).value
        except ValueError as error:
            yield what, str(error)
        else:
            yield what, "no error"


class Scaled(nn.Module):
    """A layer with a buffer and a frozen weight of its own."""

    def __init__(self, draw):
        super().__init__()
        self.inner = nn.Linear(6, 4).double()
        self.drop = nn.Dropout(0.0)
        self.scale = nn.Parameter(torch.ones(4, dtype=torch.float64), requires_grad=False)
        self.register_buffer("shift", torch.zeros(4, dtype=torch.float64), persistent=False)
        draw(self)

    def forward(self, x):
        return self.drop(self.inner(x)) * self.scale + self.shift


def swapped(t):
    """The same numbers in another order, so that their sum is the same."""
    t.data = t.data.flip(0).clone()


WEIGHTS = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
UNLIKE = {
    "start": lambda m: swapped(m.inner.bias),
    "buffer": lambda m: m.shift.copy_(torch.tensor([1e-3, -1e-3, 0.0, 0.0])),
    "frozen": lambda m: m.scale.data.mul_(1 + 1e-12),
    "dtype": lambda m: setattr(m, "shift", m.shift.float()),
    "training": lambda m: m.drop.eval(),
    "dropout": lambda m: setattr(m.drop, "p", 0.5),
    "nothing": lambda m: None,
}


def different_models(rank, group):
    """Models that differ by rank in something whose sum is the same, or that is not in x."""
    for what, change in UNLIKE.items():
        torch.manual_seed(1)
        model = Scaled(change if rank else lambda m: None)
        yield what, told_of(FiniteSum(model, F.cross_entropy, data(), process_group=group))
    losses = {
        "class weights": nn.CrossEntropyLoss(WEIGHTS.flip(0) if rank else WEIGHTS),
        "argument": partial(F.cross_entropy, weight=WEIGHTS.flip(0) if rank else WEIGHTS),
        "smoothing": nn.CrossEntropyLoss(label_smoothing=0.1 * rank),
    }
    for what, loss_fn in losses.items():
        torch.manual_seed(1)
        yield what, told_of(FiniteSum(logistic(), loss_fn, data(), process_group=group))


def told_of(objective):
    try:
        return float(objective.at(objective.initial()).value) and "no error"
    except ValueError as error:
        return str(error)


def different_linear(rank, group):
    """Linear models whose x is as long, and starts whose sum is the same."""
    inputs, labels = data()
    wide = torch.cat([inputs, torch.ones(ROWS, 1, dtype=torch.float64)], dim=1)
    family = firstish.families.Multinomial(classes=4)
    changes = {
        "intercept": ((wide, False), (inputs, True)),
        "penalty": ((inputs, True), (inputs, True)),
        "nothing": ((inputs, True), (inputs, True)),
    }
    for what, cases in changes.items():
        A, intercept = cases[rank]
        penalise = not (what == "penalty" and rank)
        try:
            firstish.LinearModel(
                A,
                labels,
                family,
                weight_decay=0.1,
                intercept=intercept,
                penalise_intercept=penalise,
                process_group=group,
            )
            yield what, "no error"
        except ValueError as error:
            yield what, str(error)
    objective = linear(slice(rank, None, 2), group)
    x = torch.linspace(-1, 1, len(objective.initial()), dtype=torch.float64)
    try:
        firstish.minimize(objective, x.flip(0) if rank else x, max_iterations=2)
    except ValueError as error:
        yield "start", str(error)


def different_settings(rank, group):
    """What `minimize` must be told alike; max_seconds and callbacks are rank 0's."""
    objective = build("mlp", slice(rank, None, 2), group)
    same = {"gtol": 1e-9, "max_iterations": 3}
    others = (
        {"gtol": 1e-8},
        {"max_iterations": 4},
        {"method": "CGMR"},
        {"method": LazyStep(memory=3)},
    )
    for other in others:
        try:
            firstish.minimize(objective, objective.initial(), **(same | (other if rank else {})))
        except ValueError as error:
            yield str(other.keys()), str(error)
        else:
            yield str(other.keys()), "no error"
    seconds = {"max_seconds": 100.0} if rank else {}
    yield (
        "seconds",
        firstish.minimize(objective, objective.initial(), **same, **seconds).status.name,
    )


def lost(rank, group):
    """Rank 1 is killed in its fifth iteration."""
    objective = build("mlp", slice(rank, None, 2), group)

    def look(progress):
        if rank == 1 and progress.row.iteration == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        firstish.minimize(objective, objective.initial(), gtol=0, callback=look)
    except firstish.RankError as error:
        yield "lost", str(error)
        raise SystemExit(3) from error


def stalled(rank, group):
    """Rank 1 sleeps for ever; the others wait for seconds. They have met before that."""
    patience = dist.new_group(timeout=timedelta(seconds=5))
    objective = build("mlp", slice(rank, None, 2), patience)

    def look(progress):
        if rank == 1 and progress.row.iteration == 4:
            time.sleep(3600)

    try:
        firstish.minimize(objective, objective.initial(), gtol=0, callback=look)
    except firstish.RankError as error:
        yield "stalled", str(error)
        raise SystemExit(3) from error


def main():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)  # as in the tests that compare
    rank = int(os.environ["RANK"])
    # They meet at a file: a port that was free a moment ago may be taken by another test.
    dist.init_process_group(
        "gloo",
        init_method=f"file://{sys.argv[2]}.meet",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=1000),
    )
    with open(f"{sys.argv[2]}.{rank}", "w") as file:
        for name, told in globals()[sys.argv[1]](rank, dist.group.WORLD):
            file.write(json.dumps([name, told]) + "\n")
            file.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # the group's threads sometimes abort the interpreter's own end

"""What two processes do with a sharded model; each task writes one JSON line on each rank."""

import json
import os
import pickle
import sys
import traceback
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode

import firstish
from firstish import FiniteSum, ScaledGradient, ShardedSum, baselines

warnings.simplefilter("error")
ROWS = 53
CUTS = {"even": 27, "uneven": 20, "none": ROWS}  # rank 0's rows; the rest is rank 1's


class Scaled(nn.Module):
    """A network with one parameter that every rank holds, and two of a single row."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 1), nn.Tanh(), nn.Linear(1, 4))
        self.scale = nn.Parameter(torch.full((4,), 1.5))

    def forward(self, rows):
        return self.inner(rows) * self.scale


class Tied(nn.Module):
    """Two layers with the same weights."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)
        self.second.weight = self.first.weight

    def forward(self, rows):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(rows)))))


def mlp():
    layers = nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 4)
    return nn.Sequential(*layers)


MODELS = {"logistic": lambda: nn.Linear(6, 4), "mlp": mlp, "scaled": Scaled, "tied": Tied}


def whole(name):
    torch.manual_seed(1)
    return MODELS[name]().double()


def sharded(name):
    """Layer by layer where there are layers of their own, then the rest."""
    model = whole(name)
    if name == "mlp":
        for layer in (model[0], model[2], model[4]):
            fully_shard(layer)
    fully_shard(model, ignored_params={model.scale} if name == "scaled" else None)
    return model


def data():
    torch.manual_seed(2)
    return torch.randn(ROWS, 6, dtype=torch.float64), torch.randint(4, (ROWS,))


def loss_fn():
    return nn.CrossEntropyLoss(torch.tensor([1.0, 0.5, 2.0, 1.0], dtype=torch.float64))


SETTINGS = {"chunk_size": 15, "weight_decay": 1e-2}


def share(rank, cut):
    inputs, labels = data()
    part = slice(0, cut) if rank == 0 else slice(cut, ROWS)
    return inputs[part], labels[part]


def build(model, rank, cut="uneven", **settings):
    return ShardedSum(model, loss_fn(), share(rank, CUTS[cut]), **{**SETTINGS, **settings})


class Parts:
    """Which entries of the whole vector are this rank's."""

    def __init__(self, name, model, rank):
        counted = whole(name)
        with torch.no_grad():
            start = 0
            for p in counted.parameters():
                p.copy_(torch.arange(start, start + p.numel()).view(p.shape))
                start += p.numel()
        fully = dict(counted.named_parameters())
        shares, kept = [], []
        for n, p in model.named_parameters():
            if hasattr(p, "to_local"):
                shares.append(fully[n].detach().chunk(2)[rank : rank + 1])
            else:
                kept.append(fully[n].detach())
        flat = [t.reshape(-1) for pair in shares for t in pair] + [t.reshape(-1) for t in kept]
        self.index = torch.cat(flat).long()
        self.size = start

    def of(self, x):
        """This rank's part of a whole vector."""
        return x[self.index]

    def whole(self, part):
        """The whole vector, on every rank, and whether all parts agree where they overlap."""
        low = torch.full((self.size,), torch.inf, dtype=torch.float64)
        high = -low
        low[self.index] = high[self.index] = part.as_subclass(torch.Tensor)
        dist.all_reduce(low, dist.ReduceOp.MIN)
        dist.all_reduce(high, dist.ReduceOp.MAX)
        assert torch.equal(low, high)
        return low.tolist()


def points(x0, count):
    generator = torch.Generator().manual_seed(3)
    return [x0 + torch.randn(len(x0), generator=generator, dtype=x0.dtype) for _ in range(count)]


def start(name):
    return torch.cat([p.detach().reshape(-1) for p in whole(name).parameters()])


def length(name, cut):
    """How many points and steps: the more unusual cases are shorter."""
    return 50 if cut == "uneven" and name in ("logistic", "mlp") else 8


def tell(objective, starts, x0, seen=lambda v: v.tolist()):
    """f, g and Hg at points, x after 5 steps without and with products, as many steps as points."""
    told = []
    for x in starts:
        point = objective.at(x)
        product = point.hvp(point.grad)
        told.append([point.value, seen(point.grad), seen(product.vector), point.grad_norm])
    line = {"gtol": 0, "method": baselines.LineSearch()}
    plain = firstish.minimize(objective, x0, max_iterations=5, **line)
    run = {"gtol": 0, "method": ScaledGradient()}
    few = firstish.minimize(objective, x0, max_iterations=5, **run)
    many = firstish.minimize(objective, x0, max_iterations=len(starts), **run)
    steps = [[str(r.curvature), r.scaling, r.step_size, r.trials] for r in many.history]
    calls = [many.oracle_calls, many.passes]
    iterates = [seen(plain.x), seen(few.x)]
    return {"points": told, "x": iterates, "steps": steps, "calls": calls}


def equal(rank):
    """Sharded = whole, for every model and uneven rows, one rank without any in the last case."""
    for name in MODELS:
        for cut in CUTS if name == "mlp" else ["uneven"]:
            model = sharded(name)
            objective = build(model, rank, cut)
            parts = Parts(name, model, rank)
            starts = [parts.of(x) for x in points(start(name), length(name, cut))]
            told = tell(objective, starts, objective.initial(), parts.whole)
            yield [name, cut], {**told, "entries": [objective.initial().numel(), len(parts.index)]}


def methods(rank):
    """The competitors take the same steps, those that call torch's own dots included."""
    for method in METHODS:
        model = sharded("scaled")
        parts = Parts("scaled", model, rank)
        result = firstish.minimize(
            build(model, rank), model, method=method, gtol=0, max_iterations=10
        )
        sizes = [row.step_size for row in result.history]
        yield type(method).__name__, [result.value, sizes, parts.whole(result.x)]


METHODS = [
    firstish.PlaneStep(),
    firstish.LazyStep(),
    firstish.LazyStep(memory=2),
    firstish.LazyStep(max_bytes=1),  # pairs rounded to float32
    baselines.LineSearch(),
    baselines.Adam(step_size=0.05),
    baselines.LBFGS(),
    baselines.PoNo(),
    baselines.AdGD(step_size=1e-3),  # from 1e-10 its first difference is mostly rounding
    baselines.AdGD2(),
    baselines.ABBmin(),
    baselines.CDAT(),
    baselines.FixedStep(step_size=0.1),
    baselines.HeavyBall(step_size=0.05),
    baselines.Nesterov(step_size=0.05),
]


def sample(rank):
    """A sample draws the same rows however they and the parameters are sharded."""
    model = sharded("mlp")
    parts = Parts("mlp", model, rank)
    for cut in CUTS:
        objective = build(model, rank, cut, hessian_sample=9)
        point = objective.at(objective.initial())
        vector = parts.whole(point.hvp(point.grad).vector)
        yield cut, [point.value, point.grad_norm, vector, objective.meter.passes]


def holds(rank):
    """The model, its gradients and its buffers before, during and after a run."""
    model = sharded("scaled")
    model.register_buffer("calls", torch.zeros(()))
    model.register_forward_hook(lambda m, *_: (m.calls.add_(1.0), None)[1])
    for p in model.parameters():
        p.grad = torch.full_like(p, 7.0)
    objective = build(model, rank)
    x0 = objective.initial()
    result = firstish.minimize(objective, x0, max_iterations=3, gtol=0)
    yield "untouched", torch.equal(objective.initial(), x0)
    result = firstish.minimize(objective, model, max_iterations=3, gtol=0)
    yield "loaded", torch.equal(objective.initial(), result.x)
    grads = [
        p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad for p in model.parameters()
    ]
    yield "grads", all(bool((g == 7).all()) for g in grads)
    yield "buffers", float(model.calls)
    rows, labels = data()
    with torch.no_grad():  # as its user would run it, on all rows
        value = loss_fn()(model(rows), labels).item()
    x = result.x
    yield "value", [value + 0.5e-2 * float(torch.dot(x, x)), result.value]
    for unit in model.modules():
        if hasattr(unit, "reshard"):
            unit.reshard()
    saved = pickle.loads(pickle.dumps(x))
    yield "saved", type(saved) is torch.Tensor and torch.equal(saved, x.local())
    again = firstish.minimize(objective, saved, max_iterations=0)
    yield "again", again.value == result.value


def dropout(rank):
    """One mask for all evaluations of an objective, with and without the first look."""
    for check in (True, False):
        torch.manual_seed(1)
        model = fully_shard(nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.4), nn.Linear(9, 4)))
        objective = build(model, rank, check=check)
        x = objective.initial()
        with warnings.catch_warnings(record=True) as caught:  # of the one mask, with the look
            warnings.simplefilter("always")
            values = [objective.at(x, order).value for order in (2, 0, 1)]
        assert ["draws random numbers" in str(w.message) for w in caught] == [True] * check
        model.eval()
        yield str(check), [values, build(model, rank).at(x).value]


def vector(rank):
    """Every operation of the whole on parts, the last rank's empty, entries held by both."""
    from firstish.distributed import Group
    from firstish.linalg import add_combination, dots, norm, norm_and_cosine
    from firstish.objectives.sharded.vector import Sharding

    group = Group(dist.group.WORLD)
    torch.manual_seed(4)
    a, b = torch.randn(2, 7, dtype=torch.float64)
    mine = slice(0, 7) if rank == 0 else slice(5, 7)  # the last two are on both
    sharding = Sharding(group, 7 if rank == 0 else 0, 7)
    s, t = sharding(a[mine].clone()), sharding(b[mine].clone())
    yield "dot", [float(torch.dot(s, t)), float(a.dot(b))]
    rows = torch.stack([b, b**2, a])
    yield "mv", [dots(rows[:, mine], s).tolist(), (rows @ a).tolist()]
    mixed = add_combination(s, rows[:, mine], torch.tensor([1.0, 2.0, -3.0]), 0.5)
    whole = 0.5 * a + b + 2 * b**2 - 3 * a
    yield "addmv", [type(mixed).__name__, float(mixed.sum()), float(whole.sum())]
    yield "sum", [float(s.sum()), float(a.sum())]
    yield "max", [float(s.max()), float(a.max())]
    yield "min", [float(s.min()), float(a.min())]
    yield "norm", [norm(s), norm(a)]
    yield "tiny", [norm(s * 1e-200), norm(a * 1e-200)]
    yield "huge", [norm(s * 1e200), norm(a * 1e200)]
    yield "cosine", [norm_and_cosine(s * 1e-200, t, norm(t))[1], norm_and_cosine(a, b, norm(b))[1]]
    mixed = torch.where(s > 0, 2 - s / 3, t.abs().sqrt())
    yield (
        "elements",
        torch.equal(mixed.local(), torch.where(a > 0, 2 - a / 3, b.abs().sqrt())[mine]),
    )
    other = s.clone()
    other.local()[0] += 1 if rank == 0 else 0
    yield "equal", [torch.equal(s, s.clone()), torch.equal(s, other)]
    yield "numel", [s.numel(), len(s) == len(a[mine])]
    yield "repr", "Shard" in repr(s)
    for name, operation in {
        "index": lambda: s[0],
        "cumsum": lambda: s.cumsum(0),
        "item": lambda: s.item(),
        "mean": lambda: s.mean(),
        "cat": lambda: torch.cat([s, t]),
        "plain": lambda: torch.dot(s, a[mine]),
    }.items():
        try:
            operation()
        except TypeError as error:
            yield name, str(error)
        else:
            yield name, "no error"


class Messages:
    """Counts the numbers in the sums and broadcasts of torch.distributed."""

    def __init__(self):
        self.sizes = {}
        for kind in ("all_reduce", "broadcast"):
            setattr(dist, kind, self.counting(kind, getattr(dist, kind)))

    def counting(self, kind, send):
        def counted(tensor, *args, **kwargs):
            self.sizes.setdefault(kind, []).append(tensor.numel())
            return send(tensor, *args, **kwargs)

        return counted


def messages(rank):
    """What one iteration with a unit step sends, for the documents' arithmetic."""
    messages = Messages()

    def iteration(objective, x0):
        seen = {}

        def look(progress):
            row = progress.row
            if row.step_size == 1 and row.trials == 1 and row.iteration >= 2:
                seen.update({k: sorted(v) for k, v in messages.sizes.items()})
                return True
            messages.sizes.clear()

        firstish.minimize(objective, x0, method="CGMR", gtol=0, callback=look)
        return seen

    inputs, labels = share(rank, 27)
    for product in ("double-backward", "difference"):
        model, group = whole("mlp"), dist.group.WORLD
        objective = FiniteSum(
            model, loss_fn(), (inputs, labels), product=product, process_group=group
        )
        yield product, [objective.layout.total, iteration(objective, model)]
    model = sharded("mlp")
    objective = ShardedSum(model, loss_fn(), (inputs, labels))
    yield "sharded", iteration(objective, model)
    for name in ("gradient", "value"):
        with warnings.catch_warnings(), CommDebugMode() as seen:
            warnings.simplefilter("ignore")  # to FSDP the mode's outputs look like views
            getattr(objective, name)(objective.initial())
        counts = {str(kind): count for kind, count in seen.get_comm_counts().items()}
        yield name, counts


def refused(rank):
    """Bad input, named on every rank."""

    def attempt(make):
        try:
            made = make()
            _ = made.at(made.initial()).value
        except Exception as error:
            return [type(error).__name__, str(error)]
        return "no error"

    part = share(rank, 20)
    yield "plain", attempt(lambda: ShardedSum(whole("mlp"), loss_fn(), part))
    for product in ("double-backward", "gauss-newton", "exact"):
        yield product, attempt(lambda p=product: build(sharded("mlp"), rank, product=p))
    yield "decay", attempt(lambda: build(sharded("mlp"), rank, weight_decay=-1.0))
    empty = part[0][:0], part[1][:0]
    yield "empty", attempt(lambda: ShardedSum(sharded("mlp"), loss_fn(), empty))

    def divided():
        model = sharded("logistic")
        model.set_gradient_divide_factor(1.0)
        return build(model, rank)

    yield "divided", attempt(divided)

    def hybrid():
        mesh = dist.device_mesh.init_device_mesh("cpu", (1, 2), mesh_dim_names=("all", "part"))
        return build(fully_shard(whole("mlp"), mesh=mesh), rank)

    yield "hybrid", attempt(hybrid)

    def different():
        model = sharded("scaled")
        with torch.no_grad():
            model.scale += rank
        return build(model, rank)

    yield "different", attempt(different)
    yield "settings", attempt(lambda: build(sharded("mlp"), rank, seed=rank))

    class Mixing(nn.Linear):
        def forward(self, rows):
            out = super().forward(rows)
            return out - out.mean(0)

    def mixing():
        torch.manual_seed(1)
        return build(fully_shard(Mixing(6, 4).double()), rank)

    yield "mixing", attempt(mixing)

    calls = []

    def restless(outputs, labels):
        calls.append(1)
        return nn.functional.cross_entropy(outputs, labels) * len(calls)

    yield "restless", attempt(lambda: ShardedSum(sharded("mlp"), restless, part))
    batch_norm = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)).double()
    yield "batch norm", attempt(lambda: build(fully_shard(batch_norm), rank))
    unused = ShardedSum(sharded("mlp"), lambda o, t: t.double().mean(), part, check=False)
    yield "independent", attempt(lambda: unused)
    group = dist.group.WORLD

    def ignoring(outputs, labels):
        return nn.functional.cross_entropy(outputs, labels, ignore_index=-1)

    some = part[0], part[1].clone()
    some[1][:rank] = -1  # on rank 1 only
    yield "ignoring", attempt(lambda: ShardedSum(sharded("mlp"), ignoring, some))
    yield (
        "ignoring, whole",
        attempt(lambda: FiniteSum(whole("mlp"), ignoring, some, process_group=group)),
    )
    wrong = {
        "FiniteSum": lambda m: firstish.FiniteSum(m, loss_fn(), part, process_group=group),
        "ModuleObjective": lambda m: firstish.ModuleObjective(m, loss_fn(), *part),
        "ScaledGD": lambda m: firstish.ScaledGD(m.parameters()),
    }
    for name, make in wrong.items():
        yield name, attempt(lambda make=make: make(sharded("mlp")))
    short = torch.zeros(3, dtype=torch.float64)
    objective = build(sharded("mlp"), rank)
    yield "length", attempt(lambda: firstish.minimize(objective, short))


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
        for name, told in globals()[sys.argv[1]](rank):
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

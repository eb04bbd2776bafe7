"""Read the curvature of a model while it trains: the case, the scale and the step, live.

    python examples/curvature_panel.py [--iterations 300] [--plot curvature.png]

Each step of the plane method asks for one Hessian-vector product, so the panel costs nothing more.
In a terminal it is drawn as it goes; into a file or a pipe its last state is written once.
"""

import argparse
from collections import Counter, deque

import torch
from rich.console import Group
from rich.live import Live
from rich.table import Table
from sklearn.datasets import load_digits
from torch import nn

import firstish

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--iterations", type=int, default=300)
parser.add_argument("--plot", metavar="FILE.png", help="draw the run with matplotlib")
args = parser.parse_args()

torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.data / 16), torch.tensor(digits.target)
model = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 10)).double()
objective = firstish.ModuleObjective(
    model, nn.functional.cross_entropy, images, labels, weight_decay=1e-3
)
latest: deque[firstish.Row] = deque(maxlen=8)
cases: Counter[str] = Counter()


def panel() -> Group:
    table = Table("iteration", "f", "|g|", "case", "|Hg| / |g|", "scale", "step", "trials")
    for row in latest:
        numbers = (row.value, row.grad_norm, row.local_lipschitz, row.scale)
        f, norm, lipschitz, scale = ("" if n is None else f"{n:.3g}" for n in numbers)
        case = row.curvature.name if row.curvature else ""
        cells = (f, norm, case, lipschitz, scale, f"{row.step_size:g}", str(row.trials))
        table.add_row(str(row.iteration), *cells)
    met = ", ".join(f"{name} {count}" for name, count in sorted(cases.items()))
    return Group(table, f"curvature met so far: {met}\n")


with Live(panel(), auto_refresh=False) as live:

    def show(progress: firstish.Progress) -> None:
        latest.append(progress.row)
        if progress.row.curvature is not None:
            cases[progress.row.curvature.name] += 1
        live.update(panel(), refresh=progress.row.iteration % 5 == 0)

    result = firstish.minimize(
        objective, model, method="plane", max_iterations=args.iterations, callback=show
    )
print(result.message)

if args.plot:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = result.history[:-1]
    figure, axes = plt.subplots(3, 1, figsize=(6, 6), sharex=True, layout="constrained")
    for axis, name in zip(axes, ("value", "scale", "step_size"), strict=True):
        axis.semilogy([row.iteration for row in rows], [getattr(row, name) for row in rows], ".-")
        axis.set_ylabel(name)
    axes[-1].set_xlabel("iteration")
    figure.savefig(args.plot)
    print(f"drawn: {args.plot}")

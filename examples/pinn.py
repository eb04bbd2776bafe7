"""A physics-informed network: the default method against Adam and then L-BFGS, at the same cost.

    python examples/pinn.py [--calls 3000] [--seeds 3]

-u'' = pi^2 sin(pi x) on [-1, 1] with u(-1) = u(1) = 0, so u = sin(pi x). The loss is the mean
square of the residual at 100 points, plus that of the ends, in float64.
Each way starts at the same network and has the same number of calls: a loss is one, its gradient
another. The points stay the same throughout; docs/physics-informed.md says what to do with others.

The default keeps all curvature pairs here and rescales the older ones (self-scaled BFGS). The same
with 100 pairs, and with 100 and no rescaling as torch's L-BFGS, shows what either does.
"""

import argparse
import copy
import math

import torch
from torch import nn

import firstish

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--calls", type=int, default=3000)
parser.add_argument("--seeds", type=int, default=3)
calls, seeds = vars(parser.parse_args()).values()
torch.set_default_dtype(torch.float64)
points = torch.linspace(-1, 1, 100).unsqueeze(1).requires_grad_()
ends = torch.tensor([[-1.0], [1.0]])
force = (math.pi**2 * torch.sin(math.pi * points)).detach()
everywhere = torch.linspace(-1, 1, 1001).unsqueeze(1)
exact = torch.sin(math.pi * everywhere)


def residual(model: nn.Module) -> torch.Tensor:
    (slope,) = torch.autograd.grad(model(points).sum(), points, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), points, create_graph=True)
    return (bend + force).square().mean() + model(ends).square().mean()


def lazy(model: nn.Module, method: firstish.LazyStep) -> float:
    objective = firstish.ModuleObjective(model, residual)  # the loss is given the model itself
    result = firstish.minimize(objective, model, method=method, gtol=0, max_oracle_calls=calls)
    return result.oracle_calls


def adam_then_lbfgs(model: nn.Module) -> float:
    def closure() -> torch.Tensor:
        nonlocal spent
        spent += 2
        model.zero_grad()
        loss = residual(model)
        loss.backward()
        return loss

    spent, half = 0, calls // 4  # evaluations of two calls each
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(half):
        adam.step(closure)
    # By default it would stop where the loss changes by 1e-9, and say nothing.
    to_the_end = {"max_iter": calls, "max_eval": half, "tolerance_grad": 0, "tolerance_change": 0}
    lbfgs = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe", **to_the_end)
    lbfgs.step(closure)
    return spent


ways = {
    "lazy step, the default": lambda model: lazy(model, firstish.LazyStep()),
    "with 100 pairs": lambda model: lazy(model, firstish.LazyStep(memory=100)),
    "and without scaling": lambda model: lazy(
        model, firstish.LazyStep(memory=100, self_scaled=False)
    ),
    "Adam, then L-BFGS": adam_then_lbfgs,
}
for seed in range(seeds):
    print(f"seed {seed}")
    torch.manual_seed(seed)
    hidden = (nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh())
    start = nn.Sequential(*hidden, nn.Linear(20, 1))
    for name, way in ways.items():
        model = copy.deepcopy(start)
        spent, loss = way(model), residual(model).item()
        error = float((model(everywhere).detach() - exact).norm() / exact.norm())
        print(f"  {name:22} error {error:.1e}  loss {loss:.1e}  {spent:5g} calls")

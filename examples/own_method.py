"""A method of your own in thirty lines, run beside ours.

    python examples/own_method.py

Steepest descent zigzags because each step is exactly right along its line. Taking a little less,
0.9 of it, breaks the pattern. `minimize` does the loop, the budgets and the counters.
"""

from dataclasses import dataclass

import torch

import firstish


@dataclass(frozen=True)
class NoState:
    """What is handed from step to step; tensors and numbers, so that a run can be saved."""


@dataclass(frozen=True, kw_only=True)
class Relaxed:
    """p = -relaxation <g,g>/<g,Hg> g; halved until Armijo's condition holds."""

    relaxation: float = 0.9
    order = 2  # the highest order of derivatives needed: 2 for Hessian-vector products

    def init(self, point: firstish.Point) -> NoState:
        return NoState()

    def step(
        self, point: firstish.Point, state: NoState
    ) -> tuple[firstish.Point, firstish.Step, NoState]:
        g, f = point.grad, point.value
        gg, gHg = float(g @ g), point.curvature(g)
        s = self.relaxation * gg / gHg if gHg > 0 else 1.0
        for trials in range(1, 61):
            alpha = 0.5 ** (trials - 1)
            new = point.along(-g, alpha * s, self.order)
            if new.value <= f - 1e-4 * alpha * s * gg:
                return new, firstish.Step(scale=s, step_size=alpha, trials=trials), state
        stuck = firstish.Step(step_size=0.0, trials=60, failure=firstish.Failure.LINE_SEARCH)
        return point, stuck, state


torch.manual_seed(0)
A = torch.randn(500, 40, dtype=torch.float64) * torch.logspace(0, -1.5, 40, dtype=torch.float64)
labels = torch.randint(2, (500,))
A[:, 0] += 2 * labels
objective = firstish.LinearModel(A, labels, firstish.families.Logistic(), weight_decay=1e-3)

methods = {"Relaxed()": Relaxed(), "Relaxed(relaxation=1.0)": Relaxed(relaxation=1.0)}
for name, method in {**methods, "CG": "CG", "CGMR": "CGMR", "lazy": "lazy"}.items():
    result = firstish.minimize(objective, objective.initial(), method=method, gtol=1e-5)
    units = [row.step_size == 1 for row in result.history[:-1]]
    print(
        f"{name:24} {result.status.name:10} {result.oracle_calls:5g} calls, "
        f"{sum(units) / len(units):4.0%} unit steps"
    )

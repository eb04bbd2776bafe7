"""The first steps: a function, its history, a module, and a training loop.

python examples/first_steps.py
"""

import torch
from torch import nn

import firstish


def rosenbrock(x: torch.Tensor) -> torch.Tensor:
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


# 1. A function and a start. Nothing is tuned.
x0 = torch.tensor([-1.2, 1.0], dtype=torch.float64)
result = firstish.minimize(rosenbrock, x0, gtol=1e-8)
print("1.", result.message)
print("   x =", [round(number, 6) for number in result.x.tolist()])

# 2. What happened on the way: a row for each point, and the step that was taken from it.
print("2. iteration        f      |g|  step  calls")
for row in result.history[::8]:
    step = "" if row.step_size is None else f"{row.step_size:.2g}"
    numbers = f"{row.value:8.1e} {row.grad_norm:8.1e} {step:>5} {row.oracle_calls:6g}"
    print(f"   {row.iteration:9} {numbers}")

# 3. The paper's method, which looks at the curvature along the gradient in every step.
paper = firstish.minimize(rosenbrock, x0, method="CGMR", gtol=1e-8)
cases = [row.curvature.name for row in paper.history if row.curvature is not None]
print("3.", paper.message)
print("   curvature:", {case: cases.count(case) for case in sorted(set(cases))})

# 4. A module and its data: the module is left holding the result.
torch.manual_seed(0)
inputs = torch.linspace(-3, 3, 200).unsqueeze(1)
targets = torch.sin(2 * inputs)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
objective = firstish.ModuleObjective(model, nn.functional.mse_loss, inputs, targets)
result = firstish.minimize(objective, model, gtol=1e-4, max_oracle_calls=1000)
print("4.", result.message)

# 5. A training loop of your own. The closure returns the loss and leaves the rest to the optimizer.
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = firstish.ScaledGD(model.parameters())
for _ in range(100):
    loss = optimizer.step(lambda: nn.functional.mse_loss(model(inputs), targets))
row = optimizer.last_step
print(f"5. loss {loss:.1e} after {row.iteration + 1} steps;", end=" ")
print(f"the last from {row.pairs} curvature pairs, with step size {row.step_size:g}")

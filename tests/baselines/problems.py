"""The reference problems for torch, and a run of ours recorded like the reference's."""

import torch

from firstish import FunctionObjective, minimize

from . import reference


def tensor(array):
    return torch.tensor(array, dtype=torch.float64)


LOGISTIC = reference.Logistic()
VALLEY = reference.Valley()
WELLS = reference.Wells()
TRAP = reference.Trap()

_A, _b, _w = tensor(LOGISTIC.A), tensor(LOGISTIC.b), tensor(WELLS.weights)


def _logistic(x):
    margins = _b * (_A @ x)
    zero = torch.zeros((), dtype=torch.float64)
    return torch.logaddexp(zero, -margins).mean() + LOGISTIC.lam / 2 * (x @ x)


def _valley(x):
    return ((1 - x[:-1]) ** 2 + VALLEY.steep * (x[1:] - x[:-1] ** 2) ** 2).sum()


def _wells(x):
    return (_w * (x**2 - 1) ** 2).sum() / 4 + 0.1 * (x[1:] * x[:-1]).sum()


def _trap(x):
    return x.sum() + (0.5 if bool((x == 0).all()) else 20.0)


FUNCTIONS = {LOGISTIC: _logistic, VALLEY: _valley, WELLS: _wells, TRAP: _trap}


def run(method, problem, n, *, x0=None):
    """`minimize` for n iterations, as a reference trace, and its result."""
    x0 = tensor(problem.x0 if x0 is None else x0)
    objective = FunctionObjective(FUNCTIONS[problem], x0, product="double-backward", check=False)
    iterates = [x0.numpy()]
    result = minimize(
        objective,
        x0,
        method=method,
        gtol=0.0,
        max_oracle_calls=None,
        max_iterations=n,
        callback=lambda progress: iterates.append(progress.x.clone().numpy()),
    )
    trace = reference.Trace(
        x=iterates,
        step_size=[row.step_size for row in result.history[:-1]],
        trials=[row.trials for row in result.history[:-1]],
        oracle_calls=[row.oracle_calls for row in result.history],
    )
    return trace, result

"""A fixed run and how to store it: `python tests/paper/golden/trace_run.py` writes trace.json.

Write it only when a change of the numbers is meant, and say why in the commit.
"""

import json
from pathlib import Path

import torch

from firstish import ScaledGradient, minimize

STORED = Path(__file__).with_name("trace.json")
STEPS = 25
FIELDS = (
    "iteration",
    "oracle_calls",
    "value",
    "grad_norm",
    "curvature",
    "scaling",
    "scale",
    "step_size",
    "trials",
    "cosine",
    "local_lipschitz",
    "descent_margin",
)


def net(x):
    """A 3-4-1 GELU net on 12 points made of sines, with weight decay."""
    i = torch.arange(1, 13, dtype=torch.float64)[:, None]
    inputs = torch.sin(i * torch.tensor([1.0, 2.3, 3.9], dtype=torch.float64))
    targets = 2 * torch.cos(0.7 * i[:, 0])
    W, b, w = x[:12].view(4, 3), x[12:16], x[16:]
    outputs = torch.nn.functional.gelu(inputs @ W.T + b) @ w
    return ((outputs - targets) ** 2).mean() + 1e-3 * (x @ x)


def trace():
    """The rows of the run, as they are stored."""
    x0 = 0.2 * torch.sin(5.0 * torch.arange(20, dtype=torch.float64))
    result = minimize(
        net, x0, method=ScaledGradient(scaling="CGMRGM", sigma=0.05), gtol=0, max_iterations=STEPS
    )
    rows = [row.to_dict() for row in result.history[:-1]]
    return [{field: row[field] for field in FIELDS} for row in rows]


if __name__ == "__main__":
    STORED.write_text(json.dumps(trace(), indent=1) + "\n")

"""What kind of point a run ended in."""

from __future__ import annotations

import torch
from torch import Tensor

from bounded.problems import Problem
from firstish.bounds.box import Box


def describe(p: Problem, x: Tensor) -> str:
    """f, |P(x - g) - x|, how many are at a bound, the least eigenvalue of the free block of H."""
    box = Box(p.lower, p.upper)
    leaf = x.clone().requires_grad_()
    value = p.f(leaf)
    (g,) = torch.autograd.grad(value, leaf)
    step = torch.clamp(-g, box.lower - x, box.upper - x)
    free = (step != 0) | (g == 0)
    H = torch.autograd.functional.hessian(p.f, x)[free][:, free]
    least = float(torch.linalg.eigvalsh(H)[0]) if len(H) else 0.0
    largest = float(H.abs().max()) if len(H) else 0.0
    optimality = float(step.norm())
    return (
        f"f = {value.item():.6g}  projected gradient {optimality:.1e}  {int((~free).sum())} held  "
        f"least eigenvalue {least:.2e} (largest entry {largest:.1e})"
    )

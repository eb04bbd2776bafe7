"""The counted objective as a torch function, for packages that differentiate it themselves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from race.counted import Counted


class _Value(torch.autograd.Function):
    """f(x); its backward is the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, f: Counted) -> Tensor:
        ctx.save_for_backward(x)
        ctx.f = f
        return x.new_tensor(f.value(x.detach().numpy()))

    @staticmethod
    def backward(ctx: Any, *up: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return up[0] * _Gradient.apply(x, ctx.f), None


class _Gradient(torch.autograd.Function):
    """The gradient; its backward is the product with the Hessian, which is symmetric."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, f: Counted) -> Tensor:
        ctx.save_for_backward(x)
        ctx.f = f
        return torch.from_numpy(f.grad(x.detach().numpy())).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *v: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return torch.from_numpy(ctx.f.hessp(x.detach().numpy(), v[0].numpy())).to(x.dtype), None


def differentiable(f: Counted, x: Tensor) -> Tensor:
    """f(x) with a gradient and a product that autograd can ask for, and that are counted."""
    value: Tensor = _Value.apply(x, f)
    return value

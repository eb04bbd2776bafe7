"""Hessian-vector products, computed in three ways.

- `double_backward`: the derivative of <g, v>, exact;
- `gradient_difference`: (g(x + e v) - g(x)) / e, which needs only gradients;
- `gauss_newton`: J' H_loss J v, positive semidefinite if the loss is convex in the outputs, so it
  never reports negative curvature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from firstish.linalg import add, norm, norm_and_cosine
from firstish.objectives.base import Product

SHORTEST = 1e-290  # differences over shorter distances underflow


def double_backward(
    grads: Sequence[Tensor | None], leaves: Sequence[Tensor], v: Sequence[Tensor]
) -> list[Tensor | None]:
    """Hv as the derivative of <g, v>, one tensor per leaf; frees the graph of g.

    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> f = lambda x: (x**3).sum() + x[0] * x[1]
    >>> grads = torch.autograd.grad(f(x), [x], create_graph=True)
    >>> v = torch.tensor([1.0, -1.0])
    >>> H = torch.autograd.functional.hessian(f, x)
    >>> torch.equal(double_backward(grads, [x], [v])[0], H @ v)
    True
    """
    known = [(g, w) for g, w in zip(grads, v, strict=True) if g is not None and g.requires_grad]
    if not known:  # the loss is linear: autograd would raise, but Hv = 0
        return [None] * len(leaves)
    g, w = zip(*known, strict=True)
    # --8<-- [start:double_backward]
    return list(torch.autograd.grad(g, leaves, w, allow_unused=True))
    # --8<-- [end:double_backward]


def gauss_newton(
    loss: Tensor, outputs: Tensor, leaves: Sequence[Tensor], v: Sequence[Tensor]
) -> list[Tensor | None]:
    """J' H J v, J the Jacobian of the outputs and H the Hessian of the loss in the outputs.

    If the outputs are linear in x, it equals the Hessian-vector product:

    >>> x, A = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([[1.0, 2.0], [0.0, 3.0]])
    >>> f, v = (lambda x: (A @ x).pow(4).sum()), torch.tensor([1.0, -1.0])
    >>> outputs = A @ x
    >>> Gv = gauss_newton(outputs.pow(4).sum(), outputs, [x], [v])[0]
    >>> torch.allclose(Gv, torch.autograd.functional.hessian(f, x) @ v)
    True
    """
    # J v by transposing u -> J'u, which is linear in u: two reverse passes, no forward mode.
    u = torch.zeros_like(outputs, requires_grad=True)
    vjp = torch.autograd.grad(outputs, leaves, u, create_graph=True, allow_unused=True)
    known = [(r, w) for r, w in zip(vjp, v, strict=True) if r is not None]
    (Jv,) = torch.autograd.grad([r for r, _ in known], u, [w for _, w in known])
    (slope,) = torch.autograd.grad(loss, outputs, create_graph=True)
    if not slope.requires_grad:  # the loss is linear in the outputs: H = 0
        return [None] * len(leaves)
    (HJv,) = torch.autograd.grad(slope, outputs, Jv, retain_graph=True)
    return list(torch.autograd.grad(outputs, leaves, HJv, allow_unused=True))


def gradient_difference(
    gradient: Callable[[Tensor], Tensor],
    x: Tensor,
    g: Tensor,
    v: Tensor,
    *,
    eps: float,
    grad_scale: float,
    distance: float | None = None,
) -> Product:
    """(g(x + e v) - g(x)) / e with e = distance / |v|, by default sqrt(eps) (1 + |x|) / |v|.

    Its curvature has two errors: truncation, about sqrt(eps) times itself, and the rounding of two
    gradients whose terms are as large as the largest gradient seen (`grad_scale`). Near zero
    curvature truncation may decide the sign. There the difference from x - e v is computed too: the
    difference of the two estimates the truncation, and their mean is free of it.

    The default distance assumes a scale of 1 for small x. If |x| is below that distance and the
    gradient changes completely over it, the scale is |x|. If the gradient is not finite at that
    distance, shorter ones are tried.

    >>> x, v = torch.tensor([1.0, 2.0]).double(), torch.tensor([1.0, -1.0]).double()
    >>> f = lambda x: (x**3).sum() + x[0] * x[1]
    >>> g, H = torch.func.grad(f), torch.autograd.functional.hessian(f, x)
    >>> Hv = gradient_difference(g, x, g(x), v, eps=2.0**-52, grad_scale=10.0).vector
    >>> bool((Hv - H @ v).abs().max() < 1e-6)
    True
    """
    v_norm, root = norm(v), math.sqrt(eps)
    if v_norm == 0:
        return Product(torch.zeros_like(v))

    def over(distance: float) -> tuple[Product, float]:
        return _difference_over(distance, gradient, x, g, v, v_norm, root, grad_scale)

    if distance is not None:
        return over(distance)[0]
    x_norm = norm(x)
    distance = root * (1 + x_norm)
    product, length = over(distance)
    if x_norm < distance and not length / v_norm * distance < norm(g) and x_norm > SHORTEST:
        distance = root * x_norm
        product, length = over(distance)
    while not math.isfinite(length) and distance * root > max(eps * x_norm, SHORTEST):
        distance *= root
        product, length = over(distance)
    return product


def _difference_over(
    distance: float,
    gradient: Callable[[Tensor], Tensor],
    x: Tensor,
    g: Tensor,
    v: Tensor,
    v_norm: float,
    root: float,
    grad_scale: float,
) -> tuple[Product, float]:
    """The difference over `distance`, and its length; `root` is sqrt(eps)."""
    # --8<-- [start:difference]
    e, natural = distance / v_norm, root * grad_scale / distance
    rounding = 2 * root * natural
    vector = (gradient(add(x, v, e)) - g) / e
    # --8<-- [end:difference]
    length, cosine = norm_and_cosine(vector, v, v_norm)
    if abs(cosine * length / v_norm) > min(1000 * root, 0.01) * natural:
        return Product(vector, relative_error=root, absolute_error=rounding), length
    other = (g - gradient(add(x, v, -e))) / e
    gap, cosine = norm_and_cosine(vector - other, v, v_norm)
    truncation = abs(cosine * gap / v_norm) / 2
    mean = (vector + other) / 2
    return Product(mean, root, rounding + truncation), norm(mean)

"""Hessian-vector products, three ways.

- double backward on the gradient's own graph: exact;
- gradient difference, Hv ~ (g(x + e v) - g(x)) / e: works for everything that has a gradient;
- Gauss-Newton, J' H_loss J v: positive semidefinite where the loss is convex in the outputs, so
  negative curvature is never reported.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from firstish.errors import ProductError
from firstish.objectives.backward import derivative
from firstish.objectives.point import Product
from firstish.vectors import add, norm, norm_and_cosine

Mode = Literal["auto", "double-backward", "difference", "gauss-newton"]
_SHORTEST = 1e-290  # differences over less than this underflow
FLOAT64_EPS = torch.finfo(torch.float64).eps


class ProductChoice:
    """Which product an objective uses; "auto" settles at the first one.

    Args:
        mode: what the user asked for.
        owner: the call to name in errors.
    """

    def __init__(self, mode: Mode, owner: str) -> None:
        if mode not in get_args(Mode):
            names = ", ".join(map(repr, get_args(Mode)))
            raise ValueError(f"`{owner}(product={mode!r})` is unknown. Use one of {names}.")
        self.asked: Mode = mode
        self.settle(mode)

    def settle(self, mode: Mode) -> None:
        """Use this mode from now on."""
        self.mode: Mode = mode
        # whether the gradient must be computed with a graph of its own
        self.keeps_gradient_graph = mode in ("auto", "double-backward")

    def fall_back(self, error: Exception) -> None:
        """Use differences from now on, or raise if the user insisted on double backward."""
        operation = failing_operation(str(error))
        if self.mode != "auto":
            raise ProductError(
                f"`product='double-backward'` is impossible: {operation} cannot be differentiated "
                "twice. Use `product='auto'` or `product='difference'`."
            ) from error
        warnings.warn(
            f"{operation} cannot be differentiated twice; Hessian-vector products are gradient "
            "differences from now on. To choose that and silence this, pass `product='difference'` "
            "to `ScaledGD` or to the objective, as in `FunctionObjective(fun, x0, product=...)`.",
            stacklevel=2,
        )
        self.settle("difference")


def failing_operation(message: str) -> str:
    """The operation a RuntimeError of the double backward is about.

    >>> failing_operation("the derivative for '_cdist_backward' is not implemented")
    '_cdist_backward'
    """
    named = re.search(r"derivative for '?([\w:.]+?)'? is not implemented", message)
    if named:
        return named.group(1)
    if "aot_autograd" in message or "torch.compile" in message:
        return "a module compiled by torch.compile"
    return f"an operation of the loss ({message.strip().splitlines()[0] if message else 'unknown'})"


def double_backward(
    grads: Sequence[Tensor | None], leaves: Sequence[Tensor], v: Sequence[Tensor]
) -> list[Tensor | None]:
    """The derivative of <g, v>: Hv, leaf by leaf. Frees the graph."""
    g, w = [], []
    for one, along in zip(grads, v, strict=True):
        if one is not None and one.requires_grad:
            g.append(one)
            w.append(along)
    if not g:  # the loss is linear: autograd would raise, but Hv = 0
        return [None] * len(leaves)
    # --8<-- [start:double_backward]
    return list(derivative(g, leaves, w))
    # --8<-- [end:double_backward]


def gauss_newton(
    loss: Tensor, outputs: Tensor, leaves: Sequence[Tensor], v: Sequence[Tensor]
) -> list[Tensor | None]:
    """J' H J v, J the Jacobian of the outputs and H the Hessian of the loss in them."""
    # J v by transposing u -> J'u, which is linear in u: two reverse passes, no forward mode.
    u = torch.zeros_like(outputs, requires_grad=True)
    vjp = torch.autograd.grad(outputs, leaves, u, create_graph=True, allow_unused=True)
    pairs = [(r, w) for r, w in zip(vjp, v, strict=True) if r is not None]
    (Jv,) = torch.autograd.grad([r for r, _ in pairs], u, [w for _, w in pairs])
    (slope,) = torch.autograd.grad(loss, outputs, create_graph=True)
    if not slope.requires_grad:  # a loss linear in the outputs has no Gauss-Newton curvature
        return [None] * len(leaves)
    (HJv,) = torch.autograd.grad(slope, outputs, Jv, retain_graph=True)
    return list(torch.autograd.grad(outputs, leaves, HJv, allow_unused=True))


def difference(
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

    Its curvature is off by truncation, about sqrt(eps) of itself, and by the rounding of two
    gradients whose terms are as large as the largest gradient seen (`grad_scale`). A curvature near
    zero is looked at from x - e v too, because there truncation alone may give it its sign: the
    two sides then show the truncation, and their mean is free of it.

    The default takes 1 for the scale of a small x. Where x is below that distance and the gradient
    changes altogether over it, |x| is the scale; and where the gradient is not finite at that
    distance, shorter ones are tried.
    """
    v_norm, root = norm(v), math.sqrt(eps)
    if v_norm == 0:
        return Product(torch.zeros_like(v))

    def over(distance: float) -> Product:
        return _difference_over(distance, gradient, x, g, v, v_norm, root, grad_scale)

    if distance is not None:
        return over(distance)
    x_norm = norm(x)
    distance = root * (1 + x_norm)
    product = over(distance)
    length = norm(product.vector)
    if x_norm < distance and not length / v_norm * distance < norm(g) and x_norm > _SHORTEST:
        distance = root * x_norm
        product = over(distance)
        length = norm(product.vector)
    while not math.isfinite(length) and distance * root > max(eps * x_norm, _SHORTEST):
        distance *= root
        product = over(distance)
        length = norm(product.vector)
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
) -> Product:
    """The difference over that distance; `root` is sqrt(eps)."""
    # --8<-- [start:difference]
    e, natural = distance / v_norm, root * grad_scale / distance
    rounding = 2 * root * natural
    vector = (gradient(add(x, v, e)) - g) / e
    # --8<-- [end:difference]
    length, cosine = norm_and_cosine(vector, v, v_norm)
    if abs(cosine * length / v_norm) > min(1000 * root, 0.01) * natural:
        return Product(vector, relative_error=root, absolute_error=rounding)
    other = (g - gradient(add(x, v, -e))) / e
    length, cosine = norm_and_cosine(vector - other, v, v_norm)
    truncation = abs(cosine * length / v_norm) / 2
    return Product((vector + other) / 2, root, rounding + truncation)


def contradicts(
    exact: Product,
    differ: Callable[[float], Product],
    x: Tensor,
    grad_norm: float,
    v: Tensor,
    eps: float,
) -> Product | None:
    """The difference product, if it shows that `exact` is wrong; None if it does not.

    It shows so when it is far from `exact` while a difference over an eighth of the distance
    confirms it. The distance is short against the one over which, by `exact`, the gradient changes
    altogether. Where the two differences disagree as well, it is the difference that cannot be
    trusted (f bends within the distance, or overflows).
    """
    length, v_norm = norm(exact.vector), norm(v)
    if not math.isfinite(length):
        return None
    share = 1e-3 if eps <= FLOAT64_EPS else 0.3
    x_norm = norm(x)
    distance = math.sqrt(eps) * (1 + x_norm)
    if length > 0:
        distance = min(distance, eps**0.25 * grad_norm / (length / v_norm))
    if distance < _SHORTEST or eps * x_norm > share * distance / 8:
        return None  # x + e v would be too far from where it should be

    def agree(a: Product, b: Product) -> bool:
        allowed = share * max(norm(a.vector), norm(b.vector))
        floor = 10 * max(a.absolute_error, b.absolute_error) * v_norm
        return norm(a.vector - b.vector) <= allowed + floor

    one = differ(distance)
    if agree(exact, one):
        return None
    two = differ(distance / 8)
    return one if agree(one, two) and not agree(exact, two) else None

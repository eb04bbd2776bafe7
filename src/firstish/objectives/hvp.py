"""Hessian-vector products: three formulas, and the choice between them.

- `double_backward`: the derivative of <g, v>, exact;
- `gradient_difference`: (g(x + e v) - g(x)) / e, which needs only gradients;
- `gauss_newton`: J' H_loss J v, positive semidefinite if the loss is convex in the outputs, so it
  never reports negative curvature.

`ProductSelector` chooses; `graph_eps` is the unit roundoff of the graph they are computed from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor

from firstish.errors import ProductError
from firstish.interface.warn import warn
from firstish.linalg import add, norm, norm_and_cosine
from firstish.objectives.base import FLOAT64_EPS, Order, Product

Mode = Literal["auto", "double-backward", "difference", "gauss-newton"]
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


class Evaluating(Protocol):
    """What the selector needs of an objective."""

    raised: Exception | None  # the last error of the loss itself


class Differentiable(Protocol):
    """The interface of a point that the selector uses."""

    @property
    def objective(self) -> Evaluating:
        """The objective."""

    @property
    def x(self) -> Tensor:
        """The vector."""

    @property
    def order(self) -> Order:
        """The highest order of derivatives the point is ready for."""

    @property
    def eps(self) -> float:
        """Unit roundoff of the arithmetic of f."""

    @property
    def grad_norm(self) -> float:
        """|g|."""

    def exact_product(self, v: Tensor) -> Product:
        """Hv by double backward."""

    def gauss_newton_product(self, v: Tensor) -> Product:
        """Gv by Gauss-Newton."""

    def gradient_at(self, x: Tensor) -> Tensor:
        """The gradient at another x, without a point."""

    def difference_base(self) -> Tensor:
        """The gradient at the point that `gradient_at` is compared with."""

    def release(self) -> None:
        """Free the graph."""


class ProductSelector:
    """Chooses between the Hessian-vector products and remembers the choice.

    "auto" tries double backward at the first product and checks it against a gradient difference.
    If it fails or is contradicted, gradient differences are used from then on.

    Args:
        mode: the user's choice.
        call: the call to name in errors.
    """

    def __init__(self, mode: Mode, call: str) -> None:
        if mode not in get_args(Mode):
            names = ", ".join(map(repr, get_args(Mode)))
            raise ValueError(f"`{call}(product={mode!r})` is unknown. Use one of {names}.")
        self.requested: Mode = mode
        self.grad_scale = 0.0  # the largest gradient norm seen: the scale of rounding errors
        self.settle(mode)

    def settle(self, mode: Mode) -> None:
        """Use this mode from now on."""
        self.mode: Mode = mode
        self.needs_gradient_graph = mode in ("auto", "double-backward")

    def product(self, point: Differentiable, v: Tensor) -> Product:
        """Hv by the mode in use."""
        if self.mode == "gauss-newton":
            return point.gauss_newton_product(v)
        if self.mode == "difference":
            return self.difference(point, v)
        if self.requested == "auto" and point.order != 2:
            return self.difference(point, v)  # no graph was kept: 2 passes instead of 4
        try:
            exact = point.exact_product(v)
        except (RuntimeError, NotImplementedError) as error:
            if error is point.objective.raised:
                raise  # the loss failed, not its second derivative
            self.fall_back(error)
            return self.difference(point, v)
        return exact if self.mode == "double-backward" else self._confirmed(point, exact, v)

    def difference(
        self, point: Differentiable, v: Tensor, distance: float | None = None
    ) -> Product:
        """Hv by a gradient difference."""
        point.release()
        self.grad_scale = max(self.grad_scale, point.grad_norm)
        return gradient_difference(
            point.gradient_at,
            point.x,
            point.difference_base(),
            v,
            eps=point.eps,
            grad_scale=self.grad_scale,
            distance=distance,
        )

    def fall_back(self, error: Exception) -> None:
        """Use differences from now on; raise if the user chose double backward."""
        operation = failing_operation(str(error))
        if self.mode != "auto":
            raise ProductError(
                f"`product='double-backward'` is not supported: {operation} cannot be "
                "differentiated twice. Use `product='auto'` or `product='difference'`."
            ) from error
        warn(
            f"{operation} cannot be differentiated twice; Hessian-vector products are gradient "
            "differences from now on. To choose that and silence this, pass `product='difference'` "
            "to `ScaledGD` or to the objective, as in `FunctionObjective(fun, x0, product=...)`."
        )
        self.settle("difference")

    def _confirmed(self, point: Differentiable, exact: Product, v: Tensor) -> Product:
        """The exact product, or the difference that contradicts it; ends "auto"."""
        wrong = contradicting_difference(
            exact,
            lambda distance: self.difference(point, v, distance),
            point.x,
            point.grad_norm,
            v,
            point.eps,
        )
        if wrong is None:
            self.settle("double-backward")
            return exact
        self.settle("difference")
        warn(
            "The Hessian-vector product by double backward contradicts the change of the gradient, "
            "so a second derivative in the loss is wrong or missing; products are gradient "
            "differences from now on. Pass `product='double-backward'` to use it anyway."
        )
        return wrong


def failing_operation(message: str) -> str:
    """The operation that a RuntimeError of the double backward names.

    >>> failing_operation("the derivative for '_cdist_backward' is not implemented")
    '_cdist_backward'
    """
    named = re.search(r"derivative for '?([\w:.]+?)'? is not implemented", message)
    if named:
        return named.group(1)
    if "aot_autograd" in message or "torch.compile" in message:
        return "a module compiled by torch.compile"
    return f"an operation of the loss ({message.strip().splitlines()[0] if message else 'unknown'})"


def contradicting_difference(
    exact: Product,
    differ: Callable[[float], Product],
    x: Tensor,
    grad_norm: float,
    v: Tensor,
    eps: float,
) -> Product | None:
    """The difference product, if it shows that `exact` is wrong; else None.

    It does if it is far from `exact` and agrees with a difference over an eighth of the distance.
    If the two differences disagree, they are not reliable: the gradient is not linear over the
    distance, or overflows. The distance is short compared to |g| |v| / |Hv|, over which, according
    to `exact`, the gradient changes completely.
    """
    length, v_norm = norm(exact.vector), norm(v)
    if not math.isfinite(length):
        return None
    share = 1e-3 if eps <= FLOAT64_EPS else 0.3
    x_norm = norm(x)
    distance = math.sqrt(eps) * (1 + x_norm)
    if length > 0:
        distance = min(distance, eps**0.25 * grad_norm / (length / v_norm))
    if distance < SHORTEST or eps * x_norm > share * distance / 8:
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


def graph_eps(loss: Tensor) -> float:
    """The largest unit roundoff in the graph of a loss, which shows autocast and casts.

    The dtypes of a node are an undocumented attribute; without it only that of the loss is known.
    """
    dtypes, seen, waiting = {loss.dtype}, set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        dtypes.update(_dtypes(node))
        waiting += [parent for parent, _ in node.next_functions]
    return max(torch.finfo(dtype).eps for dtype in dtypes if dtype.is_floating_point)


def _dtypes(node: Any) -> list[torch.dtype]:
    """The dtypes of the gradients that will reach a node of the graph."""
    metadata = getattr(node, "_input_metadata", None)
    if metadata is not None:
        return [meta.dtype for meta in metadata]
    # torch 2.4 has no metadata. Saved tensors show at least the half precisions of autocast; a
    # single one among doubles may be a constant.
    try:
        saved = [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]
    except RuntimeError:  # freed: a closure has called backward()
        return []
    halves = (torch.float16, torch.bfloat16)
    return [t.dtype for t in saved if isinstance(t, Tensor) and t.dtype in halves]

"""A check of FSDP's gradient against differences of f."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from firstish.linalg import norm
from firstish.objectives.sharded.vector import Shard


def check_gradient(
    f: Callable[[Tensor], float], x: Shard, fx: float, g: Shard, eps: float, call: str
) -> None:
    """Raise if f does not change along g as g predicts.

    FSDP divides by the world size unless set otherwise, and hooks may change gradients. The check
    is skipped at a kink, and if the change of f is lost in rounding.

    Args:
        f: the sum of the losses.
        x: the point.
        fx: f(x).
        g: the gradient at x.
        eps: unit roundoff of the arithmetic f is computed in.
        call: the call to name in errors.
    """
    g_norm = norm(g)
    if not (math.isfinite(fx) and 0 < g_norm < math.inf):
        return
    v, h = (g / g_norm).to(x.dtype), eps ** (1 / 3) * (1 + norm(x))
    forward = (f(x.add(v, alpha=h)) - fx) / h
    backward = (fx - f(x.add(v, alpha=-h))) / h
    lost = 20 * eps * abs(fx) / h > 0.05 * g_norm
    if lost or not abs(forward - backward) < 0.2 * g_norm:
        return
    ratio = g_norm / ((forward + backward) / 2) if forward + backward else math.inf
    if not 0.75 < ratio < 1.5:
        raise ValueError(
            f"`{call}(model=...)` gives a gradient that is {ratio:.3g} times that of f. Shard it "
            "without `set_gradient_divide_factor` and without hooks that change gradients."
        )

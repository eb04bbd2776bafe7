"""Random problems with dense truth, and points whose Hessian is whatever a test asks for."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd.functional import hessian, jacobian
from torch.nn.functional import cross_entropy, gelu

from firstish import FunctionObjective, Point, ScaledGradient, minimize
from firstish.objectives import Meter, Product
from firstish.scaling import Curvature

EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True)
class Problem:
    kind: str
    fun: Callable[[Tensor], Tensor]
    x: Tensor

    def point(self, **options) -> Point:
        return FunctionObjective(self.fun, self.x, **options).at(self.x)

    def negated(self) -> "Problem":
        return replace(self, fun=lambda x: -self.fun(x))

    def dense(self, x: Tensor | None = None) -> tuple[np.ndarray, np.ndarray]:
        """g and H in float64, by other means than ours."""
        x = self.x if x is None else x
        g, H = jacobian(self.fun, x), hessian(self.fun, x)
        return g.double().numpy(), (H + H.T).double().numpy() / 2


class Draw:
    """Random data that float32 holds exactly, so that both precisions see the same function."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype

    def tensor(self, a: np.ndarray) -> Tensor:
        return torch.from_numpy(a.astype(np.float32)).to(self.dtype)

    def normal(self, *shape: int) -> Tensor:
        return self.tensor(self.rng.standard_normal(shape))

    def symmetric(self, d: int, low: float, high: float) -> Tensor:
        U, _ = np.linalg.qr(self.rng.standard_normal((d, d)))
        Q = U @ np.diag(np.linspace(low, high, d) if d > 1 else [high]) @ U.T
        return self.tensor((Q + Q.T) / 2)


def _quadratic(draw, d, low, high):
    Q, b = draw.symmetric(d, low, high), draw.normal(d)
    return lambda x: x @ (Q @ x) / 2 - b @ x


def _convex_quadratic(draw, d):
    return _quadratic(draw, d, 1.0, 20.0)


def _indefinite_quadratic(draw, d):
    return _quadratic(draw, d, -3.0, 8.0)


def _cubic(draw, d):
    quadratic, B = _quadratic(draw, d, -1.0, 4.0), draw.normal(3, d)
    return lambda x: quadratic(x) + ((B @ x) ** 3).sum() / 6


def _quartic(draw, d):
    quadratic, B = _quadratic(draw, d, -4.0, 2.0), torch.eye(d, dtype=draw.dtype)
    B = B + draw.normal(d, d) / 4
    return lambda x: quadratic(x) + ((B @ x) ** 4).sum() / 24


def _softmax(draw, d):
    A, classes = draw.normal(12, d), 3
    labels = torch.from_numpy(draw.rng.integers(0, classes, 12))

    def fun(x):
        logits = A @ x.view(d, classes - 1)
        logits = torch.cat([logits, logits.new_zeros(12, 1)], dim=1)
        return cross_entropy(logits, labels) + 0.05 * (x @ x)

    return fun, d * (classes - 1)


def _gelu_net(draw, d):
    inputs, targets = draw.normal(10, d), draw.normal(10)

    def fun(x):
        W, w = x[: 3 * d].view(3, d), x[3 * d :]
        return ((gelu(inputs @ W.T) @ w - targets) ** 2).mean() + 0.01 * (x @ x)

    return fun, 3 * d + 3


MAKERS = {
    "convex quadratic": _convex_quadratic,
    "indefinite quadratic": _indefinite_quadratic,
    "cubic": _cubic,
    "quartic": _quartic,
    "softmax": _softmax,
    "gelu net": _gelu_net,
}
KINDS = tuple(MAKERS)
CONVEX = ("convex quadratic", "softmax")
BOUNDED = ("convex quadratic", "quartic", "softmax", "gelu net")


def make(kind: str, seed: int, d: int = 4, dtype: torch.dtype = torch.float64) -> Problem:
    draw = Draw(seed, dtype)
    made = MAKERS[kind](draw, d)
    fun, size = made if isinstance(made, tuple) else (made, d)
    return Problem(kind, fun, draw.normal(size))


seeds = st.integers(0, 2**32 - 1)


def problems(kinds=KINDS, dtype=torch.float64, smallest=1):
    return st.builds(make, st.sampled_from(kinds), seeds, st.integers(smallest, 6), st.just(dtype))


def force(problem: Problem, case: Curvature, share: float) -> tuple[Problem, float]:
    """The problem, negated if need be, and a sigma for which its first step is of that case.

    -f has the curvature -gHg. `share` in [0, 1) says how sigma and the curvature compare.
    """
    g, H = problem.dense()
    curvature = g @ H @ g / (g @ g)
    if (curvature < 0) != (case is Curvature.NC):
        problem, curvature = problem.negated(), -curvature
    if case is Curvature.SPC:
        return problem, share * float(curvature)
    return problem, (1.01 + share) * abs(float(curvature))


def first_step(problem: Problem, method: ScaledGradient, **options):
    point = problem.point(**options)
    return method.step(point, method.init(point))


class DensePoint(Point):
    """A point of a function given by NumPy: f, g, and any matrix as its Hessian."""

    eps = EPS

    def __init__(self, x, f, g, H, meter=None, order=2):
        super().__init__(x, meter or Meter(), order)
        self.parts = f, g, H

    def at(self, x, order=2):
        return DensePoint(x, *self.parts, self.meter, order)

    def _value(self):
        return float(self.parts[0](self.x.numpy()))

    def _gradient(self):
        return torch.from_numpy(self.parts[1](self.x.numpy()))

    def _product(self, v):
        return Product(torch.from_numpy(self.parts[2](self.x.numpy()) @ v.numpy()))


class Waves:
    """f = sum_i a_i sin(b_i.x) + x'Qx/2 + <c, x>, with its exact constants to hand.

    Its third derivative is at most L2 = sum_i |a_i| |b_i|^3. The linear term leaves H alone, so
    `tilted` can put any gradient at any point.
    """

    def __init__(self, rng, d, low, high, waves=3, weight=1.0):
        self.a = weight * rng.uniform(-1, 1, waves)
        self.B = rng.standard_normal((waves, d)) / np.sqrt(d)
        U, _ = np.linalg.qr(rng.standard_normal((d, d)))
        self.Q = U @ np.diag(rng.uniform(low, high, d)) @ U.T
        self.Q = (self.Q + self.Q.T) / 2
        self.c = np.zeros(d)
        self.L2 = float(np.abs(self.a) @ np.linalg.norm(self.B, axis=1) ** 3)

    def f(self, x):
        return self.a @ np.sin(self.B @ x) + x @ self.Q @ x / 2 + self.c @ x

    def g(self, x):
        return self.B.T @ (self.a * np.cos(self.B @ x)) + self.Q @ x + self.c

    def H(self, x):
        return self.Q - self.B.T @ np.diag(self.a * np.sin(self.B @ x)) @ self.B

    def tilted(self, x, g) -> None:
        """Make g the gradient at x."""
        self.c = self.c + g - self.g(x)

    def point(self, x, error=0.0) -> DensePoint:
        return DensePoint(torch.from_numpy(x), self.f, self.g, lambda z: self.H(z) + error)


def direction(rng, H, low, high):
    """A unit vector v with low < v'Hv < high, or None where there is none."""
    values, vectors = np.linalg.eigh(H)
    low, high = max(low, values[0]), min(high, values[-1])
    if not low < high:
        return None
    target = rng.uniform(low, high)
    share = (target - values[0]) / (values[-1] - values[0])
    signs = rng.choice([-1, 1], 2)
    return (
        signs[0] * np.sqrt(1 - share) * vectors[:, 0] + signs[1] * np.sqrt(share) * vectors[:, -1]
    )


def run(fun, x0, *, product="double-backward", **options):
    """`minimize`, and the points it went through."""
    xs = [x0.clone()]
    objective = FunctionObjective(fun, x0, product=product)
    options.setdefault("method", "CGMR")  # the paper's, unless told otherwise
    result = minimize(objective, x0, callback=lambda p: xs.append(p.x.clone()), **options)
    return result, xs

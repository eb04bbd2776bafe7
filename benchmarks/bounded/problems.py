"""Problems with bounds: classical functions, quadratics with many active bounds, learning.

`fits.py` and `larger.py` add to them. A problem that is not convex has twenty starts, for one start
says little where there are several minima: the usual one, and others drawn around it or as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, pad

INF = math.inf
f64 = torch.float64


@dataclass(frozen=True, slots=True)
class Problem:
    """f over a box, and a start inside it."""

    f: Callable[[Tensor], Tensor]
    start: Tensor
    lower: Tensor
    upper: Tensor


PROBLEMS: dict[str, Callable[[int], Problem]] = {}  # from the number of a start
STARTS: dict[str, int] = {}  # how many each has
SEVERAL = 20


def problem(
    name: str,
    f: Callable[..., Tensor],
    start: object,
    low: object,
    high: object,
    *,
    convex: bool = False,
    drawn: Callable[[torch.Generator], Tensor] | None = None,
) -> None:
    """Register a problem; numbers among the bounds stand for every variable.

    Args:
        name: of the problem.
        f: the function.
        start: the first start.
        low: lower bounds.
        high: upper bounds.
        convex: True for one start only.
        drawn: further starts; by default x0 + u (1 + |x0|) with u uniform in [-1, 1].
    """

    def build(k: int = 0) -> Problem:
        x = torch.as_tensor(start, dtype=f64)
        if k and drawn is not None:
            x = drawn(draw(1000 + k)).to(f64)
        elif k:
            x = x + (2 * torch.rand(len(x), generator=draw(1000 + k), dtype=f64) - 1) * (
                1 + x.abs()
            )
        lower, upper = (torch.as_tensor(end, dtype=f64).expand_as(x).clone() for end in (low, high))
        return Problem(f, x.clamp(lower, upper), lower, upper)

    PROBLEMS[name] = build
    STARTS[name] = 1 if convex else SEVERAL


def draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some(n: int, period: int, value: float, otherwise: float) -> Tensor:
    """`value` for every `period`-th of n variables."""
    return torch.where(torch.arange(n) % period == 0, value, otherwise).to(f64)


# Classical functions, with bounds that cut off their minimisers (as in Hock and Schittkowski's
# collection and in Moré and Toraldo's tests) or are far away.


def rosenbrock(x: Tensor) -> Tensor:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def wood(x: Tensor) -> Tensor:
    """Wood's function; of more than 4 variables the chained one."""
    a, b, c, d = x[0:-3:2], x[1:-2:2], x[2:-1:2], x[3::2]
    terms = (
        100 * (b - a**2) ** 2
        + (1 - a) ** 2
        + 90 * (d - c**2) ** 2
        + (1 - c) ** 2
        + 10.1 * ((b - 1) ** 2 + (d - 1) ** 2)
        + 19.8 * (b - 1) * (d - 1)
    )
    return terms.sum()


def beale(x: Tensor) -> Tensor:
    powers = torch.stack([x[1], x[1] ** 2, x[1] ** 3])
    return ((torch.tensor([1.5, 2.25, 2.625], dtype=f64) - x[0] * (1 - powers)) ** 2).sum()


def powell(x: Tensor) -> Tensor:
    a, b, c, d = x.view(-1, 4).T
    return ((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4).sum()


def penalty(x: Tensor) -> Tensor:
    return 1e-5 * ((x - 1) ** 2).sum() + ((x**2).sum() - 0.25) ** 2


def variably_dimensioned(x: Tensor) -> Tensor:
    weighted = (torch.arange(1, len(x) + 1, dtype=f64) * (x - 1)).sum()
    return ((x - 1) ** 2).sum() + weighted**2 + weighted**4


def trigonometric(x: Tensor) -> Tensor:
    k = torch.arange(1, len(x) + 1, dtype=f64)
    return ((len(x) - x.cos().sum() + k * (1 - x.cos()) - x.sin()) ** 2).sum()


problem("hs1", rosenbrock, [-2.0, 1.0], [-INF, -1.5], INF)
problem("hs2", rosenbrock, [-2.0, 1.5], [-INF, 1.5], INF)
problem("rosenbrock-10-above", rosenbrock, [-1.0] * 10, -INF, some(10, 3, 0.7, INF))
problem("rosenbrock-100-below", rosenbrock, [2.0] * 100, some(100, 2, 1.2, -INF), INF)
problem("rosenbrock-50-box", rosenbrock, [-0.5] * 50, -1.0, 0.8)
problem("rosenbrock-2-far", rosenbrock, [-1.2, 1.0], -100.0, 100.0)
problem("rosenbrock-500-box", rosenbrock, [0.0] * 500, -0.5, some(500, 5, 0.3, 2.0))
problem("wood-above", wood, [-3.0, -1.0, -3.0, -1.0], -10.0, [10.0, 0.9, 10.0, 0.95])
problem("wood-below", wood, [3.0, 3.0, 3.0, 3.0], [1.1, -INF, -INF, -INF], INF)
problem("beale", beale, [1.0, 1.0], [0.6, 0.5], [10.0, 100.0])
problem(
    "powell-40", powell, [3.0, -1.0, 0.0, 1.0] * 10, [0.1, -20, -20, -20] * 10, 100.0, convex=True
)
problem("penalty-50", penalty, torch.arange(1, 51, dtype=f64), some(50, 2, 0.1, -INF), INF)
problem(
    "variably-30",
    variably_dimensioned,
    1 - torch.arange(1, 31) / 30,
    -INF,
    some(30, 2, 0.5, INF),
    convex=True,
)
problem("trigonometric-20", trigonometric, [1 / 20] * 20, some(20, 3, 0.02, -1.0), 1.0)
problem(
    "chained-wood-40",
    wood,
    [-3.0, -1.0] * 20,
    some(40, 4, -0.5, -INF),
    some(40, 3, 0.9, INF),
)


# Quadratics. The torsion and obstacle problems are those of Moré and Toraldo (1991).


def quadratic(name: str, n: int, condition: float, width: float, seed: int) -> None:
    Q = torch.linalg.qr(torch.randn(n, n, generator=draw(seed), dtype=f64))[0]
    H = Q @ torch.diag(torch.logspace(0, math.log10(condition), n, dtype=f64)) @ Q.T
    b = H @ torch.randn(n, generator=draw(seed + 1), dtype=f64)
    problem(name, lambda x: x @ (H @ x) / 2 - b @ x, torch.zeros(n), -width, width, convex=True)


def membrane(side: int, force: float) -> Callable[[Tensor], Tensor]:
    def f(x: Tensor) -> Tensor:
        u, h = pad(x.view(side, side), (1, 1, 1, 1)), 1 / (side + 1)
        rows, columns = u[1:] - u[:-1], u[:, 1:] - u[:, :-1]
        return ((rows**2).sum() + (columns**2).sum()) / 2 - force * h * h * u.sum()

    return f


def to_boundary(side: int) -> Tensor:
    """The distance to the boundary of the square, the bound of the torsion problem."""
    t = torch.linspace(0, 1, side + 2, dtype=f64)[1:-1]
    near = torch.minimum(t, 1 - t)
    return torch.minimum(near[:, None], near[None]).reshape(-1)


def hills(side: int) -> Tensor:
    t = torch.linspace(0, 1, side + 2, dtype=f64)[1:-1]
    return (torch.sin(9.2 * t)[:, None] * torch.sin(9.3 * t)[None]).reshape(-1).clamp(min=0) ** 3


def random_least_squares(rows: int, n: int, seed: int) -> Callable[[Tensor], Tensor]:
    A = torch.rand(rows, n, generator=draw(seed), dtype=f64)
    x = torch.rand(n, generator=draw(seed + 1), dtype=f64).sub(0.5).clamp(min=0)
    b = A @ x + 0.1 * torch.randn(rows, generator=draw(seed + 2), dtype=f64)
    return lambda w: ((A @ w - b) ** 2).sum() / 2


for k, condition in enumerate((1e2, 1e4, 1e6)):
    quadratic(f"quadratic-300-{condition:g}", 300, condition, 0.5, 10 * k)
quadratic("quadratic-1000-tight", 1000, 1e3, 0.05, 50)
quadratic("quadratic-200-wide", 200, 1e3, 2.0, 60)
for force in (2.0, 5.0, 20.0):
    problem(
        f"torsion-30-{force:g}",
        membrane(30, force),
        torch.zeros(900),
        -to_boundary(30),
        to_boundary(30),
        convex=True,
    )
problem(
    "torsion-70-5",
    membrane(70, 5.0),
    torch.zeros(4900),
    -to_boundary(70),
    to_boundary(70),
    convex=True,
)
problem("obstacle-30", membrane(30, -1.0), torch.ones(900), 0.3 * hills(30), 2000.0, convex=True)
problem("obstacle-50", membrane(50, -1.0), torch.ones(2500), 0.3 * hills(50), 2000.0, convex=True)
for k, (rows, n) in enumerate([(60, 30), (200, 100), (100, 200), (500, 300), (400, 50)]):
    problem(
        f"nnls-{rows}x{n}",
        random_least_squares(rows, n, 7 * k),
        torch.ones(n),
        0.0,
        INF,
        convex=True,
    )


# Learning.


def logistic(rows: int, n: int, seed: int) -> Callable[[Tensor], Tensor]:
    A = torch.randn(rows, n, generator=draw(seed), dtype=f64)
    w = torch.randn(n, generator=draw(seed + 1), dtype=f64)
    y = (torch.rand(rows, generator=draw(seed + 2), dtype=f64) < torch.sigmoid(A @ w)).to(f64)
    return lambda x: binary_cross_entropy_with_logits(A @ x, y) + 1e-4 * (x**2).sum()


def poisson(rows: int, n: int, seed: int) -> Callable[[Tensor], Tensor]:
    A = torch.rand(rows, n, generator=draw(seed), dtype=f64)
    rates = 3 * torch.rand(n, generator=draw(seed + 1), dtype=f64).sub(0.5).clamp(min=0)
    counts = torch.poisson(A @ rates, generator=draw(seed + 2))
    return lambda x: (A @ x - counts * torch.log(A @ x + 1e-9)).mean()


def factorisation(rows: int, columns: int, rank: int, seed: int) -> Callable[[Tensor], Tensor]:
    V = torch.rand(rows, rank, generator=draw(seed), dtype=f64)
    V = V @ torch.rand(rank, columns, generator=draw(seed + 1), dtype=f64)
    V = V * (V.median() < V)

    def f(x: Tensor) -> Tensor:
        W, H = x[: rows * rank].view(rows, rank), x[rows * rank :].view(rank, columns)
        return ((V - W @ H) ** 2).sum() / 2

    return f


def exponentials(x: Tensor) -> Tensor:
    """Rates and amplitudes of two decays and a background, all bounded."""
    t = torch.linspace(0, 3, 45, dtype=f64)
    y = 2 * torch.exp(-t) + 0.5 * torch.exp(-4 * t) + 0.05 * torch.sin(9 * t)
    return ((x[0] * torch.exp(-x[1] * t) + x[2] * torch.exp(-x[3] * t) + x[4] - y) ** 2).sum()


def network(seed: int) -> Callable[[Tensor], Tensor]:
    X = torch.randn(200, 6, generator=draw(seed), dtype=f64)
    y = torch.sin(X[:, 0]) + X[:, 1] * X[:, 2]

    def f(x: Tensor) -> Tensor:
        W, b, v, c = torch.split(x, [72, 12, 12, 1])
        return ((torch.tanh(X @ W.view(6, 12) + b) @ v + c - y) ** 2).mean()

    return f


def inverse_heat(x: Tensor) -> Tensor:
    """A physics-informed network for u'' + k u = 0 with an unknown k in [0, 4] (the last entry)."""
    t = torch.linspace(0, 3, 40, dtype=f64)
    w, b, v = x[:10], x[10:20], x[20:30]
    hidden = torch.tanh(t[:, None] * w + b)
    u = hidden @ v
    second = ((-2 * hidden * (1 - hidden**2)) * w**2) @ v
    data = torch.cos(1.5 * t[::5])
    return ((second + x[30] * u) ** 2).mean() + ((u[::5] - data) ** 2).mean()


for seed in range(2):
    problem(
        f"logistic-positive-{seed}",
        logistic(300, 40, 3 * seed),
        torch.zeros(40),
        0.0,
        INF,
        convex=True,
    )
    problem(f"poisson-{seed}", poisson(200, 30, 5 * seed), torch.ones(30), 0.0, INF, convex=True)
problem("logistic-box", logistic(500, 100, 31), torch.zeros(100), -0.3, 0.3, convex=True)
problem("poisson-200", poisson(600, 200, 41), torch.full((200,), 0.5), 0.0, INF, convex=True)
problem(
    "nmf-40x30",
    factorisation(40, 30, 4, 1),
    torch.rand(280, generator=draw(3)),
    0.0,
    INF,
    drawn=lambda seed: torch.rand(280, generator=seed),
)
problem(
    "nmf-60x60",
    factorisation(60, 60, 5, 2),
    torch.rand(600, generator=draw(4)),
    0.0,
    INF,
    drawn=lambda seed: torch.rand(600, generator=seed),
)
problem("exponentials", exponentials, [1.0] * 5, 0.0, [10.0, 10.0, 10.0, 3.0, 10.0])
problem(
    "network-box",
    network(0),
    0.3 * torch.randn(97, generator=draw(5)),
    -1.0,
    1.0,
    drawn=lambda seed: 0.3 * torch.randn(97, generator=seed),
)
problem(
    "network-positive",
    network(1),
    0.3 * torch.rand(97, generator=draw(6)),
    [-INF] * 84 + [0.0] * 12 + [-INF],
    INF,
    drawn=lambda seed: 0.3 * torch.rand(97, generator=seed),
)
problem(
    "inverse-heat",
    inverse_heat,
    [*torch.randn(30, generator=draw(7)).tolist(), 1.0],
    [-INF] * 30 + [0.0],
    [INF] * 30 + [4.0],
    drawn=lambda seed: torch.cat([torch.randn(30, generator=seed), torch.ones(1)]),
)

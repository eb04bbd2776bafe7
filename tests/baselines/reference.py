"""The competitors once more, in NumPy, line by line as their formulas stand.

Nothing of firstish or torch is imported. Each function returns a `Trace`: the iterates, the step
sizes, the trials of each search, and the oracle calls spent until f and g at each iterate were
known (value 1, gradient after it 1, Hessian-vector product 2).
"""

import math
from dataclasses import dataclass, field

import numpy as np


class Logistic:
    """Mean logistic loss of 40 rows, plus lam/2 |x|^2."""

    lam = 0.05

    def __init__(self):
        rng = np.random.default_rng(7)
        self.A = rng.normal(size=(40, 6)) * np.array([3.0, 1.0, 1.0, 0.5, 0.5, 0.2])
        self.b = np.where(self.A @ rng.normal(size=6) + rng.normal(size=40) > 0, 1.0, -1.0)
        self.x0 = np.array([0.5, -0.5, 1.0, 0.0, -1.0, 0.25])

    def f(self, x):
        return np.mean(np.logaddexp(0.0, -self.b * (self.A @ x))) + self.lam / 2 * (x @ x)

    def g(self, x):
        q = 1 / (1 + np.exp(self.b * (self.A @ x)))
        return -self.A.T @ (self.b * q) / len(self.b) + self.lam * x

    def hv(self, x, v):
        q = 1 / (1 + np.exp(self.b * (self.A @ x)))
        return self.A.T @ (q * (1 - q) * (self.A @ v)) / len(self.b) + self.lam * v


class Valley:
    """Rosenbrock's valley in 4 dimensions, less steep."""

    x0 = np.array([0.1, 0.9, -0.3, 1.2])
    steep = 5.0

    def f(self, x):
        return np.sum((1 - x[:-1]) ** 2 + self.steep * (x[1:] - x[:-1] ** 2) ** 2)

    def g(self, x):
        r = x[1:] - x[:-1] ** 2
        out = np.zeros_like(x)
        out[:-1] += -2 * (1 - x[:-1]) - 4 * self.steep * x[:-1] * r
        out[1:] += 2 * self.steep * r
        return out

    def hv(self, x, v):
        r = x[1:] - x[:-1] ** 2
        dr = v[1:] - 2 * x[:-1] * v[:-1]
        out = np.zeros_like(x)
        out[:-1] += 2 * v[:-1] - 4 * self.steep * (v[:-1] * r + x[:-1] * dr)
        out[1:] += 2 * self.steep * dr
        return out


class Wells:
    """Coupled double wells; the start is near their common maximum, where curvature is negative."""

    x0 = np.array([0.05, -0.1, 0.02])
    weights = np.array([1.0, 2.0, 0.5])

    def f(self, x):
        return np.sum(self.weights * (x**2 - 1) ** 2) / 4 + 0.1 * np.sum(x[1:] * x[:-1])

    def g(self, x):
        out = self.weights * (x**2 - 1) * x
        out[1:] += 0.1 * x[:-1]
        out[:-1] += 0.1 * x[1:]
        return out

    def hv(self, x, v):
        out = self.weights * (3 * x**2 - 1) * v
        out[1:] += 0.1 * v[:-1]
        out[:-1] += 0.1 * v[1:]
        return out


class Trap:
    """f jumps up as soon as 0 is left: no trial is ever accepted."""

    x0 = np.zeros(2)

    def f(self, x):
        return 0.5 if np.all(x == 0) else 20.0 + x.sum()

    def g(self, x):
        return np.ones(2)


@dataclass
class Trace:
    """What a reference run did."""

    x: list = field(default_factory=list)
    step_size: list = field(default_factory=list)
    trials: list = field(default_factory=list)
    oracle_calls: list = field(default_factory=list)
    notes: set = field(default_factory=set)  # which branches were taken

    def start(self, x):
        self.x.append(x)
        self.oracle_calls.append(2)

    def add(self, x, step_size, calls, trials=None):
        self.x.append(x)
        self.step_size.append(step_size)
        self.trials.append(trials)
        self.oracle_calls.append(self.oracle_calls[-1] + calls)


def fixed_step(problem, n, step_size):
    x, trace = problem.x0, Trace()
    trace.start(x)
    for _ in range(n):
        x = x - step_size * problem.g(x)
        trace.add(x, step_size, calls=2)
    return trace


def heavy_ball(problem, n, step_size, momentum=0.9):
    x, trace = problem.x0, Trace()
    v = np.zeros_like(x)
    trace.start(x)
    for _ in range(n):
        v = momentum * v - step_size * problem.g(x)
        x = x + v
        trace.add(x, step_size, calls=2)
    return trace


def nesterov(problem, n, step_size, momentum=0.9):
    x, trace = problem.x0, Trace()
    v = np.zeros_like(x)
    trace.start(x)
    for _ in range(n):
        g = problem.g(x)
        v = momentum * v - step_size * g
        x = x - step_size * g + momentum * v
        trace.add(x, step_size, calls=2)
    return trace


def adam(problem, n, step_size, betas=(0.9, 0.999), eps=1e-8):
    x, trace = problem.x0, Trace()
    m, v = np.zeros_like(x), np.zeros_like(x)
    trace.start(x)
    for k in range(1, n + 1):
        g = problem.g(x)
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        x = x - step_size * (m / (1 - betas[0] ** k)) / (np.sqrt(v / (1 - betas[1] ** k)) + eps)
        trace.add(x, step_size, calls=2)
    return trace


def line_search(problem, n, reset, alpha_init=1.0, rho=1e-4, theta=0.5):
    x, trace = problem.x0, Trace()
    alpha = alpha_init
    trace.start(x)
    for _ in range(n):
        f, g = problem.f(x), problem.g(x)
        alpha = {"full": alpha_init, "no": alpha, "limited": alpha / theta}[reset]
        trials = 1
        while problem.f(x - alpha * g) > f - rho * alpha * (g @ g):
            alpha *= theta
            trials += 1
        x = x - alpha * g
        trace.add(x, alpha, calls=trials + 1, trials=trials)
    return trace


def pono(
    problem,
    n,
    max_step=10.0,
    min_step=1e-6,
    c=0.5,
    c_p=0.1,
    delta=0.5,
    xi=1.0,
    f_star=0.0,
    follow=None,  # iterates to step from instead of its own, where the method is chaotic
):
    x, trace = problem.x0, Trace()
    Q, C, memory = 0.0, 0.0, 0
    trace.start(x)
    for k in range(n):
        if follow is not None:
            x = follow[k]
        f, g = problem.f(x), problem.g(x)
        gg = g @ g
        Q_new = xi * Q + 1
        C = (xi * Q * C + f) / Q_new
        Q = Q_new
        eta = (f - f_star) / (c_p * gg + 1e-8) * delta**memory
        if eta > max_step:
            trace.notes.add("capped")
        eta = max(min(eta, max_step), min_step)
        accepted = False
        for e in range(100):  # noqa: B007
            if problem.f(x - eta * g) <= max(C, f) - c * eta * gg:
                accepted = True
                break
            eta *= delta
        trials, calls = e + 1, e + 2
        if not accepted:
            eta, calls = 1e-6, calls + 1
        memory = max(memory + e - 1, 0)
        if memory > 0:
            trace.notes.add("memory")
        if problem.f(x - eta * g) > f:
            trace.notes.add("rise")
        x = x - eta * g
        trace.add(x, eta, calls, trials)
    return trace


def adgd(problem, n, step_size):
    x, trace = problem.x0, Trace()
    lam, theta = step_size, math.inf
    x_old = g_old = None
    trace.start(x)
    for _ in range(n):
        g = problem.g(x)
        if x_old is not None:
            L = np.linalg.norm(g - g_old) / np.linalg.norm(x - x_old)
            trace.notes.add("curvature" if math.sqrt(1 + theta) * lam > 1 / (2 * L) else "growth")
            lam_new = min(math.sqrt(1 + theta) * lam, 1 / (2 * L))
            theta, lam = lam_new / lam, lam_new
        x_old, g_old = x, g
        x = x - lam * g
        trace.add(x, lam, calls=2)
    return trace


def adgd2(problem, n, step_size=1e-2):
    x0, trace = problem.x0, Trace()
    trace.start(x0)
    g0 = problem.g(x0)

    def reach(lam):
        x = x0 - lam * g0
        return lam * np.linalg.norm(problem.g(x) - g0) / np.linalg.norm(x - x0)

    lam, trials = step_size, 1
    while reach(lam) < 1 / math.sqrt(2) and lam < 10:
        lam, trials = lam * 10, trials + 1
    while reach(lam) > 2:
        lam, trials = lam / 2, trials + 1
        trace.notes.add("halved")
    x_old, g_old = x0, g0
    x = x0 - lam * g0
    trace.add(x, lam, calls=2 * trials, trials=trials)

    theta = 1 / 3
    for _ in range(n - 1):
        g = problem.g(x)
        L = np.linalg.norm(g - g_old) / np.linalg.norm(x - x_old)
        excess = max(2 * lam**2 * L**2 - 1, 0)
        bound = lam / math.sqrt(excess) if excess > 0 else math.inf
        branch = "curvature" if bound < math.sqrt(2 / 3 + theta) * lam else "growth"
        trace.notes |= {branch, f"{branch} at {len(trace.step_size)}"}
        lam_new = min(math.sqrt(2 / 3 + theta) * lam, bound)
        theta, lam = lam_new / lam, lam_new
        x_old, g_old = x, g
        x = x - lam * g
        trace.add(x, lam, calls=2)
    return trace


def abbmin(problem, n, tau=0.8, memory=9, eta=0.85, rho=1e-4, theta=0.5, alpha_init=1.0):
    x, trace = problem.x0, Trace()
    alpha, short = alpha_init, []
    Q, C = 0.0, 0.0
    x_old = g_old = None
    trace.start(x)
    for _ in range(n):
        f, g = problem.f(x), problem.g(x)
        if x_old is not None:
            s, y = x - x_old, g - g_old
            if s @ y > 0:
                bb1, bb2 = (s @ s) / (s @ y), (s @ y) / (y @ y)
                short.append(bb2)
                if bb2 / bb1 < tau:
                    alpha = min(short[-(memory + 1) :])
                    trace.notes.add("short" if alpha == bb2 else "earlier short")
                else:
                    alpha = bb1
                    trace.notes.add("long")
            else:
                alpha = alpha / theta
                trace.notes.add("fallback")
        C, Q = (eta * Q * C + f) / (eta * Q + 1), eta * Q + 1
        trials = 1
        while problem.f(x - alpha * g) > C - rho * alpha * (g @ g):
            alpha *= theta
            trials += 1
        if problem.f(x - alpha * g) > f:
            trace.notes.add("rise")
        x_old, g_old = x, g
        x = x - alpha * g
        trace.add(x, alpha, calls=trials + 1, trials=trials)
    return trace


def cdat(problem, n, sigma=1.0, eps=1e-30):
    x, trace = problem.x0, Trace()
    trace.start(x)
    for _ in range(n):
        g = problem.g(x)
        gHg = g @ problem.hv(x, g)
        if gHg < 0:
            trace.notes.add("negative")
        rate = sigma * (g @ g) / (abs(gHg) + eps)
        x = x - rate * g
        trace.add(x, rate, calls=4)
    return trace

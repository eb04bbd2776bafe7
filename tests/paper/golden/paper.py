"""The paper's algorithm, straight from its pages: NumPy only, nothing of firstish, no care taken.

Norms may overflow, rounding is not thought of, and values are computed afresh wherever they are
wanted. On well-behaved problems it must take the same steps.
"""

import numpy as np


def descend(f, g, Hv, x, *, scaling, sigma, steps, rho=1e-4, theta=0.5, s_lpc=1.0, s_nc=1.0):
    """Rows of (x, case, name, s, alpha), one per step."""
    cycle = [scaling[i : i + 2] for i in range(0, len(scaling), 2)]
    rows = []
    turn = 0
    for _ in range(steps):
        grad = g(x)
        Hg = Hv(x, grad)
        gg = grad @ grad
        gHg = grad @ Hg
        HgHg = Hg @ Hg
        name = None
        if gHg > sigma * gg:
            case = "SPC"
            name = cycle[turn % len(cycle)]
            turn += 1
            s = {"CG": gg / gHg, "MR": gHg / HgHg, "GM": np.sqrt(gg / HgHg)}[name]
        elif gHg < 0:
            case = "NC"
            s = s_nc
        else:
            case = "LPC"
            s = s_lpc
        p = -s * grad
        slope = grad @ p

        alpha = 1.0
        if case == "NC" and f(x + alpha * p) <= f(x) + rho * alpha * slope:
            while f(x + alpha / theta * p) <= f(x) + rho * (alpha / theta) * slope:
                alpha = alpha / theta
        else:
            while f(x + alpha * p) > f(x) + rho * alpha * slope:
                alpha = theta * alpha
        rows.append((x, case, name, s, alpha))
        x = x + alpha * p
    return rows


# Problems by their formulas; the data come from sines, so no generator can change them.

_i, _j = np.arange(1, 31)[:, None], np.arange(1, 7)[None, :]
A = _j * (np.sin(1.7 * _i * _j) + 0.5 * np.cos(_i + _j**2))
y = np.where(np.sin(3.1 * np.arange(1, 31)) + A[:, 0] > 0, 1.0, -1.0)
RIDGE = 1e-3


def logistic_f(x):
    return np.mean(np.log(1 + np.exp(-y * (A @ x)))) + RIDGE / 2 * (x @ x)


def logistic_g(x):
    q = 1 / (1 + np.exp(y * (A @ x)))
    return -A.T @ (y * q) / len(y) + RIDGE * x


def logistic_Hv(x, v):
    q = 1 / (1 + np.exp(y * (A @ x)))
    return A.T @ (q * (1 - q) * (A @ v)) / len(y) + RIDGE * v


WEIGHTS = np.array([1.0, 0.25, 2.0])
COUPLING = 0.3


def wells_f(x):
    return WEIGHTS @ (x**2 - 1) ** 2 / 4 + COUPLING * x[0] * x[1] * x[2]


def wells_g(x):
    others = np.array([x[1] * x[2], x[0] * x[2], x[0] * x[1]])
    return WEIGHTS * (x**2 - 1) * x + COUPLING * others


def wells_Hv(x, v):
    off = COUPLING * np.array([[0, x[2], x[1]], [x[2], 0, x[0]], [x[1], x[0], 0]])
    return WEIGHTS * (3 * x**2 - 1) * v + off @ v

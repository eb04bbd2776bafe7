"""The test functions once more, in scalar Python with 1-based indices as in print.

Written apart from benchmarks/race and importing nothing of it; x[1] is the first variable.
"""

from math import atan, cos, exp, log, pi, sin, sqrt, tan

import numpy as np

FORMULAS = {}


def formula(name):
    def keep(f):
        FORMULAS[name] = lambda x: float(f(np.concatenate([[np.nan], x]), len(x)))
        return f

    return keep


def ssq(values):
    return sum(v * v for v in values)


def span(a, b):
    """a, a + 1, ..., b"""
    return range(a, b + 1)


BARD = [0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.1, 4.39]
GAUSS = [0.0009, 0.0044, 0.0175, 0.054, 0.1295, 0.242, 0.3521, 0.3989]
MEYER = [34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744]
MEYER += [8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872]
KOW_Y = [0.1957, 0.1947, 0.1735, 0.16, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246]
KOW_INVERSE_U = [0.25, 0.5, 1, 2, 4]  # then .167, .125, .1, .0833, .0714, .0625


@formula("rosenbrock")
def _(x, n):
    return 100 * (x[2] - x[1] ** 2) ** 2 + (1 - x[1]) ** 2


@formula("freudenstein-roth")
def _(x, n):
    a, b = x[1], x[2]
    return (-13 + a - 2 * b + 5 * b**2 - b**3) ** 2 + (-29 + a - 14 * b + b**2 + b**3) ** 2


@formula("powell-badly-scaled")
def _(x, n):
    return (10000 * x[1] * x[2] - 1) ** 2 + (exp(-x[1]) + exp(-x[2]) - 1.0001) ** 2


@formula("brown-badly-scaled")
def _(x, n):
    return (x[1] - 10**6) ** 2 + (x[2] - 2 / 10**6) ** 2 + (x[1] * x[2] - 2) ** 2


@formula("beale")
def _(x, n):
    y = {1: 1.5, 2: 2.25, 3: 2.625}
    return ssq(y[i] - x[1] * (1 - x[2] ** i) for i in y)


@formula("jennrich-sampson")
def _(x, n):
    return ssq(2 + 2 * i - (exp(i * x[1]) + exp(i * x[2])) for i in span(1, 10))


@formula("helical-valley")
def _(x, n):
    theta = atan(x[2] / x[1]) / (2 * pi) + (0.5 if x[1] < 0 else 0)
    return 100 * ((x[3] - 10 * theta) ** 2 + (sqrt(x[1] ** 2 + x[2] ** 2) - 1) ** 2) + x[3] ** 2


def powell(a, b, c, d):
    return (a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4


def wood(a, b, c, d):
    return (
        100 * (b - a * a) ** 2
        + (1 - a) ** 2
        + 90 * (d - c * c) ** 2
        + (1 - c) ** 2
        + 10.1 * ((b - 1) ** 2 + (d - 1) ** 2)
        + 19.8 * (b - 1) * (d - 1)
    )  # the other form in print


@formula("powell-singular")
@formula("extended-powell")
def _(x, n):
    return sum(powell(*x[4 * i - 3 : 4 * i + 1]) for i in span(1, n // 4))


@formula("wood")
@formula("woods")
def _(x, n):
    return sum(wood(*x[4 * i - 3 : 4 * i + 1]) for i in span(1, n // 4))


@formula("cube")
def _(x, n):
    return (x[1] - 1) ** 2 + 100 * (x[2] - x[1] ** 3) ** 2


@formula("engval2")
def _(x, n):
    a, b, c = x[1:]
    return (
        (a * a + b * b + c * c - 1) ** 2
        + (a * a + b * b + (c - 2) ** 2 - 1) ** 2
        + (a + b + c - 1) ** 2
        + (a + b - c + 1) ** 2
        + (3 * b * b + a**3 + (5 * c - a + 1) ** 2 - 36) ** 2
    )


@formula("denschnb")
def _(x, n):
    return (x[1] - 2) ** 2 + ((x[1] - 2) * x[2]) ** 2 + (x[2] + 1) ** 2


@formula("denschnf")
def _(x, n):
    a, b = x[1], x[2]
    return (2 * (a + b) ** 2 + (a - b) ** 2 - 8) ** 2 + (5 * a**2 + (b - 3) ** 2 - 9) ** 2


@formula("bard")
def _(x, n):
    return ssq(
        BARD[i - 1] - (x[1] + i / ((16 - i) * x[2] + min(i, 16 - i) * x[3])) for i in span(1, 15)
    )


@formula("gaussian")
def _(x, n):
    y = [*GAUSS, *GAUSS[-2::-1]]
    return ssq(x[1] * exp(-x[2] * ((8 - i) / 2 - x[3]) ** 2 / 2) - y[i - 1] for i in span(1, 15))


@formula("meyer")
def _(x, n):
    return ssq(x[1] * exp(x[2] / (45 + 5 * i + x[3])) - MEYER[i - 1] for i in span(1, 16))


@formula("gulf")
def _(x, n):
    total = 0.0
    for i in span(1, 99):
        t = i / 100
        y = 25 + (-50 * log(t)) ** (2 / 3)
        total += (exp(-(abs(y - x[2]) ** x[3]) / x[1]) - t) ** 2
    return total


@formula("box-3d")
def _(x, n):
    return ssq(
        exp(-0.1 * i * x[1]) - exp(-0.1 * i * x[2]) - x[3] * (exp(-0.1 * i) - exp(-i))
        for i in span(1, 10)
    )


@formula("kowalik-osborne")
def _(x, n):
    u = [1 / v for v in KOW_INVERSE_U] + [0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625]
    return ssq(
        y - x[1] * v * (v + x[2]) / (v * (v + x[3]) + x[4]) for y, v in zip(KOW_Y, u, strict=True)
    )


@formula("brown-dennis")
def _(x, n):
    return ssq(
        (x[1] + i / 5 * x[2] - exp(i / 5)) ** 2 + (x[3] + x[4] * sin(i / 5) - cos(i / 5)) ** 2
        for i in span(1, 20)
    )


@formula("biggs-exp6")
def _(x, n):
    total = 0.0
    for i in span(1, 13):
        t = i / 10
        y = exp(-t) - 5 * exp(-10 * t) + 3 * exp(-4 * t)
        total += (x[3] * exp(-t * x[1]) - x[4] * exp(-t * x[2]) + x[6] * exp(-t * x[5]) - y) ** 2
    return total


@formula("watson6")
@formula("watson12")
def _(x, n):
    total = x[1] ** 2 + (x[2] - x[1] ** 2 - 1) ** 2
    for i in span(1, 29):
        t = i / 29
        slope = sum((j - 1) * x[j] * t ** (j - 2) for j in span(2, n))
        total += (slope - sum(x[j] * t ** (j - 1) for j in span(1, n)) ** 2 - 1) ** 2
    return total


@formula("extended-rosenbrock")
def _(x, n):
    return sum(
        100 * (x[2 * i] - x[2 * i - 1] ** 2) ** 2 + (1 - x[2 * i - 1]) ** 2 for i in span(1, n // 2)
    )


@formula("penalty1")
def _(x, n):
    return 1e-5 * ssq(v - 1 for v in x[1:]) + (sum(v * v for v in x[1:]) - 0.25) ** 2


@formula("penalty2")
def _(x, n):
    total = (x[1] - 0.2) ** 2
    for i in span(2, n):
        y = exp(i / 10) + exp((i - 1) / 10)
        total += 1e-5 * (exp(x[i] / 10) + exp(x[i - 1] / 10) - y) ** 2
    for i in span(n + 1, 2 * n - 1):
        total += 1e-5 * (exp(x[i - n + 1] / 10) - exp(-1 / 10)) ** 2
    return total + (sum((n - j + 1) * x[j] ** 2 for j in span(1, n)) - 1) ** 2


@formula("variably-dimensioned")
def _(x, n):
    s = sum(j * (x[j] - 1) for j in span(1, n))
    return ssq(v - 1 for v in x[1:]) + s**2 + s**4


@formula("trigonometric")
def _(x, n):
    return ssq(
        n - sum(cos(x[j]) for j in span(1, n)) + i * (1 - cos(x[i])) - sin(x[i]) for i in span(1, n)
    )


@formula("brown-almost-linear")
def _(x, n):
    s = sum(x[1:])
    return ssq(x[i] + s - (n + 1) for i in span(1, n - 1)) + (np.prod(x[1:]) - 1) ** 2


@formula("boundary-value")
def _(x, n):
    h, x = 1 / (n + 1), [0.0, *x[1:], 0.0]
    return ssq(
        2 * x[i] - x[i - 1] - x[i + 1] + h * h * (x[i] + i * h + 1) ** 3 / 2 for i in span(1, n)
    )


@formula("integral-equation")
def _(x, n):
    h = 1 / (n + 1)
    t = [i * h for i in range(n + 2)]
    total = 0.0
    for i in span(1, n):
        left = sum(t[j] * (x[j] + t[j] + 1) ** 3 for j in span(1, i))
        right = sum((1 - t[j]) * (x[j] + t[j] + 1) ** 3 for j in span(i + 1, n))
        total += (x[i] + h * ((1 - t[i]) * left + t[i] * right) / 2) ** 2
    return total


@formula("broyden-tridiagonal")
def _(x, n):
    x = [0.0, *x[1:], 0.0]
    return ssq((3 - 2 * x[i]) * x[i] - x[i - 1] - 2 * x[i + 1] + 1 for i in span(1, n))


@formula("broyden-banded")
def _(x, n):
    total = 0.0
    for i in span(1, n):
        near = [j for j in span(max(1, i - 5), min(n, i + 1)) if j != i]
        total += (x[i] * (2 + 5 * x[i] ** 2) + 1 - sum(x[j] * (1 + x[j]) for j in near)) ** 2
    return total


@formula("linear-full-rank")
def _(x, n):
    m = 2 * n
    s = 2 / m * sum(x[1:])
    return ssq(x[i] - s - 1 for i in span(1, n)) + (m - n) * (s + 1) ** 2


@formula("linear-rank1")
def _(x, n):
    s = sum(j * x[j] for j in span(1, n))
    return ssq(i * s - 1 for i in span(1, 2 * n))


@formula("linear-rank1-zero")
def _(x, n):
    s = sum(j * x[j] for j in span(2, n - 1))
    return 2 + ssq((i - 1) * s - 1 for i in span(2, 2 * n - 1))


@formula("chebyquad8")
@formula("chebyquad10")
def _(x, n):
    total = 0.0
    for i in span(1, n):
        series = np.polynomial.chebyshev.Chebyshev.basis(i, domain=[0, 1])
        integral = 0 if i % 2 else -1 / (i * i - 1)
        total += (sum(series(v) for v in x[1:]) / n - integral) ** 2
    return total


@formula("bdqrtic")
def _(x, n):
    return sum(
        (3 - 4 * x[i]) ** 2
        + (x[i] ** 2 + 2 * x[i + 1] ** 2 + 3 * x[i + 2] ** 2 + 4 * x[i + 3] ** 2 + 5 * x[n] ** 2)
        ** 2
        for i in span(1, n - 4)
    )


@formula("engval1")
def _(x, n):
    return sum((x[i] ** 2 + x[i + 1] ** 2) ** 2 - 4 * x[i] + 3 for i in span(1, n - 1))


@formula("tridia")
def _(x, n):
    return (x[1] - 1) ** 2 + sum(i * (2 * x[i] - x[i - 1]) ** 2 for i in span(2, n))


@formula("cragglvy")
def _(x, n):
    total = 0.0
    for i in span(1, n // 2 - 1):
        a, b, c, d = x[2 * i - 1], x[2 * i], x[2 * i + 1], x[2 * i + 2]
        total += (exp(a) - b) ** 4 + 100 * (b - c) ** 6
        total += (tan(c - d) + c - d) ** 4 + a**8 + (d - 1) ** 2
    return total


@formula("fletchcr")
def _(x, n):
    return sum(100 * (x[i + 1] - x[i] + 1 - x[i] ** 2) ** 2 for i in span(1, n - 1))


@formula("edensch")
def _(x, n):
    return 16 + sum(
        (x[i] - 2) ** 4 + (x[i] * x[i + 1] - 2 * x[i + 1]) ** 2 + (x[i + 1] + 1) ** 2
        for i in span(1, n - 1)
    )


@formula("dqdrtic")
def _(x, n):
    return sum(x[i] ** 2 + 100 * (x[i + 1] ** 2 + x[i + 2] ** 2) for i in span(1, n - 2))


@formula("cosine")
def _(x, n):
    return sum(cos(-0.5 * x[i + 1] + x[i] ** 2) for i in span(1, n - 1))


@formula("genrose")
def _(x, n):
    return 1 + sum(100 * (x[i] - x[i - 1] ** 2) ** 2 + (x[i] - 1) ** 2 for i in span(2, n))


@formula("nondquar")
def _(x, n):
    inner = sum((x[i] + x[i + 1] + x[n]) ** 4 for i in span(1, n - 2))
    return (x[1] - x[2]) ** 2 + inner + (x[n - 1] + x[n]) ** 2


@formula("schmvett")
def _(x, n):
    return sum(
        -1 / (1 + (x[i] - x[i + 1]) ** 2)
        - sin((pi * x[i + 1] + x[i + 2]) / 2)
        - exp(-(((x[i] + x[i + 2]) / x[i + 1] - 2) ** 2))
        for i in span(1, n - 2)
    )


@formula("tointgss")
def _(x, n):
    return sum(
        (10 / (n + 2) + x[i + 2] ** 2)
        * (2 - exp(-((x[i] - x[i + 1]) ** 2) / (0.1 + x[i + 2] ** 2)))
        for i in span(1, n - 2)
    )


@formula("dixon3dq")
def _(x, n):
    inner = sum((x[j] - x[j + 1]) ** 2 for j in span(2, n - 1))
    return (x[1] - 1) ** 2 + inner + (x[n] - 1) ** 2


@formula("arwhead")
def _(x, n):
    return sum((x[i] ** 2 + x[n] ** 2) ** 2 - 4 * x[i] + 3 for i in span(1, n - 1))


@formula("nondia")
def _(x, n):
    return (x[1] - 1) ** 2 + sum(100 * (x[1] - x[i - 1] ** 2) ** 2 for i in span(2, n))


@formula("liarwhd")
def _(x, n):
    return sum(4 * (x[i] ** 2 - x[1]) ** 2 + (x[i] - 1) ** 2 for i in span(1, n))


@formula("power")
def _(x, n):
    return sum(i * x[i] ** 2 for i in span(1, n)) ** 2


@formula("dqrtic")
def _(x, n):
    return sum((x[i] - i) ** 4 for i in span(1, n))


@formula("sinquad")
def _(x, n):
    inner = sum((sin(x[i] - x[n]) - x[1] ** 2 + x[i] ** 2) ** 2 for i in span(2, n - 1))
    return (x[1] - 1) ** 4 + inner + (x[n] ** 2 - x[1] ** 2) ** 2


def dixmaan(name, beta, gamma, delta, k1, k2, k3, k4):
    @formula(name)
    def _(x, n):
        m = n // 3
        total = 1 + sum(x[i] ** 2 * (i / n) ** k1 for i in span(1, n))
        for i in span(1, n - 1):
            total += beta * x[i] ** 2 * (x[i + 1] + x[i + 1] ** 2) ** 2 * (i / n) ** k2
        for i in span(1, 2 * m):
            total += gamma * x[i] ** 2 * x[i + m] ** 4 * (i / n) ** k3
        for i in span(1, m):
            total += delta * x[i] * x[i + 2 * m] * (i / n) ** k4
        return total


dixmaan("dixmaana", 0, 1 / 8, 1 / 8, 0, 0, 0, 0)
dixmaan("dixmaane", 0, 1 / 8, 1 / 8, 1, 0, 0, 1)
dixmaan("dixmaanj", 1 / 16, 1 / 16, 1 / 16, 2, 0, 0, 2)

# Values at the start as they stand in print or follow by hand; for the two functions whose data
# fill a page, Osborne's, this is the check.
STARTS = {
    "rosenbrock": 24.2,
    "freudenstein-roth": 400.5,
    "beale": 14.203125,
    "helical-valley": 2500,
    "powell-singular": 215,
    "wood": 19192,
    "engval2": 629,
    "jennrich-sampson": 4171.306,
    "brown-dennis": 7926693.34,
    "osborne1": 0.879026,
    "osborne2": 2.09342,
    "biggs-exp6": 0.779070,
    "watson6": 30,
    "box-3d": 1031.154,
    "bard": 41.6817,
    "gaussian": 3.88811e-6,
    "meyer": 1.69361e9,
    "gulf": 12.1107,
    "dqdrtic": 1809 * 498,
    "arwhead": 3 * 99,
    "engval1": 59 * 99,
    "liarwhd": 585 * 100,
    "fletchcr": 100 * 49,
    "nondia": 4 + 400 * 99,
    "power": 5050**2,
    "woods": 19192 * 50,
    "dixmaana": 1 + 4 * 90 + 8 * 60 + 0.5 * 30,
}

"""Line searches on hostile functions: noise, plateaus, cliffs, NaN, wrong gradients, extreme sizes.

Most run on a function of one number; the rest inside of runs of the methods that search. After each
one, what must hold of any search on any function is checked.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch

import firstish
from attacks.tally import Tally
from firstish import Armijo, LazyStep, NonMonotone, PlaneStep, ScaledDirection, ScaledGradient
from firstish.baselines import ABBmin, LineSearch
from firstish.line_search import NOISE_ULPS, Found, LineFunction
from firstish.objectives.numpy import NumpyObjective

SEARCHES = 80_000  # on functions of one number
RUNS = 2_500  # of methods, of up to 25 searches each
EPS = 2.0**-52
Scalar = Callable[[float], float]


@dataclass(frozen=True)
class Function:
    """f, and what is claimed to be its first and second derivative."""

    f: Scalar
    df: Scalar
    ddf: Scalar
    same: bool = True  # whether two calls at one x give one value


def smooth(rng: random.Random) -> Function:
    """A quadratic, a quartic, an exponential, a logarithm or a wave."""
    a, b = 10 ** rng.uniform(-3, 3), rng.uniform(-3, 3)
    return rng.choice(
        [
            Function(lambda x: a * (x - b) ** 2, lambda x: 2 * a * (x - b), lambda x: 2 * a),
            Function(lambda x: a * x**4, lambda x: 4 * a * x**3, lambda x: 12 * a * x * x),
            Function(
                lambda x: math.exp(-a * x),
                lambda x: -a * math.exp(-a * x),
                lambda x: a * a * math.exp(-a * x),
            ),
            Function(
                lambda x: math.log1p(a * x * x),
                lambda x: 2 * a * x / (1 + a * x * x),
                lambda x: 2 * a * (1 - a * x * x) / (1 + a * x * x) ** 2,
            ),
            Function(
                lambda x: math.sin(a * x) + b,
                lambda x: a * math.cos(a * x),
                lambda x: -a * a * math.sin(a * x),
            ),
        ]
    )


def noisy(rng: random.Random) -> Function:
    """Noise of any size, the same at the same x or another each time."""
    base, size = smooth(rng), 10 ** rng.uniform(-17, 0)
    again = rng.random() < 0.5
    own = random.Random(rng.random())

    def noise(x: float) -> float:
        return size * (own.uniform(-1, 1) if again else math.sin(1e9 * x))

    return Function(
        lambda x: base.f(x) + noise(x), lambda x: base.df(x) + noise(-x), base.ddf, not again
    )


def stepped(rng: random.Random) -> Function:
    """Plateaus: f is constant between steps, and the gradient is that of what was rounded."""
    base, width = smooth(rng), 10 ** rng.uniform(-12, 0)
    return Function(lambda x: width * round(base.f(x) / width), base.df, base.ddf)


def cliff(rng: random.Random) -> Function:
    """A jump, up or down, by anything from 1e-16 to 1e300."""
    base, edge = smooth(rng), rng.uniform(-3, 3)
    height = rng.choice([-1, 1]) * 10 ** rng.uniform(-16, 300)
    return Function(lambda x: base.f(x) + (height if x > edge else 0.0), base.df, base.ddf)


def forbidden(rng: random.Random) -> Function:
    """Regions where f, its gradient or both are NaN or infinite."""
    base, edge = smooth(rng), rng.uniform(-3, 3)
    bad = rng.choice([math.nan, math.inf, -math.inf])
    which = rng.choice(["value", "gradient", "both", "product"])

    def spoilt(part: Scalar, hit: bool) -> Scalar:
        return lambda x: bad if hit and x > edge else part(x)

    return Function(
        spoilt(base.f, which in ("value", "both")),
        spoilt(base.df, which in ("gradient", "both")),
        spoilt(base.ddf, which == "product"),
    )


def extreme(rng: random.Random) -> Function:
    """Sizes of 1e±150 in f, in x or in both."""
    base = smooth(rng)
    a, b = (10 ** rng.choice([0.0, rng.uniform(-150, 150)]) for _ in range(2))
    return Function(
        lambda x: a * base.f(x / b),
        lambda x: a / b * base.df(x / b),
        lambda x: a / b / b * base.ddf(x / b),
    )


def wrong(rng: random.Random) -> Function:
    """A gradient or a curvature that is not that of f."""
    base = smooth(rng)
    k, m = (rng.choice([-1.0, 0.0, 1e-10, 0.5, 1.0, 3.0, 1e10]) for _ in range(2))
    return Function(base.f, lambda x: k * base.df(x), lambda x: m * base.ddf(x))


def bottomless(rng: random.Random) -> Function:
    """Unbounded below, at any speed."""
    a = 10 ** rng.uniform(-3, 3)
    return rng.choice(
        [
            Function(lambda x: -a * x, lambda x: -a, lambda x: 0.0),
            Function(lambda x: -a * x * x, lambda x: -2 * a * x, lambda x: -2 * a),
            Function(
                lambda x: -math.exp(a * x),
                lambda x: -a * math.exp(a * x),
                lambda x: -a * a * math.exp(a * x),
            ),
        ]
    )


def kinked(rng: random.Random) -> Function:
    """Kinks, roots and ever faster waves."""
    b = rng.uniform(-1, 1)
    return rng.choice(
        [
            Function(lambda x: abs(x - b), lambda x: math.copysign(1, x - b), lambda x: 0.0),
            Function(
                lambda x: math.sqrt(abs(x)),
                lambda x: math.copysign(0.5 / math.sqrt(abs(x)), x),
                lambda x: -0.25 / abs(x) ** 1.5,
            ),
            Function(
                lambda x: x * x * math.sin(1 / x),
                lambda x: 2 * x * math.sin(1 / x) - math.cos(1 / x),
                lambda x: 2.0,
            ),
        ]
    )


def at_the_edge(rng: random.Random) -> Function:
    """Values near the largest and the smallest numbers."""
    base = smooth(rng)
    if rng.random() < 0.5:
        shift = rng.choice([-1, 1]) * 10 ** rng.uniform(300, 308)
        return Function(lambda x: base.f(x) * 1e300 + shift, lambda x: base.df(x) * 1e300, base.ddf)
    tiny = 10 ** rng.uniform(-322, -300)
    return Function(lambda x: base.f(x) * tiny, lambda x: base.df(x) * tiny, base.ddf)


KINDS = (
    smooth, noisy, stepped, cliff, forbidden, extreme, wrong, bottomless, kinked, at_the_edge,
)  # fmt: skip


def guarded(part: Scalar) -> Scalar:
    """Infinity and NaN instead of Python's errors, as torch and NumPy have it."""

    def call(x: float) -> float:
        try:
            return part(x)
        except OverflowError:
            return math.inf
        except (ValueError, ZeroDivisionError):
            return math.nan

    return call


@dataclass(slots=True)
class OnLine:
    """A trial of a search on a function of one number."""

    start: float
    p: float
    alpha: float
    function: Function

    @property
    def x(self) -> float:
        return self.start + self.alpha * self.p

    value: float = 0.0
    linear: float | None = None

    def __post_init__(self) -> None:
        self.value = self.function.f(self.x)

    def slope(self) -> float:
        return self.function.df(self.x) * self.p

    def moved(self) -> bool:
        return self.x != self.start

    def usable(self) -> bool:
        return math.isfinite(self.function.df(self.x))


def settings(rng: random.Random) -> Armijo:
    """Armijo's settings, ordinary and not."""
    kind = rng.choice([Armijo, NonMonotone])
    return kind(
        rho=rng.choice([0.0, 1e-4, 0.1, 0.49]),
        theta=rng.choice([0.5, 0.1, 0.9, 1e-3]),
        initial_step=rng.choice([1.0, 1.0, 2.0, 10 ** rng.uniform(-300, 300)]),
        max_trials=rng.choice([60, 60, 1, 2, 5]),
    )


def one_search(rng: random.Random, make: Callable[[random.Random], Function]) -> str | None:
    """Search once; what is wrong with the answer, or None."""
    value = slope = math.nan
    while not (math.isfinite(value) and math.isfinite(slope)) or slope == 0:
        raw = make(rng)
        function = Function(*map(guarded, (raw.f, raw.df, raw.ddf)), raw.same)
        start = rng.choice([0.0, 1.0, rng.uniform(-3, 3), 10 ** rng.uniform(-150, 150)])
        value, slope = function.f(start), function.df(start)
    p = -slope * rng.choice([1.0, 1.0, 10 ** rng.uniform(-150, 150)])
    calls = 0

    def trial(alpha: float) -> OnLine:
        nonlocal calls
        calls += 1
        return OnLine(start, p, alpha, function)

    reference = value
    if isinstance(search := settings(rng), NonMonotone):
        reference += rng.choice([0.0, abs(value)])
    phi = LineFunction(reference, slope * p, trial, EPS, lifted=reference > value)
    how = rng.randrange(4)
    if how < 2:
        found = search.backtrack(phi, interpolate=how == 1)
    else:
        found = search.forward_track(phi, falling=how == 3)
    return fault_of(found, search, phi, calls)


def fault_of(
    found: Found[OnLine], search: Armijo, phi: LineFunction[OnLine], calls: int
) -> str | None:
    """The first thing that is wrong with what a search came back with."""
    trial = found.trial
    if not calls == found.trials <= search.max_trials:
        return f"{calls} trials made, {found.trials} told, {search.max_trials} allowed"
    if trial is None:
        return None if found.step_size == 0 else "no trial, but a step"
    rise = trial.value - phi.value
    if not 0 < found.step_size < math.inf or found.step_size != trial.alpha:
        return f"a step of {found.step_size}, the trial's was {trial.alpha}"
    if not math.isfinite(trial.value) or not trial.usable():
        return f"a trial that is not finite: f = {trial.value}"
    if not trial.moved() and trial.function.same:
        return "a null step"
    if not rise <= NOISE_ULPS * EPS * abs(phi.value):
        return f"f rose by {rise} from {phi.value}"
    return None


def on_lines(rng: random.Random, count: int) -> list[Tally]:
    """Searches on functions of one number, a tally for each kind."""
    tallies = []
    for make in KINDS:
        tally = Tally(f"line search, {make.__name__.replace('_', ' ')}")
        for k in range(max(1, count // len(KINDS))):
            own = random.Random(f"{rng.random()} {k}")
            try:
                fault = one_search(own, make)
            except Exception as error:
                fault = f"{type(error).__name__}: {error}"
            tally.expect(fault is None, f"{fault}")
        tallies.append(tally)
    return tallies


METHODS: dict[str, firstish.methods.AnyMethod] = {
    "CGMR": ScaledGradient(),
    "CG, sigma=0": ScaledGradient(scaling="CG", sigma=0),
    "MRGM": ScaledGradient(scaling="MRGM", s_lpc="1/sigma"),
    "ASD": ScaledGradient(scaling="ASD"),
    "DY": ScaledGradient(scaling="DY", sigma=0),
    "SDC": ScaledGradient(scaling="SDC"),
    "non-monotone": ScaledGradient(line_search=NonMonotone(initial_step=2.0)),
    "plane": PlaneStep(),
    "lazy": LazyStep(),
    "direction": ScaledDirection(),
    "limited reset": LineSearch(),
    "no reset": LineSearch(reset="no"),
    "ABBmin": ABBmin(),
}
RISING = ("non-monotone", "ABBmin")  # their searches let f rise


def one_run(rng: random.Random, name: str, tally: Tally) -> None:
    """A run on a sum of two hostile functions; each iteration is a trial."""
    first, second = (
        Function(*map(guarded, (m.f, m.df, m.ddf)), m.same)
        for m in (rng.choice(KINDS)(rng), rng.choice((smooth, rng.choice(KINDS)))(rng))
    )
    parts = (first, second)
    objective = NumpyObjective(
        lambda x: sum(p.f(float(t)) for p, t in zip(parts, x, strict=True)),
        lambda x: [p.df(float(t)) for p, t in zip(parts, x, strict=True)],
        hessp=rng.choice(
            [None, lambda x, v: [p.ddf(float(t)) * u for p, t, u in zip(parts, x, v, strict=True)]]
        ),
    )
    x0 = torch.tensor([rng.uniform(-3, 3) for _ in parts], dtype=torch.float64)
    xs = [x0]
    try:
        result = firstish.minimize(
            objective,
            x0,
            method=METHODS[name],
            gtol=0,
            max_iterations=25,
            max_oracle_calls=None,
            callback=lambda progress: xs.append(progress.x),
        )
    except firstish.NonFiniteError:
        tally.refused += 1
        return
    except Exception as error:
        tally.lost.append(f"{name}: {type(error).__name__}: {error}")
        return
    finite = bool(torch.isfinite(result.x).all()) and math.isfinite(result.value)
    whole = len(result.history) == result.iterations + 1 == len(xs)
    tally.expect(finite and whole, f"{name}: {result}")
    for k, row in enumerate(result.history[:-1]):
        after = result.history[k + 1]
        rise = after.value - row.value
        allowed = NOISE_ULPS * EPS * abs(row.value)
        right = (
            row.step_size > 0
            and row.trials <= 2 * Armijo().max_trials
            and math.isfinite(after.value + after.grad_norm)
            and (name in RISING or rise <= allowed)
            and not (torch.equal(xs[k], xs[k + 1]) and all(p.same for p in parts))
        )
        tally.expect(right, f"{name}: {row} then f = {after.value}")


def attack(seed: int, effort: float) -> list[Tally]:
    """Searches on lines, then runs of every method that searches."""
    rng = random.Random(seed)
    tallies = on_lines(rng, round(SEARCHES * effort))
    for name in METHODS:
        tally = Tally(f"searches of {name}")
        for _ in range(max(1, round(RUNS * effort / len(METHODS)))):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                one_run(random.Random(rng.random()), name, tally)
        tallies.append(tally)
    return tallies

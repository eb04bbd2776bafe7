"""The methods by the names the command line uses. Adding one is one line in `METHODS`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from firstish import baselines
from firstish.line_search import Armijo
from firstish.methods import (
    AdamDirection,
    AnyMethod,
    LazyStep,
    MomentumDirection,
    PlaneStep,
    ScaledDirection,
    ScaledGradient,
)
from firstish.methods.directions import AnyDirection
from firstish.problems.base import Instance, Problem

Make = Callable[[Problem, Instance, float | None], AnyMethod]


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """How to make a method for a problem.

    Args:
        label: for tables and figures.
        make: from the problem, its instance and a step size (None where the method has none or
            theory gives it).
        rated: whether it has a step size to set.
        theory: whether the problem's constants can give that step size.
        optional_rate: whether one may be given although it is not needed.
    """

    label: str
    make: Make
    rated: bool = False
    theory: bool = False
    optional_rate: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """A method as the user wrote it: `adam`, `adam@0.01` or `adam@paper`."""

    name: str
    rate: float | str | None = None

    @property
    def key(self) -> str:
        """The name of its records."""
        return self.name if self.rate is None else f"{self.name}@{self.rate}"

    @property
    def label(self) -> str:
        """How tables and figures call it."""
        label = METHODS[self.name].label
        if self.rate is None:
            return label
        return f"{label} @ {self.rate:g}" if isinstance(self.rate, float) else f"{label}, paper's"


def _scaled(scaling: str) -> MethodSpec:
    def make(problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
        search = Armijo(rho=problem.rho)
        return ScaledGradient(scaling=scaling, sigma=problem.sigma, line_search=search)

    return MethodSpec(scaling, make)


def _plane(problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
    return PlaneStep(sigma=problem.sigma, line_search=Armijo(rho=problem.rho))


def _lazy(problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
    return LazyStep(line_search=Armijo(rho=problem.rho))


def _directed(label: str, direction: AnyDirection) -> MethodSpec:
    def make(problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
        search = Armijo(rho=problem.rho)
        return ScaledDirection(direction=direction, sigma=problem.sigma, line_search=search)

    return MethodSpec(label, make)


def _line_search(label: str, reset: baselines.Reset) -> MethodSpec:
    def make(problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
        search = Armijo(rho=problem.rho, initial_step=1.0 if rate is None else rate)
        return baselines.LineSearch(reset=reset, line_search=search)

    # The first step of each search may be given; only a full reset starts from it every time.
    return MethodSpec(label, make, optional_rate=reset == "full")


def _own(label: str, kind: Callable[..., AnyMethod], **settings: Any) -> MethodSpec:
    """A method that needs nothing of the problem; made when it is used."""
    return MethodSpec(label, lambda problem, instance, rate: kind(**settings))


def _descent(
    label: str,
    kind: type[baselines.FixedStep] | type[baselines.HeavyBall] | type[baselines.Nesterov],
) -> MethodSpec:
    def make(problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
        if rate is not None:
            return kind(step_size=rate)
        if instance.mu is None or instance.lipschitz is None:
            raise ValueError(f"{label} has no step size on {problem.name}: no grid stayed finite.")
        return kind.from_constants(mu=instance.mu, lipschitz=instance.lipschitz)

    return MethodSpec(label, make, rated=True, theory=True)


def _adam(problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
    if rate is None:
        raise ValueError(f"Adam has no step size on {problem.name}: no grid stayed finite.")
    return baselines.Adam(step_size=rate)


METHODS: dict[str, MethodSpec] = {
    "cgmr": _scaled("CGMR"),
    "mrcg": _scaled("MRCG"),
    "cg": _scaled("CG"),
    "mr": _scaled("MR"),
    "gm": _scaled("GM"),
    "plane": MethodSpec("Plane step", _plane),
    "lazy": MethodSpec("Lazy step", _lazy),
    "asd": _scaled("ASD"),
    "dy": _scaled("DY"),
    "sdc": _scaled("SDC"),
    "scaled-adam": _directed("Scaled Adam", AdamDirection()),
    "scaled-heavy-ball": _directed("Scaled heavy ball", MomentumDirection()),
    "fixed": _descent("Fixed step", baselines.FixedStep),
    "heavy-ball": _descent("Heavy ball", baselines.HeavyBall),
    "nesterov": _descent("Nesterov", baselines.Nesterov),
    "adam": MethodSpec("Adam", _adam, rated=True),
    "line-search": _line_search("Line search, limited", "limited"),
    "line-search-full": _line_search("Line search, full", "full"),
    "line-search-no": _line_search("Line search, none", "no"),
    "pono": _own("PoNo", baselines.PoNo),
    "pono-uncapped": _own("PoNo, cap 1e10", baselines.PoNo, max_step=1e10),
    "lbfgs": _own("L-BFGS", baselines.LBFGS),
    "adgd": _own("AdGD", baselines.AdGD),
    "adgd2": _own("AdGD-2", baselines.AdGD2),
    "abbmin": _own("ABBmin", baselines.ABBmin),
    "cdat": _own("CDAT", baselines.CDAT),
}

DEFAULT = "lazy"
"""The default of `minimize`: the headline of a run."""

PANEL = (
    "lazy",
    "plane",
    "cgmr",
    "mrcg",
    "cg",
    "mr",
    "gm",
    "adam",
    "heavy-ball",
    "nesterov",
    "fixed",
    "line-search",
    "pono",
    "lbfgs",
)
"""What `firstish run` compares when no method is named."""


def parse_choice(text: str) -> Choice:
    """`adam`, `adam@0.01` or `adam@paper`.

    >>> parse_choice("adam@0.01")
    Choice(name='adam', rate=0.01)
    """
    name, _, rate = text.strip().lower().partition("@")
    if name not in METHODS:
        raise ValueError(f"Unknown method {name!r}. Use one of: {', '.join(METHODS)}.")
    if not rate:
        return Choice(name)
    if not (METHODS[name].rated or METHODS[name].optional_rate):
        raise ValueError(f"`{text}`: {name} has no step size to set. Write {name!r}.")
    if rate == "paper":
        return Choice(name, rate)
    try:
        given = float(rate)
    except ValueError:
        given = math.nan
    if not 0 < given < math.inf:
        raise ValueError(f"`{text}`: {rate!r} is no step size. Write a number above 0, or 'paper'.")
    return Choice(name, given)


def fixed_rate(choice: Choice, problem: Problem, instance: Instance) -> float | None:
    """The step size, where nothing has to be tuned; see `needs_tuning`."""
    if choice.rate == "paper":
        if choice.name not in problem.rates:
            raise ValueError(f"The paper states no step size of {choice.name} for {problem.name}.")
        return problem.rates[choice.name]
    return None if choice.rate is None else float(choice.rate)


def needs_tuning(choice: Choice, instance: Instance) -> bool:
    """Whether a step size must be found by trying a grid."""
    spec = METHODS[choice.name]
    known = spec.theory and instance.mu is not None and instance.lipschitz is not None
    return spec.rated and choice.rate is None and not known

"""The methods of the command line: all that it knows of them, one entry of `METHODS` each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from firstish import baselines
from firstish.experiments.styles import (
    BLACK,
    BLUE,
    BROWN,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    YELLOW,
    Style,
    by_position,
)
from firstish.interface.keywords import did_you_mean
from firstish.line_search import Armijo
from firstish.methods import AdamDirection, AnyMethod, MomentumDirection, ScaledDirection, registry
from firstish.methods.directions import AnyDirection
from firstish.problems.base import Instance, Problem

Maker = Callable[[Problem, Instance, float | None], AnyMethod]

Family = Literal["scaling", "rival", "pono", "first-step", "other"]
"""What a method is in the paper's figures: one of the scalings, a rival drawn beside the problem's
scaling, PoNo, or a line search from a given first step. The figure `gap` has all methods."""


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """A method of the command line.

    Args:
        label: for tables and figures.
        maker: makes it from the problem, its instance and a step size (None where the method has
            none or theory gives it).
        style: colour, dash and marker; None for one by its position in the run.
        family: which figures it is in.
        panel: its place in the standard panel; None if it is not part of that.
        rated: whether it has a step size to set.
        theory: whether the problem's constants can give that step size.
        optional_rate: whether one may be given although it is not needed.
        non_monotone: whether f may rise by design; figures then draw its best value so far.
    """

    label: str
    maker: Maker
    style: Style | None = None
    family: Family = "other"
    panel: int | None = None
    rated: bool = False
    theory: bool = False
    optional_rate: bool = False
    non_monotone: bool = False

    def make(self, problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
        """The method for a problem."""
        if rate is None and self.needs_rate(instance):
            raise ValueError(
                f"{self.label} has no step size on {problem.name}: f was not finite with any of "
                "its grid. Give one: METHOD@0.001."
            )
        return self.maker(problem, instance, rate)

    def needs_rate(self, instance: Instance) -> bool:
        """Whether it has a step size that theory does not give."""
        known = self.theory and instance.mu is not None and instance.lipschitz is not None
        return self.rated and not known


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

    def style(self, position: int) -> Style:
        """Its style in figures; given with a step size, it varies with the position in the run."""
        own = METHODS[self.name].style if self.rate is None else None
        return own or by_position(position)


def _scaled(name: str) -> Maker:
    """`PlaneStep`, or a scaling of `ScaledGradient`."""

    def make(problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
        return registry.make(name, sigma=problem.sigma, line_search=Armijo(rho=problem.rho))

    return make


def _lazy(**settings: Any) -> Maker:
    def make(problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
        return registry.make("lazy", line_search=Armijo(rho=problem.rho), **settings)

    return make


def _directed(direction: AnyDirection) -> Maker:
    def make(problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
        search = Armijo(rho=problem.rho)
        return ScaledDirection(direction=direction, sigma=problem.sigma, line_search=search)

    return make


def _line_search(reset: baselines.Reset) -> Maker:
    def make(problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
        search = Armijo(rho=problem.rho, initial_step=1.0 if rate is None else rate)
        return baselines.LineSearch(reset=reset, line_search=search)

    return make


def _descent(
    kind: type[baselines.FixedStep] | type[baselines.HeavyBall] | type[baselines.Nesterov],
) -> Maker:
    def make(problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
        if rate is not None:
            return kind(step_size=rate)
        assert instance.mu is not None
        assert instance.lipschitz is not None
        return kind.from_constants(mu=instance.mu, lipschitz=instance.lipschitz)

    return make


def _adam(problem: Problem, instance: Instance, rate: float | None) -> AnyMethod:
    assert rate is not None
    return baselines.Adam(step_size=rate)


def _own(kind: Callable[..., AnyMethod], **settings: Any) -> Maker:
    """A method that needs nothing of the problem; made when it is used."""
    return lambda problem, instance, rate: kind(**settings)


METHODS: dict[str, MethodSpec] = {
    "cgmr": MethodSpec("CGMR", _scaled("CGMR"), Style(RED, "solid", "circle"), "scaling", 3),
    "mrcg": MethodSpec("MRCG", _scaled("MRCG"), Style(BLUE, "solid", "square"), "scaling", 4),
    "cg": MethodSpec("CG", _scaled("CG"), Style(ORANGE, "dash", "triangle-up"), "scaling", 5),
    "mr": MethodSpec("MR", _scaled("MR"), Style(SKY, "dash", "triangle-down"), "scaling", 6),
    "gm": MethodSpec("GM", _scaled("GM"), Style(YELLOW, "dash", "diamond"), "scaling", 7),
    "plane": MethodSpec("Plane step", _scaled("plane"), Style(GREEN, "dash", "circle-open")),
    "lazy": MethodSpec("Lazy step", _lazy(), Style(BLUE, "dashdot", "square-open"), panel=1),
    "lazy-50": MethodSpec(
        "Lazy step, 50 pairs", _lazy(memory=50), Style(BLUE, "dot", "square-open")
    ),
    "asd": MethodSpec("ASD", _scaled("ASD"), Style(RED, "dash", "diamond-tall-open")),
    "dy": MethodSpec("DY", _scaled("DY"), Style(ORANGE, "solid", "star-open")),
    "sdc": MethodSpec("SDC", _scaled("SDC"), Style(BROWN, "solid", "cross-open")),
    "scaled-adam": MethodSpec(
        "Scaled Adam", _directed(AdamDirection()), Style(BLACK, "dashdot", "star-open")
    ),
    "scaled-heavy-ball": MethodSpec(
        "Scaled heavy ball", _directed(MomentumDirection()), Style(BROWN, "dot", "cross-open")
    ),
    "fixed": MethodSpec(
        "Fixed step",
        _descent(baselines.FixedStep),
        Style(GREY, "dot", "hexagon"),
        "rival",
        11,
        rated=True,
        theory=True,
    ),
    "heavy-ball": MethodSpec(
        "Heavy ball",
        _descent(baselines.HeavyBall),
        Style(BROWN, "dashdot", "cross"),
        "rival",
        9,
        rated=True,
        theory=True,
    ),
    "nesterov": MethodSpec(
        "Nesterov",
        _descent(baselines.Nesterov),
        Style(PINK, "dashdot", "pentagon"),
        "rival",
        10,
        rated=True,
        theory=True,
    ),
    "adam": MethodSpec("Adam", _adam, Style(BLACK, "solid", "star"), "rival", 8, rated=True),
    "line-search": MethodSpec(
        "Line search, limited",
        _line_search("limited"),
        Style(PINK, "solid", "triangle-left"),
        "rival",
        12,
    ),
    "line-search-full": MethodSpec(
        "Line search, full",
        _line_search("full"),
        Style(ORANGE, "dot", "triangle-left-open"),
        "first-step",
        optional_rate=True,  # only a full reset starts every search from the given step
    ),
    "line-search-no": MethodSpec(
        "Line search, no reset", _line_search("no"), Style(SKY, "dot", "triangle-up-open")
    ),
    "pono": MethodSpec(
        "PoNo",
        _own(baselines.PoNo),
        Style(GREEN, "solid", "triangle-right"),
        "pono",
        13,
        non_monotone=True,
    ),
    "pono-uncapped": MethodSpec(
        "PoNo, cap 1e10",
        _own(baselines.PoNo, max_step=1e10),
        Style(GREEN, "dot", "triangle-right-open"),
        "pono",
        non_monotone=True,
    ),
    "lbfgs": MethodSpec(
        "L-BFGS, torch", _own(baselines.LBFGS), Style(BLACK, "dash", "diamond-tall"), "rival", 14
    ),
    "lbfgs-10": MethodSpec(
        "L-BFGS, 10 pairs",
        _own(baselines.LBFGS, memory=10),
        Style(BLACK, "dot", "diamond-tall"),
        "rival",
    ),
    "adgd": MethodSpec("AdGD", _own(baselines.AdGD), Style(SKY, "solid", "diamond-open")),
    "adgd2": MethodSpec(
        "AdGD-2", _own(baselines.AdGD2), Style(SKY, "dashdot", "triangle-down-open")
    ),
    "abbmin": MethodSpec(
        "ABBmin",
        _own(baselines.ABBmin),
        Style(YELLOW, "solid", "pentagon-open"),
        non_monotone=True,
    ),
    "cdat": MethodSpec("CDAT", _own(baselines.CDAT), Style(RED, "dot", "hexagon-open")),
}

PANEL = tuple(
    name
    for name, spec in sorted(METHODS.items(), key=lambda entry: entry[1].panel or 0)
    if spec.panel is not None
)
"""What `firstish run` compares when no method is named."""

DEFAULT = registry.DEFAULT
"""The default of `minimize`: the headline of a run."""

BESIDE = ("lbfgs", "adam")
"""The methods that the headline of a run compares the default with, besides the paper's."""


def parse_choice(text: str) -> Choice:
    """`adam`, `adam@0.01` or `adam@paper`.

    >>> parse_choice("adam@0.01")
    Choice(name='adam', rate=0.01)
    """
    name, _, rate = text.strip().lower().partition("@")
    if name not in METHODS:
        meant = did_you_mean(name, METHODS)
        raise ValueError(f"Unknown method {name!r}.{meant} Use one of: {', '.join(METHODS)}.")
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
        raise ValueError(
            f"`{text}`: {rate!r} is not a step size. Write a number above 0, or 'paper'."
        )
    return Choice(name, given)


def fixed_rate(choice: Choice, problem: Problem) -> float | None:
    """The step size, where nothing has to be tuned; see `needs_tuning`."""
    if choice.rate == "paper":
        if choice.name not in problem.rates:
            raise ValueError(
                f"The paper states no step size of {choice.name} for {problem.name}. Give a "
                f"number: {choice.name}@0.01."
            )
        return problem.rates[choice.name]
    return None if choice.rate is None else float(choice.rate)


def needs_tuning(choice: Choice, instance: Instance) -> bool:
    """Whether a step size must be found by trying a grid."""
    return choice.rate is None and METHODS[choice.name].needs_rate(instance)

"""The paper's method: p = -s g, s from one Hessian-vector product, a unit step tried first."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from firstish.line_search import Armijo, SearchState
from firstish.methods.base import Step
from firstish.methods.rules import RULES, RULES_WITH_MEMORY, RuleMemory, rule_scale
from firstish.methods.take_step import Proposal, ProposingMethod, along_gradient
from firstish.objectives.base import Order, Point
from firstish.scaling import (
    SCALES,
    Curvature,
    LimitedScale,
    algorithm_1,
    check_cases,
    parse_cycle,
)

_FIRST_SEARCH = tuple(SearchState())


@dataclass(frozen=True, slots=True)
class CycleState:
    """The position in the cycle, and the states of the rule and the line search.

    Args:
        turns: the number of SPC steps taken, which is the position in the cycle.
        memory: the numbers of `RuleMemory`, as a plain tuple for state dicts.
        search: likewise those of `SearchState`.
    """

    turns: int = 0
    memory: tuple[float, ...] = ()
    search: tuple[Any, ...] = _FIRST_SEARCH


@lru_cache
def cycle_of(scaling: str) -> tuple[str, ...]:
    """The scales of a cycle such as "CGMR", or of a rule such as "DY".

    >>> cycle_of("CGMR"), cycle_of("dy")
    (('CG', 'MR'), ('CG', 'CG', 'Y', 'Y'))
    """
    if isinstance(scaling, str) and scaling.upper() in RULES:
        return RULES[scaling.upper()]
    return parse_cycle(scaling)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledGradient(ProposingMethod[CycleState]):
    """Gradient descent scaled by the curvature along the gradient.

        p = -s g,    x <- x + alpha p,    alpha = 1 tried first

    Args:
        scaling: "CG", "MR", "GM" or a cycle of them such as "CGMR", in upper or lower case. The
            cycle advances in SPC only. Or one of the rules "ASD", "DY" and "SDC" (see
            `methods/rules.py`); DY and SDC start again after a step outside of SPC, or one that the
            line search shortened.
        sigma: the curvature gHg/gg above which it is strong; 0 is right for strongly convex f.
        s_lpc: the scale in LPC, in (0, 1/sigma]; "1/sigma" for that bound; by default
            min(1, 1/sigma).
        s_nc: the scale in NC, before forward tracking. A step of `s_lpc` or `s_nc` that would be
            lost in rounding is lengthened.
        line_search: settings of the line search. `NonMonotone(schedule=Anneal(iterations=100))`
            lets f rise and starts with steps beyond 1.

    Examples:
        >>> import torch, firstish
        >>> x0 = torch.tensor([3.0, 1.0], dtype=torch.float64)
        >>> method = ScaledGradient(scaling="MRCG")
        >>> firstish.minimize(lambda x: (x**2).sum(), x0, method=method).iterations
        1
    """

    order: ClassVar[Order] = 2

    scaling: str = "CGMR"
    sigma: float = 1e-6
    s_lpc: LimitedScale = None
    s_nc: float = 1.0
    line_search: Armijo = field(default_factory=Armijo)

    def __post_init__(self) -> None:
        cycle_of(self.scaling)
        check_cases("ScaledGradient", self.sigma, self.s_lpc, self.s_nc)

    def init(self, point: Point) -> CycleState:
        """The start of the cycle."""
        return CycleState()

    def search_state(self, state: CycleState) -> SearchState:
        """The state of the line search."""
        return SearchState(*state.search)

    def propose(self, point: Point, state: CycleState) -> Proposal:
        """The step of Algorithm 1 from one product."""
        # --8<-- [start:step]
        cycle = cycle_of(self.scaling)
        name = cycle[state.turns % len(cycle)]
        angle = point.angle(rayleigh_only=name == "CG")
        case, s = algorithm_1(
            angle,
            name if name in SCALES else "CG",
            sigma=self.sigma,
            s_lpc=self.s_lpc,
            s_nc=self.s_nc,
        )
        if case is Curvature.SPC and name not in SCALES:
            memory = RuleMemory(*state.memory).relative_to(point.grad_in_range()[2])
            s = rule_scale(name, angle, self.sigma, memory)
        return along_gradient(point, angle, case, s, scaling=name)
        # --8<-- [end:step]

    def learn(
        self, point: Point, state: CycleState, proposal: Proposal, step: Step, search: SearchState
    ) -> CycleState:
        """Advance the cycle after an SPC step; a rule with memory starts again after any other."""
        strong = step.curvature is Curvature.SPC
        if cycle_of(self.scaling) not in RULES_WITH_MEMORY:
            return CycleState(state.turns + strong, search=tuple(search))
        if not (strong and step.trials == 1):  # earlier steps tell nothing about the next ones
            return CycleState(search=tuple(search))
        memory = _next_memory(RuleMemory(*state.memory), proposal, step)
        return CycleState(state.turns + 1, tuple(memory), tuple(search))


def _next_memory(memory: RuleMemory, proposal: Proposal, step: Step) -> RuleMemory:
    """The memory of the rule after this step."""
    assert proposal.angle is not None
    assert step.step_size is not None
    held = step.scale if step.scaling == "Y" else memory.held
    return RuleMemory(proposal.angle.rayleigh, step.step_size * proposal.length, held or 0.0)

"""Golden traces: each competitor against its formula in NumPy, or torch's own optimizer."""

from dataclasses import dataclass, field
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tolerances import bounded, distance

from firstish import Armijo, zhang_hager
from firstish.baselines import (
    CDAT,
    LBFGS,
    ABBmin,
    Adam,
    AdGD,
    AdGD2,
    FixedStep,
    HeavyBall,
    LineSearch,
    Nesterov,
    PoNo,
)

from . import reference
from .problems import FUNCTIONS, LOGISTIC, TRAP, VALLEY, WELLS, run, tensor

STEPS = 30
AT_LEAST = 20  # so many steps are compared; later ones where errors have not grown too far
A_LITTLE = 1 + 1e-6


@dataclass(eq=False)  # a key of `once`
class Case:
    """A method, its reference, and a near neighbour that must be told apart from it."""

    name: str
    method: Any
    expected: Any  # problem, n -> Trace
    neighbour: Any
    problems: tuple = (LOGISTIC, VALLEY)
    notes: dict = field(default_factory=dict)  # the branches that must be taken, by problem
    steps: int = STEPS
    chaotic: bool = False  # rounding grows by 1e12 over the run: compare step by step


CASES = [
    Case(
        "fixed",
        FixedStep(step_size=0.03),
        partial(reference.fixed_step, step_size=0.03),
        FixedStep(step_size=0.03 * A_LITTLE),
    ),
    Case(
        "heavy ball",
        HeavyBall(step_size=0.01),
        partial(reference.heavy_ball, step_size=0.01),
        HeavyBall(step_size=0.01, momentum=0.9 / A_LITTLE),
    ),
    Case(
        "Nesterov",
        Nesterov(step_size=0.01),
        partial(reference.nesterov, step_size=0.01),
        Nesterov(step_size=0.01, momentum=0.9 / A_LITTLE),
    ),
    Case(
        "Adam",
        Adam(step_size=0.05),
        partial(reference.adam, step_size=0.05),
        Adam(step_size=0.05, betas=(0.9, 0.999 / A_LITTLE)),
    ),
    Case(
        "line search, full reset",
        LineSearch(reset="full"),
        partial(reference.line_search, reset="full"),
        LineSearch(reset="full", line_search=Armijo(theta=0.5 * A_LITTLE)),
        problems=(VALLEY, WELLS),
    ),
    Case(
        "line search, full reset from 4",
        LineSearch(reset="full", line_search=Armijo(initial_step=4.0, rho=0.3)),
        partial(reference.line_search, reset="full", alpha_init=4.0, rho=0.3),
        LineSearch(reset="full", line_search=Armijo(initial_step=4.0 * A_LITTLE, rho=0.3)),
    ),
    Case(
        "line search, no reset",
        LineSearch(reset="no"),
        partial(reference.line_search, reset="no"),
        LineSearch(reset="limited"),
    ),
    Case(
        "line search, limited reset",
        LineSearch(reset="limited"),
        partial(reference.line_search, reset="limited"),
        LineSearch(reset="limited", line_search=Armijo(theta=0.5 * A_LITTLE)),
    ),
    Case(
        "PoNo",
        PoNo(),
        reference.pono,
        PoNo(c_p=0.1 * A_LITTLE),
        notes={LOGISTIC: {"capped", "memory", "rise"}, VALLEY: {"memory", "rise"}},
    ),
    Case(
        "PoNo, uncapped",
        PoNo(max_step=1e10),
        partial(reference.pono, max_step=1e10),
        PoNo(max_step=1e10, c_p=0.1 * A_LITTLE),
        notes={LOGISTIC: {"memory", "rise"}},
        chaotic=True,
    ),
    Case(
        "PoNo, other settings",
        PoNo(c=0.1, c_p=0.3, delta=0.7, xi=0.5, f_star=-1.0, max_step=3.0, min_step=1e-3),
        partial(
            reference.pono,
            c=0.1,
            c_p=0.3,
            delta=0.7,
            xi=0.5,
            f_star=-1.0,
            max_step=3.0,
            min_step=1e-3,
        ),
        PoNo(c=0.1, c_p=0.3, delta=0.7, xi=0.5, f_star=-1.1, max_step=3.0, min_step=1e-3),
        problems=(VALLEY, WELLS),
        chaotic=True,
    ),
    Case(
        "PoNo, no trial accepted",
        PoNo(),
        reference.pono,
        PoNo(min_step=1e-6 * A_LITTLE),
        problems=(TRAP,),
        notes={TRAP: {"rise", "memory"}},
        steps=25,
    ),
    Case(
        "AdGD",
        AdGD(step_size=1e-2),
        partial(reference.adgd, step_size=1e-2),
        AdGD(step_size=1e-2 * A_LITTLE),
        notes={LOGISTIC: {"growth", "curvature"}, VALLEY: {"growth", "curvature"}},
    ),
    Case(
        "AdGD-2",
        AdGD2(),
        reference.adgd2,
        AdGD2(step_size=1e-2 * A_LITTLE),
        notes={LOGISTIC: {"growth", "curvature"}, VALLEY: {"growth", "curvature", "halved"}},
    ),
    Case(
        "AdGD-2, a short first step",
        AdGD2(step_size=0.02),
        partial(reference.adgd2, step_size=0.02),
        AdGD2(step_size=0.02 * A_LITTLE),
        problems=(VALLEY,),
        notes={VALLEY: {"growth at 1"}},
    ),
    Case(
        "ABBmin",
        ABBmin(),
        reference.abbmin,
        ABBmin(line_search=Armijo(initial_step=A_LITTLE)),
        problems=(LOGISTIC, VALLEY, WELLS),
        notes={
            LOGISTIC: {"long", "earlier short", "rise"},
            VALLEY: {"long", "short", "earlier short", "rise"},
            WELLS: {"fallback"},
        },
    ),
    Case(
        "ABBmin, other settings",
        ABBmin(tau=0.6, memory=2, eta=0.2, line_search=Armijo(initial_step=0.5, theta=0.6)),
        partial(reference.abbmin, tau=0.6, memory=2, eta=0.2, alpha_init=0.5, theta=0.6),
        ABBmin(tau=0.6, memory=1, eta=0.2, line_search=Armijo(initial_step=0.5, theta=0.6)),
    ),
    Case(
        "CDAT",
        CDAT(),
        reference.cdat,
        CDAT(sigma=A_LITTLE),
        problems=(LOGISTIC, VALLEY, WELLS),
        notes={WELLS: {"negative"}},
    ),
    Case(
        "CDAT, other settings",
        CDAT(sigma=0.7, eps=0.1),
        partial(reference.cdat, sigma=0.7, eps=0.1),
        CDAT(sigma=0.7, eps=0.1 * A_LITTLE),
    ),
]
PAIRS = [(case, problem) for case in CASES for problem in case.problems]
IDS = [f"{case.name} on {type(problem).__name__}" for case, problem in PAIRS]


def expected(case, problem, **follow):
    """The reference's trace and its rows with tolerances, as far as they can be compared."""

    def run(*parts):
        posed = SimpleNamespace(x0=problem.x0, **dict(zip(("f", "g", "hv"), parts, strict=False)))
        trace = case.expected(posed, case.steps, **follow)
        # Steps in logarithms: near a solution they are quotients of small differences.
        numbers = zip(trace.x[1:], np.log(trace.step_size), strict=True)
        return list(zip(trace.trials, numbers, strict=True))

    parts = [getattr(problem, part) for part in ("f", "g", "hv") if hasattr(problem, part)]
    rows = bounded(run, parts)
    assert len(rows) >= AT_LEAST
    return case.expected(problem, len(rows), **follow), rows


once = cache(expected)


def compared(case, method, problem):
    """Our trace, the reference's, and the rows of that with tolerances."""
    ours, result = run(method, problem, case.steps)
    assert result.iterations == case.steps
    if case.chaotic:
        return ours, *expected(case, problem, follow=ours.x)
    return ours, *once(case, problem)


def excess(ours, rows):
    """The largest difference from the rows over its tolerance; infinite if one is of kind."""
    if ours.trials[: len(rows)] != [trials for trials, *_ in rows]:
        return np.inf
    numbers = zip(ours.x[1:], np.log(ours.step_size), strict=True)
    return max(
        distance(a, b) / tolerance
        for mine, (_, theirs, bounds) in zip(numbers, rows, strict=False)
        for a, b, tolerance in zip(mine, theirs, bounds, strict=True)
    )


@pytest.mark.parametrize(("case", "problem"), PAIRS, ids=IDS)
def test_trace_is_that_of_the_formula(case, problem):
    ours, theirs, rows = compared(case, case.method, problem)
    assert ours.trials[: len(rows)] == theirs.trials
    assert ours.oracle_calls[: len(rows) + 1] == theirs.oracle_calls
    assert excess(ours, rows) <= 1
    assert theirs.notes >= case.notes.get(problem, set())


@pytest.mark.parametrize(("case", "problem"), PAIRS, ids=IDS)
def test_a_near_neighbour_is_told_apart(case, problem):
    ours, _, rows = compared(case, case.neighbour, problem)
    assert excess(ours, rows) > 10


@pytest.mark.parametrize("problem", [LOGISTIC, VALLEY, WELLS])
def test_gradients_and_products_of_the_reference_are_right(problem):
    f = FUNCTIONS[problem]
    x = tensor(problem.x0).requires_grad_()
    v = torch.linspace(1, 2, len(x))
    (g,) = torch.autograd.grad(f(x), x, create_graph=True)
    (Hv,) = torch.autograd.grad(g, x, v)
    assert problem.f(problem.x0) == pytest.approx(float(f(x).detach()), rel=1e-14)
    np.testing.assert_allclose(problem.g(problem.x0), g.detach().numpy(), rtol=1e-13)
    np.testing.assert_allclose(problem.hv(problem.x0, v.numpy()), Hv.numpy(), rtol=1e-12)


@pytest.mark.parametrize("problem", [LOGISTIC, VALLEY])
def test_adam_has_the_bits_of_torch(problem):
    x = tensor(problem.x0).requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.05)
    ours, _ = run(Adam(step_size=0.05), problem, STEPS)
    for k in range(STEPS):
        optimizer.zero_grad()
        FUNCTIONS[problem](x).backward()
        optimizer.step()
        assert np.array_equal(ours.x[k + 1], x.detach().numpy())


def torch_lbfgs(problem, iterations, memory):
    """One call of torch's optimizer: where it ends, and how often it evaluated."""
    x = tensor(problem.x0).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [x],
        max_iter=iterations,
        max_eval=10**6,
        tolerance_grad=0,
        tolerance_change=0,
        history_size=memory,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        loss = FUNCTIONS[problem](x)
        loss.backward()
        return loss

    optimizer.step(closure)
    return x.detach().numpy(), optimizer.state[x]["func_evals"]


@pytest.mark.parametrize("memory", [10, 3])
@pytest.mark.parametrize("problem", [LOGISTIC, VALLEY, WELLS])
def test_lbfgs_one_at_a_time_is_one_long_call(problem, memory):
    n = 25 if problem is VALLEY else 14  # the others are solved by then
    ours, result = run(LBFGS(memory=memory), problem, n)
    assert result.iterations == n
    evaluations = 1
    for k in range(1, n + 1):
        x, expected = torch_lbfgs(problem, k, memory)
        evaluations += ours.trials[k - 1]
        assert np.array_equal(ours.x[k], x)
        assert evaluations == expected
        assert ours.oracle_calls[k] == 2 * expected
    assert max(ours.trials) > 1


def test_lbfgs_of_another_memory_is_told_apart():
    ours, _ = run(LBFGS(memory=2), VALLEY, 25)
    assert not np.allclose(ours.x[25], torch_lbfgs(VALLEY, 25, memory=3)[0], rtol=1e-6)


@pytest.mark.parametrize("eta", [0.0, 0.3, 0.85, 1.0])
def test_zhang_and_hagers_mean_weighs_the_past_by_powers_of_eta(eta):
    values = [3.0, -1.0, 4.0, 1.5, 9.0]
    weight = mean = 0.0
    for k, value in enumerate(values, start=1):
        weight, mean = zhang_hager.updated(weight, mean, value, eta)
        powers = np.array([eta ** (k - i) for i in range(1, k + 1)])
        assert weight == pytest.approx(powers.sum(), rel=1e-14)
        assert mean == pytest.approx(powers @ values[:k] / powers.sum(), rel=1e-14)


def test_adgd_measures_the_curvature_with_its_tiny_first_step():
    ours, _ = run(AdGD(), LOGISTIC, 2)
    g = LOGISTIC.g(LOGISTIC.x0)
    L = np.linalg.norm(LOGISTIC.hv(LOGISTIC.x0, g)) / np.linalg.norm(g)
    assert ours.step_size == pytest.approx([1e-10, 1 / (2 * L)], rel=1e-4)


@pytest.mark.parametrize(("mu", "L"), [(0.01, 4.0), (2.0, 2.0)])
def test_theory_gives_the_settings(mu, L):
    fixed, ball = FixedStep.from_constants(mu, L), HeavyBall.from_constants(mu, L)
    fast = Nesterov.from_constants(mu, L)
    kappa = L / mu
    assert fixed.step_size == fast.step_size == 1 / L
    assert ball.step_size == pytest.approx(4 / (L**0.5 + mu**0.5) ** 2, rel=1e-14)
    shrink = (kappa**0.5 - 1) / (kappa**0.5 + 1)
    assert ball.momentum == pytest.approx(shrink**2, rel=1e-12, abs=1e-15)
    assert fast.momentum == pytest.approx(shrink, rel=1e-12, abs=1e-15)

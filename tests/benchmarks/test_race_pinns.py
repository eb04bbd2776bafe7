"""The physics-informed suite: its losses and its reference solutions, against independent ones."""

import math

import numpy as np
import pytest
import torch
from race import report, store
from race.catalogue import PROBLEMS
from race.heat import Rules, heat
from race.learning.pinns import EQUATIONS, PINNS, SEEDS
from race.learning.pinns.allen_cahn import ALLEN_CAHN, chebyshev
from race.learning.pinns.burgers import NU, cole_hopf
from race.learning.pinns.equation import spread
from race.learning.pinns.stiff import RATE, exact
from race.traces import Outcome, Trace

BY_NAME = {e.name: e for e in EQUATIONS}


def test_every_equation_starts_at_several_networks_of_at_most_a_thousand_weights():
    assert len(PINNS) == len(EQUATIONS) * len(SEEDS) == 15
    for problem in PINNS:
        assert problem.budget == 3_000
        assert problem.build().x0.numel() < 1_000
    assert not torch.equal(PINNS[0].build().x0, PINNS[1].build().x0)


@pytest.mark.parametrize("name", ["pinn-poisson-1d", "pinn-helmholtz-2d", "pinn-stiff-ode"])
def test_the_exact_solution_has_no_loss(name):
    # Its derivatives by autograd, in the order in which `network` gives them.
    formulas = {
        "pinn-poisson-1d": lambda p: torch.sin(math.pi * p[:, 0]),
        "pinn-helmholtz-2d": lambda p: (
            torch.sin(math.pi * p[:, 0]) * torch.sin(2 * math.pi * p[:, 1])
        ),
        "pinn-stiff-ode": lambda p: exact(p[:, 0]),
    }
    equation = BY_NAME[name]
    points = equation.points().requires_grad_()
    u = formulas[name](points)
    (first,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    second = [torch.autograd.grad(d.sum(), points, retain_graph=True)[0] for d in first.unbind(1)]
    twice = [rows[:, k] for k, rows in enumerate(second)]
    values = torch.stack([u, *first.unbind(1), *twice]).detach()
    assert float(equation.loss(values, points.detach())) < 1e-24
    assert float(equation.loss(1.1 * values, points.detach())) > 1e-4


def test_burgers_solution_is_that_of_a_finite_difference():
    # u_t + u u_x = nu u_xx at points away from the front, where differences are accurate.
    x, t = np.array([-0.7, -0.3, 0.4, 0.8]), np.array([0.2, 0.5, 0.7, 0.9])
    h = 1e-4
    ut = (cole_hopf(x, t + h) - cole_hopf(x, t - h)) / (2 * h)
    ux = (cole_hopf(x + h, t) - cole_hopf(x - h, t)) / (2 * h)
    uxx = (cole_hopf(x + h, t) - 2 * cole_hopf(x, t) + cole_hopf(x - h, t)) / h**2
    assert ut + cole_hopf(x, t) * ux - NU * uxx == pytest.approx(np.zeros(4), abs=1e-5)
    assert cole_hopf(x, np.full(4, 1e-8)) == pytest.approx(-np.sin(np.pi * x), abs=1e-6)
    front = np.array([-0.01, 0.01]), np.array([0.9, 0.9])
    assert cole_hopf(*front, 100) == pytest.approx(cole_hopf(*front, 140), abs=1e-8)


def test_chebyshevs_matrix_differentiates_polynomials():
    x, D = chebyshev(12)
    assert D @ x**5 == pytest.approx(5 * x**4, abs=1e-11)


def test_allen_cahns_solution_is_that_of_finite_differences():
    # Second differences on 400 intervals, explicit in time: error about h^2 u_xxxx D.
    grid, u = ALLEN_CAHN.solution()
    x = np.linspace(-1, 1, 401)
    v, dt = x**2 * np.cos(np.pi * x), 2e-3
    for _ in range(round(0.5 / dt)):
        rate = 1e-3 * (v[2:] - 2 * v[1:-1] + v[:-2]) / (x[1] - x[0]) ** 2 + 5 * (v - v**3)[1:-1]
        middle = v.copy()
        middle[1:-1] += dt / 2 * rate
        inner = 1e-3 * (middle[2:] - 2 * middle[1:-1] + middle[:-2]) / (x[1] - x[0]) ** 2
        v[1:-1] += dt * (inner + 5 * (middle - middle**3)[1:-1])
    half = torch.isclose(grid[:, 1], torch.tensor(0.5))
    there = np.interp(grid[half, 0].numpy(), x, v)
    assert u[half].numpy() == pytest.approx(there, abs=2e-3)


def test_the_stiff_solution_solves_its_equation():
    t = torch.linspace(0, 2, 50).requires_grad_()
    u = exact(t)
    (ut,) = torch.autograd.grad(u.sum(), t)
    assert torch.allclose(ut, -RATE * (u - torch.cos(t)), atol=1e-12)
    assert float(exact(torch.zeros(()))) == 0


def test_the_points_are_spread_evenly():
    points = spread(400, (-1, 0), (1, 1))
    assert float(points[:, 0].min()) >= -1
    assert float(points[:, 1].max()) <= 1
    counts = np.histogram2d(*points.numpy().T, bins=4, range=[[-1, 1], [0, 1]])[0]
    assert counts.min() >= 20  # of 25 expected in each of 16 boxes


def test_a_run_records_the_error_of_its_solution():
    name = "pinn-poisson-1d-0"
    rules = Rules(max_calls=400, max_seconds=math.inf, repeats=1)
    done = heat(name, ["lazy", "scipy-lbfgsb"], rules)
    for outcome in done.values():
        assert 0 < outcome.error < 0.2
        assert outcome.x is None
    assert PROBLEMS[name].error(PROBLEMS[name].build().x0) > 0.5


def test_the_report_shows_medians_over_the_seeds():
    found = {}
    for seed, (loss, error) in enumerate([(1e-3, 0.1), (1e-9, 0.3), (1e-6, 0.2)]):
        key = store.Key(f"pinn-poisson-1d-{seed}", "lazy", "", 3000, 20)
        outcome = Outcome("MAX_SECONDS", Trace([2.0], [1.0], [loss]), 3000, 4.0, error=error)
        found[key.problem, "lazy"] = store.Result(key, outcome, "now")
    problems = [p for p, _ in found]
    head, line = report.solutions(problems, ["lazy"], found)
    assert head == "  pinn-poisson-1d, median of 3"
    assert line.split() == ["lazy", "1.0e-06", "2.0e-01", "4.0", "3", "ended", "by", "the", "clock"]

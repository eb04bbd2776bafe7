"""Property 5: alpha = 1 passes Armijo once |g| <= min{6 sigma^2 (1/2-rho), 6 (1-rho)/s_nc^2}/L2.

The radius is tested on both sides: every point inside takes the unit step, and on the worst
function, a cubic in one dimension, a point a little outside does not.
"""

import numpy as np
import pytest
import torch
from testbed import Problem, Waves, direction, first_step

from firstish import Armijo, ScaledGradient
from firstish.scaling import Curvature

SPC, LPC, NC = Curvature


def in_region(case, n=120):
    """Functions, points in the region with their settings, and the region's radius there."""
    rng = np.random.default_rng([case is SPC, case is LPC, case is NC])
    while n:
        f = Waves(rng, d=int(rng.integers(2, 7)), low=-2, high=3)
        x = rng.standard_normal(f.Q.shape[0])
        sigma, rho, s_nc = rng.uniform(0.1, 1), rng.uniform(0, 0.45), rng.choice([0.3, 1.0, 3.0])
        low, high = {SPC: (sigma, np.inf), LPC: (0, sigma), NC: (-np.inf, 0)}[case]
        v = direction(rng, f.H(x), low, high)
        if v is None:
            continue
        radius = min(6 * sigma**2 * (0.5 - rho), 6 * (1 - rho) / s_nc**2) / f.L2
        f.tilted(x, radius * rng.uniform(0.2, 1) * v)
        n -= 1
        yield f, x, radius, {"sigma": sigma, "s_nc": float(s_nc), "line_search": Armijo(rho=rho)}


@pytest.mark.parametrize("case", [SPC, LPC, NC])
@pytest.mark.parametrize("name", ["CG", "MR", "GM"])
def test_unit_step_is_accepted_inside_the_radius(case, name):
    inside = 0
    for f, x, radius, options in in_region(case):
        point = f.point(x)
        method = ScaledGradient(scaling=name, s_lpc="1/sigma", **options)
        _, step, _ = method.step(point, method.init(point))
        assert step.curvature is case
        inside += np.linalg.norm(f.g(x)) <= radius
        assert step.step_size == 1 or (case is NC and step.step_size > 1)
        assert step.trials == 1 or case is NC
    assert inside >= 50


@pytest.mark.parametrize("name", ["CG", "MR", "GM"])
def test_strong_convexity_takes_the_place_of_sigma(name):
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(100):
        mu, rho = rng.uniform(0.1, 1), rng.uniform(0, 0.45)
        f = Waves(rng, d=int(rng.integers(1, 6)), low=0, high=2, weight=0.5)
        dip = np.abs(f.a) @ np.linalg.norm(f.B, axis=1) ** 2
        f.Q += (mu + dip) * np.eye(f.Q.shape[0])
        x, v = rng.standard_normal((2, f.Q.shape[0]))
        radius = 6 * mu**2 * (0.5 - rho) / f.L2
        f.tilted(x, radius * rng.uniform(0.2, 1) * v / np.linalg.norm(v))
        inside += np.linalg.norm(f.g(x)) <= radius
        method = ScaledGradient(scaling=name, sigma=0, line_search=Armijo(rho=rho))
        _, step, _ = method.step(f.point(x), method.init(f.point(x)))
        assert (step.curvature, step.step_size, step.trials) == (SPC, 1, 1)
    assert inside >= 50


def worst(case, sigma, rho, s_nc, L2, times):
    """-|g| x + h x^2/2 + L2 x^3/6 at 0, |g| being `times` the radius, h least for the case."""
    if case is NC:
        g, h = times * 6 * (1 - rho) / (L2 * s_nc**2), -1e-9
    else:
        g, h = (
            times * 6 * sigma**2 * (0.5 - rho) / L2,
            sigma * (1 + (1e-9 if case is SPC else -1e-9)),
        )
    return Problem("worst", lambda x: (-g * x + h * x**2 / 2 + L2 * x**3 / 6).sum(), torch.zeros(1))


@pytest.mark.parametrize("case", [SPC, LPC, NC])
@pytest.mark.parametrize("rho", [0.0, 1e-4, 0.1, 0.45])
@pytest.mark.parametrize("sigma", [0.1, 1.0])
def test_the_radius_is_sharp(case, rho, sigma):
    s_nc, L2 = 2.0, 3.0
    search = Armijo(rho=rho, theta=0.9)
    method = ScaledGradient(sigma=sigma, s_lpc="1/sigma", s_nc=s_nc, line_search=search)
    for times in (0.5, 0.999):
        _, step, _ = first_step(worst(case, sigma, rho, s_nc, L2, times), method)
        assert step.curvature is case
        assert step.step_size >= 1
    _, step, _ = first_step(worst(case, sigma, rho, s_nc, L2, 1.001), method)
    assert (step.curvature, step.step_size, step.trials) == (case, 0.9, 2)

"""Property 9: <g(x+p),p> >= eta <g,p> for SPC steps once |g| is small enough."""

import numpy as np
import pytest
import torch
from testbed import Problem, Waves, direction, first_step

from firstish import ScaledGradient
from firstish.scaling import Curvature


def in_region(name, n=120):
    rng = np.random.default_rng(9)
    while n:
        f = Waves(rng, d=int(rng.integers(2, 7)), low=-2, high=3)
        x = rng.standard_normal(f.Q.shape[0])
        sigma = rng.uniform(0.1, 1)
        v = direction(rng, f.H(x), sigma, np.inf)
        if v is None:
            continue
        L1 = np.linalg.norm(f.H(x) @ v)
        # Away from the least eta that is promised, or the radius would be nothing but rounding.
        floor = 0.0 if name == "CG" else 1 - sigma**2 / L1**2
        eta = floor + rng.uniform(0.05, 0.95) * (1 - floor)
        radius = 2 * sigma**2 / f.L2 * (eta - floor)
        f.tilted(x, radius * rng.uniform(0.2, 1) * v)
        n -= 1
        yield f, x, radius, sigma, eta


@pytest.mark.parametrize("name", ["CG", "MR", "GM"])
def test_curvature_condition_holds_inside_the_radius(name):
    inside = 0
    for f, x, radius, sigma, eta in in_region(name):
        method = ScaledGradient(scaling=name, sigma=sigma)
        new, step, _ = method.step(f.point(x), method.init(f.point(x)))
        assert (step.curvature, step.step_size) == (Curvature.SPC, 1)
        g, p = f.g(x), -step.scale * f.g(x)
        inside += np.linalg.norm(g) <= radius
        # The gradient of f loses digits where it is small against its terms.
        rounding = 1e-13 * (1 + np.linalg.norm(f.c)) * np.linalg.norm(p)
        assert f.g(x + p) @ p >= eta * (g @ p) - rounding
        assert step.slope_ratio <= eta + rounding / abs(g @ p)
        assert step.slope_ratio == pytest.approx(
            f.g(new.x.numpy()) @ p / (g @ p), rel=1e-6, abs=1e-9
        )
    assert inside >= 50


@pytest.mark.parametrize("eta", [0.1, 0.5, 0.9])
def test_the_radius_of_cg_is_sharp(eta):
    sigma, L2 = 0.5, 3.0
    h = sigma * (1 + 1e-9)
    method = ScaledGradient(scaling="CG", sigma=sigma)
    for times, holds in ((0.999, True), (1.001, False)):
        g = times * 2 * sigma**2 * eta / L2
        f = Problem(
            "worst", lambda x, g=g: (-g * x + h * x**2 / 2 - L2 * x**3 / 6).sum(), torch.zeros(1)
        )
        _, step, _ = first_step(f, method)
        assert (step.curvature, step.step_size) == (Curvature.SPC, 1)
        assert (step.slope_ratio <= eta) is holds

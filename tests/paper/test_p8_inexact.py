"""Property 8: with an inexact Hessian H~, |<g,(H-H~)g>| <= D gg, the bounds and unit steps hold."""

import numpy as np
import pytest
import torch
from testbed import DensePoint, Waves, direction

from firstish import Armijo, ScaledGradient
from firstish.scaling import Curvature

SPC, LPC, NC = Curvature


def inexact(rng, H, error):
    """H~ with |H - H~| <= error: the worst, a multiple of the identity, or any."""
    if rng.random() < 0.5:
        return H + rng.choice([-1, 1]) * error * np.eye(len(H))
    E = rng.standard_normal(H.shape)
    E = E + E.T
    return H + error * E / np.linalg.norm(E, 2)


def in_region(case, n=120):
    rng = np.random.default_rng([8, case is SPC, case is LPC])
    while n:
        f = Waves(rng, d=int(rng.integers(2, 7)), low=-2, high=3)
        x = rng.standard_normal(f.Q.shape[0])
        sigma, rho, s_nc = rng.uniform(0.1, 1), rng.uniform(0, 0.45), rng.choice([0.3, 1.0, 3.0])
        error = rng.uniform(0.05, 0.9) * 2 * min(sigma * (0.5 - rho), (1 - rho) / s_nc)
        H = inexact(rng, f.H(x), error)
        low, high = {SPC: (sigma, np.inf), LPC: (0, sigma), NC: (-np.inf, 0)}[case]
        v = direction(rng, H, low, high)
        if v is None:
            continue
        positive = sigma**2 * (0.5 - rho - error / (2 * sigma)) / f.L2
        negative = (1 - rho - s_nc * error / 2) / (f.L2 * s_nc**2)
        radius = 6 * min(positive, negative)
        f.tilted(x, radius * rng.uniform(0.2, 1) * v)
        n -= 1
        options = {"sigma": sigma, "s_nc": float(s_nc), "line_search": Armijo(rho=rho)}
        yield f, x, H, error, radius, options


@pytest.mark.parametrize("case", [SPC, LPC, NC])
@pytest.mark.parametrize("name", ["CG", "MR", "GM"])
def test_bounds_descent_and_unit_steps_hold_for_an_inexact_hessian(case, name):
    inside = 0
    for f, x, H, error, radius, options in in_region(case):
        point = DensePoint(torch.from_numpy(x), f.f, f.g, lambda _, H=H: H)
        method = ScaledGradient(scaling=name, s_lpc="1/sigma", **options)
        _, step, _ = method.step(point, method.init(point))
        g, sigma = f.g(x), options["sigma"]
        assert step.curvature is case
        inside += abs(g @ (f.H(x) - H) @ g) <= error * (g @ g) and np.linalg.norm(g) <= radius
        assert step.step_size == 1 or (case is NC and step.step_size > 1)

        p = -step.scale * g
        first, second = g @ p, p @ H @ p
        L1 = np.linalg.norm(H @ g) / np.linalg.norm(g)
        assert first < 0
        assert first + second <= 1e-12 * (abs(first) + L1 * (p @ p))
        if case is SPC:
            least = {"CG": 1 / L1, "GM": 1 / L1, "MR": sigma / L1**2}[name]
            assert least * (1 - 1e-12) <= step.scale <= 1 / sigma
    assert inside >= 50


def test_the_case_is_decided_by_the_inexact_hessian_and_armijo_by_the_exact_f():
    # H~ says 0.5 where the curvature is 2: the scale 2 overshoots, and the exact f refuses it.
    point = DensePoint(
        torch.tensor([1.0]), lambda x: float(x @ x), lambda x: 2 * x, lambda x: np.array([[0.5]])
    )
    new, step, _ = ScaledGradient().step(point, ScaledGradient().init(point))
    assert (step.curvature, step.scale) == (SPC, 2.0)
    assert (step.step_size, step.trials) == (0.25, 3)
    assert float(new.x) == 0.0

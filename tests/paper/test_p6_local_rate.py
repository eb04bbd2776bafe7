"""Property 6: near a minimiser alpha = 1, f - f* falls linearly, and so does |g| with MR."""

import numpy as np
import pytest
import torch
from testbed import DensePoint, Waves

from firstish import Armijo, ScaledGradient
from firstish.scaling import Curvature


class Wells:
    """f = sum_i w_i (z_i^2 - 1)^2 / 4, z = Rx rotated: nonconvex, with f* = 0 at z = 1.

    Within `reach` of z = 1 the constants below are exact.
    """

    reach = 0.1

    def __init__(self, rng, d):
        self.R, _ = np.linalg.qr(rng.standard_normal((d, d)))
        self.w = rng.uniform(0.5, 3, d)
        self.mu = self.w.min() * (3 * (1 - self.reach) ** 2 - 1)
        self.M = self.w.max() * (3 * (1 + self.reach) ** 2 - 1)
        self.L2 = 6 * self.w.max() * (1 + self.reach)

    def f(self, x):
        return self.w @ ((self.R @ x) ** 2 - 1) ** 2 / 4

    def g(self, x):
        z = self.R @ x
        return self.R.T @ (self.w * (z**2 - 1) * z)

    def H(self, x):
        return self.R.T @ np.diag(self.w * (3 * (self.R @ x) ** 2 - 1)) @ self.R

    def near(self, x):
        return np.linalg.norm(self.R @ x - 1) <= self.reach

    def start(self, rng, radius):
        """A point with |g| <= radius, near enough for the step not to leave the region."""
        v = rng.standard_normal(self.w.size)
        t = self.reach / 2
        while np.linalg.norm(self.g(x := self.R.T @ (1 + t * v / np.linalg.norm(v)))) > radius:
            t *= 0.9
        return x

    def point(self, x):
        return DensePoint(torch.from_numpy(x), self.f, self.g, self.H)


def iterate(f, x, method, steps):
    point = f.point(x)
    state = method.init(point)
    for _ in range(steps):
        new, step, state = method.step(point, state)
        yield point, step, new
        point = new


@pytest.mark.parametrize("scaling", ["CG", "MR", "GM", "CGMR"])
@pytest.mark.parametrize("limited", [False, True])
def test_unit_steps_and_linear_decrease_near_a_minimiser(scaling, limited):
    rng = np.random.default_rng(6)
    inside, cases = 0, set()
    for _ in range(30):
        f, rho = Wells(rng, d=int(rng.integers(2, 6))), rng.uniform(0.05, 0.4)
        sigma = rng.uniform(f.mu, f.M) if limited else 0.0
        method = ScaledGradient(
            scaling=scaling,
            sigma=sigma,
            s_lpc="1/sigma" if limited else None,
            line_search=Armijo(rho=rho),
        )
        radius = 6 * (sigma or f.mu) ** 2 * (0.5 - rho) / f.L2
        for point, step, new in iterate(f, f.start(rng, radius), method, steps=12):
            if point.value < 1e-18:
                break  # z^2 - 1 has no digits left
            assert f.near(point.x.numpy())
            inside += np.linalg.norm(f.g(point.x.numpy())) <= radius
            cases.add(step.curvature)
            assert (step.step_size, step.trials) == (1, 1)
            assert new.value <= (1 - 2 * rho * f.mu * step.scale) * point.value * (1 + 1e-9)
    assert inside >= 50
    assert cases == ({Curvature.SPC, Curvature.LPC} if limited else {Curvature.SPC})


def test_mr_gradient_norm_falls_at_the_promised_rate():
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(20):
        f = Wells(rng, d=int(rng.integers(2, 6)))
        nu = (f.mu / f.M) ** 2
        radius = 2 * f.mu**2 * (1 - np.sqrt(1 - nu)) / f.L2
        rate = 1 / (2 - np.sqrt(1 - nu))
        x = f.start(rng, 0.5 * radius)
        first = np.linalg.norm(f.g(x))
        method = ScaledGradient(scaling="MR", sigma=0)
        for k, (point, step, new) in enumerate(iterate(f, x, method, steps=12)):
            if point.grad_norm < 1e-9:
                break
            inside += np.linalg.norm(f.g(point.x.numpy())) < radius and f.near(point.x.numpy())
            assert step.step_size == 1
            assert new.grad_norm < point.grad_norm
            assert new.grad_norm <= radius / (radius - first) * rate ** (k + 1) * first
    assert inside >= 50


def test_mr_gradient_recursion_holds_at_every_unit_step():
    rng = np.random.default_rng(8)
    unit_steps, sharp = 0, 0.0
    for _ in range(40):
        f = Waves(rng, d=int(rng.integers(1, 6)), low=0.5, high=4)
        x = 3 * rng.standard_normal(f.Q.shape[0])
        method = ScaledGradient(scaling="MR", sigma=0)
        for point, step, new in iterate(f, x, method, steps=6):
            if step.curvature is not Curvature.SPC or step.step_size != 1 or new.grad_norm < 1e-9:
                continue
            unit_steps += 1
            g, H = f.g(point.x.numpy()), f.H(point.x.numpy())
            p = new.x.numpy() - point.x.numpy()
            sine = np.linalg.norm(g + H @ p) / np.linalg.norm(g)  # MR's residual, by its definition
            assert np.sqrt(max(0, 1 - step.cosine**2)) == pytest.approx(sine, abs=1e-6)
            bound = f.L2 * (p @ p) / 2 + sine * np.linalg.norm(g)
            assert np.linalg.norm(f.g(new.x.numpy())) <= bound * (1 + 1e-9)
            sharp = max(sharp, np.linalg.norm(f.g(new.x.numpy())) / bound)
    assert unit_steps >= 50
    assert sharp > 0.9  # the bound is met closely somewhere, so a wrong one would show

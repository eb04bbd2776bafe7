"""The set of problems: the split, the quadratics and the learning problems."""

import hashlib

import numpy as np
import pytest
import torch
from race.catalogue import PROBLEMS, QUICK
from race.learning import LEARNING
from race.learning.making import glorot, shapes, split
from race.learning.paper import EMBEDDED, SIZES, missing
from race.learning.physics import network
from race.problem import held_out
from race.quadratics import CONDITIONS, QUADRATICS, SPECTRA

HERE = [p.name for p in LEARNING if p.name in EMBEDDED or p.name not in SIZES]


def test_there_are_enough_problems_and_their_names_differ():
    assert len(PROBLEMS) >= 75
    assert len(QUADRATICS) == len(SPECTRA) * len(CONDITIONS) == 20
    assert len(PROBLEMS) == sum(len(names) for names in families().values())


def families():
    found = {}
    for problem in PROBLEMS.values():
        found.setdefault(problem.family, []).append(problem.name)
    return found


def test_the_split_hangs_on_the_names_alone():
    for name in PROBLEMS:
        digest = hashlib.sha256(b"2:" + name.encode("utf-8")).digest()  # the second draw
        assert held_out(name) == (int.from_bytes(digest, "big") % 3 == 0)


def test_about_a_third_of_each_family_is_held_out():
    assert sum(map(held_out, PROBLEMS)) == 40
    for names in families().values():
        assert 0.25 <= sum(map(held_out, names)) / len(names) <= 0.45


def test_the_quick_race_touches_no_held_out_problem():
    assert set(QUICK) <= PROBLEMS.keys()
    assert not any(map(held_out, QUICK))


@pytest.mark.parametrize("name", [p.name for p in QUADRATICS])
def test_a_quadratic_has_the_spectrum_it_names(name):
    instance = PROBLEMS[name].build()
    n = instance.x0.numel()
    point = instance.objective.at(instance.x0)
    run = instance.objective.evaluate(instance.x0, True)
    (g,) = torch.autograd.grad(run.loss, run.leaves, create_graph=True)
    (H,) = torch.autograd.grad(g, run.leaves, torch.eye(n), is_grads_batched=True)
    eigenvalues = np.linalg.eigvalsh(H.numpy())
    condition = float(name.rsplit("-", 1)[1])
    assert eigenvalues[-1] == pytest.approx(condition, rel=1e-9)
    assert eigenvalues[0] == pytest.approx(1, abs=1e-13 * condition + 1e-9)
    assert instance.mu == 1
    assert instance.lipschitz == condition
    # One Newton step ends at the minimum, whose value is the reference.
    step = torch.linalg.solve(H, point.grad)
    least = instance.objective.at(instance.x0 - step).value
    assert least == pytest.approx(PROBLEMS[name].reference, abs=1e-12 * point.value)
    # Rotated: no row of H is nearly diagonal.
    off = H - torch.diag(H.diagonal())
    assert (off.norm(dim=1) > 1e-3 * H.diagonal()).all()


@pytest.mark.parametrize("name", HERE)
def test_a_learning_problem_is_twice_differentiable_and_always_the_same(name):
    instance, again = PROBLEMS[name].build(), PROBLEMS[name].build()
    assert torch.equal(instance.x0, again.x0)
    point = instance.objective.at(instance.x0)
    assert point.value == again.objective.at(again.x0).value
    v = torch.randn(instance.x0.numel())
    v /= v.norm()
    h = 1e-5
    ahead, behind = (instance.objective.at(instance.x0 + s * v) for s in (h, -h))
    slope = (ahead.value - behind.value) / (2 * h)
    assert slope == pytest.approx(float(point.grad @ v), abs=1e-6 * (1 + point.grad_norm))
    Hv = point.hvp(v).vector
    difference = (ahead.grad - behind.grad) / (2 * h)
    assert torch.allclose(Hv, difference, atol=1e-5 * (1 + float(Hv.norm())))


def test_a_physics_networks_derivatives_are_autograds():
    widths = (2, 7, 5, 1)
    parts = split(glorot(1, widths), shapes(widths))
    points = torch.randn(6, 2).requires_grad_()
    W1, b1, W2, b2, W3, b3 = parts
    u = (torch.tanh(torch.tanh(points @ W1.T + b1) @ W2.T + b2) @ W3.T + b3)[:, 0]
    (g,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    second = [torch.autograd.grad(g[:, k].sum(), points, retain_graph=True)[0] for k in (0, 1)]
    expected = torch.stack([u, g[:, 0], g[:, 1], second[0][:, 0], second[1][:, 1]])
    assert torch.allclose(network(parts, points.detach()), expected, atol=1e-14)


def test_problems_without_their_data_are_known(monkeypatch, tmp_path):
    monkeypatch.setenv("FIRSTISH_DATA", str(tmp_path))
    assert not missing("mushrooms")
    monkeypatch.setenv("FIRSTISH_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setattr("race.learning.paper.__file__", str(tmp_path / "a/b/c/d/e.py"))
    assert missing("mushrooms")
    assert not missing("digits-mlp")
    assert not missing("rosenbrock")

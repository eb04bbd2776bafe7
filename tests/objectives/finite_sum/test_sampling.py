"""The sub-sampled Hessian: unbiased, drawn anew, charged by its share, and as close as promised."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian
from torch.nn import functional as F

import firstish
from firstish import FiniteSum, HessianSample, ScaledGradient, estimate_max_lipschitz, theory
from firstish.objectives.finite_sum.sampling import draw, sample_size

# The paper's method is what these tests are about, not the default one.
minimize = partial(firstish.minimize, method="CGMR")

ROWS = 400


@pytest.fixture
def data():
    torch.manual_seed(4)
    return torch.randn(ROWS, 5, dtype=torch.float64), torch.randint(3, (ROWS,))


def net():
    torch.manual_seed(5)
    return nn.Linear(5, 3).double()


def row_hessians(data, x):
    """Every row's Hessian, dense."""

    def loss(v, i):
        weight, bias = v[:15].view(3, 5), v[15:]
        return F.cross_entropy((weight @ data[0][i] + bias)[None], data[1][i : i + 1])

    return torch.stack([hessian(lambda v, i=i: loss(v, i), x) for i in range(ROWS)])


def test_sizes():
    assert sample_size(30, 100) == 30
    assert sample_size(300, 100) == 100
    assert sample_size(0.25, 101) == 26
    asked = HessianSample(error=0.1, failure_probability=0.01, max_lipschitz=2.0)
    root = 2.0 * (1 + math.sqrt(8 * math.log(100))) / 0.1
    assert sample_size(asked, 10**9) == math.ceil(root**2)
    assert sample_size(asked, 100) == 100


def test_a_sample_as_large_as_the_data_is_the_exact_product(data):
    for sample in (ROWS, ROWS + 5, 1.0):
        objective = FiniteSum(net(), F.cross_entropy, data, hessian_sample=sample)
        assert objective.sample_size is None
        assert objective.at(objective.initial()).product_fraction == 1


def test_the_draw_is_seeded_fresh_and_with_replacement():
    one = draw(0, 1.0, 2.0, 1000, 50)
    assert torch.equal(one, draw(0, 1.0, 2.0, 1000, 50))
    assert not torch.equal(one, draw(1, 1.0, 2.0, 1000, 50))
    assert not torch.equal(one, draw(0, math.nextafter(1.0, 2.0), 2.0, 1000, 50))
    assert not torch.equal(one, draw(0, 1.0, math.nextafter(2.0, 3.0), 1000, 50))
    counts = torch.bincount(one, minlength=50)
    assert counts.min() > 0
    assert counts.max() > 1  # with replacement
    # chi-square of 49 degrees of freedom: beyond 100 by chance once in 40,000 draws
    assert ((counts - 20.0) ** 2 / 20.0).sum() < 100


def test_the_product_is_the_mean_over_the_drawn_rows(data):
    decay, x = 0.3, net()
    objective = FiniteSum(
        x, F.cross_entropy, data, chunk_size=7, hessian_sample=40, weight_decay=decay, seed=3
    )
    x = objective.initial()
    point = objective.at(x)
    g = point.grad
    chosen = draw(3, point.value, point.grad_norm, 40, ROWS)
    H = row_hessians(data, x)[chosen].mean(0) + decay * torch.eye(len(x))
    torch.testing.assert_close(point.hvp(g).vector, H @ g, rtol=1e-12, atol=1e-15)
    assert objective.meter.oracle_calls == pytest.approx(2 + 2 * 40 / ROWS)


def test_difference_products_on_the_sample(data):
    exact, differ = (
        FiniteSum(net(), F.cross_entropy, data, chunk_size=50, hessian_sample=0.2, product=product)
        for product in ("double-backward", "difference")
    )
    x = exact.initial()
    a, b = exact.at(x), differ.at(x)
    Ha, Hb = a.hvp(a.grad).vector, b.hvp(b.grad).vector
    assert (Ha - Hb).norm() <= 1e-6 * Ha.norm()
    assert differ.meter.oracle_calls == exact.meter.oracle_calls == pytest.approx(2.4)


def test_class_weights_are_sampled_without_bias(data):
    weight = torch.tensor([1.0, 5.0, 0.2])
    loss_fn = nn.CrossEntropyLoss(weight)
    whole = FiniteSum(net(), loss_fn, data)
    x = whole.initial()
    point = whole.at(x)
    g = point.grad
    exact = point.hvp(g).vector
    total = torch.zeros_like(exact)
    for seed in range(200):
        one = FiniteSum(net(), loss_fn, data, hessian_sample=40, seed=seed, check=False)
        total += one.at(x).hvp(g).vector
    spread = exact.norm()
    assert (total / 200 - exact).norm() <= 0.1 * spread


def test_the_lemma_holds_at_least_as_often_as_promised(data):
    """|(H~ - H)g| <= D |g| in at least 1 - delta of many draws, at the lemma's own sample size."""
    whole = FiniteSum(net(), F.cross_entropy, data)
    x = whole.initial()
    point = whole.at(x)
    g, exact = point.grad, point.hvp(point.grad).vector
    L1max = estimate_max_lipschitz(whole, x, rows=ROWS)
    H = row_hessians(data, x)
    assert L1max == pytest.approx(float((H @ g).norm(dim=1).max() / g.norm()), rel=1e-12)
    delta, draws = 0.2, 300
    for share in (0.5, 0.9):  # sample sizes from a fifth to most of the rows
        D = L1max * (1 + math.sqrt(8 * math.log(1 / delta))) / math.sqrt(share * ROWS)
        asked = HessianSample(error=D, failure_probability=delta, max_lipschitz=L1max)
        size = sample_size(asked, ROWS)
        assert size == pytest.approx(share * ROWS, abs=1)
        Hg = H @ g
        kept = 0
        for seed in range(draws):
            chosen = draw(seed, point.value, point.grad_norm, size, ROWS)
            kept += bool((Hg[chosen].mean(0) - exact).norm() <= D * point.grad_norm)
        assert kept >= (1 - delta) * draws


def test_estimate_on_a_few_rows_is_at_most_the_largest(data):
    objective = FiniteSum(net(), F.cross_entropy, data)
    few, all_ = (estimate_max_lipschitz(objective, rows=rows) for rows in (20, ROWS))
    assert 0 < few <= all_
    with pytest.raises(ValueError, match="at least 1, got 0"):
        estimate_max_lipschitz(objective, rows=0)


def test_a_run_on_samples_converges_and_is_charged_by_the_share(data):
    exact = FiniteSum(net(), F.cross_entropy, data, weight_decay=0.1)
    sampled = FiniteSum(net(), F.cross_entropy, data, weight_decay=0.1, hessian_sample=0.1)
    a, b = (minimize(o, o.initial(), gtol=1e-6) for o in (exact, sampled))
    assert a.success
    assert b.success
    assert b.value == pytest.approx(a.value, rel=1e-9)
    costs = {
        round(two.oracle_calls - one.oracle_calls - (one.trials - 1), 9)
        for one, two in zip(b.history[:-1], b.history[1:], strict=True)
    }
    assert costs == {2.2}
    assert minimize(sampled, sampled.initial(), gtol=1e-6).value == b.value


def test_unit_steps_near_a_minimiser_with_the_error_allowed(data):
    """Property 8: with a sample as large as the error allowed asks for, alpha = 1 is accepted."""
    decay = 1.0  # mu; the sampled part of the Hessian is small against it
    rho = 1e-4
    objective = FiniteSum(net(), F.cross_entropy, data, weight_decay=decay)
    L1max = estimate_max_lipschitz(objective, rows=ROWS)
    allowed = theory.hessian_error_allowed(sigma=decay, rho=rho)
    asked = HessianSample(error=allowed / 2, failure_probability=0.1, max_lipschitz=2 * L1max)
    sampled = FiniteSum(
        net(), F.cross_entropy, data, weight_decay=decay, hessian_sample=min(200, asked.size(ROWS))
    )
    start = minimize(objective, objective.initial(), gtol=1e-3).x
    result = minimize(sampled, start, method=ScaledGradient(sigma=decay / 2), gtol=1e-9)
    assert result.success
    steps = [row for row in result.history if row.trials is not None]
    assert len(steps) >= 5
    assert {row.step_size for row in steps} == {1.0}


def test_a_process_whose_rows_were_not_drawn_evaluates_nothing(data):
    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return ROWS

        def __getitem__(self, i):
            return data[0][i], data[1][i]

    for rows in (data, Pairs()):
        objective = FiniteSum(net(), F.cross_entropy, rows, hessian_sample=3)
        assert len(list(objective.sample(1.0, 1.0))) == 1
        objective._offset = ROWS  # as if all that is drawn were another process's
        assert list(objective.sample(1.0, 1.0)) == []

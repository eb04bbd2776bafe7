"""A linear model is the same f as autograd's, and its optimum is scikit-learn's."""

import numpy as np
import pytest
import torch
from linear_cases import CASES, SETTINGS, Setting, make
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from tolerances import summed

import firstish
from firstish import LinearModel, ScaledGradient, baselines, families, minimize
from firstish.scaling import Angle, scale

EVERY = pytest.mark.parametrize("case", CASES)
SURROUNDED = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)


def points(size, count=50):
    """Random points at several distances from 0."""
    rng = np.random.RandomState(3)
    scales = np.resize([0.1, 0.3, 1.0, 2.0], count)
    return [torch.from_numpy(s * rng.randn(size)) for s in scales]


def close(mine, theirs, share=1e-13):
    """Relative to the length of the vector."""
    assert float((mine - theirs).norm()) <= share * float(theirs.norm())


@EVERY
@SURROUNDED
def test_value_gradient_and_product_are_autograds(case, setting):
    made = make(case, setting)
    rng = np.random.RandomState(4)
    for x in points(made.size):
        mine, theirs = made.linear.at(x), made.generic.at(x)
        assert mine.value == pytest.approx(theirs.value, rel=1e-13)
        close(mine.grad, theirs.grad)
        close(mine.hvp(mine.grad).vector, theirs.hvp(theirs.grad).vector, 2e-13)
        v = torch.from_numpy(rng.randn(made.size))
        wanted = theirs.hvp(v).vector
        close(mine.hvp(v).vector, wanted)
        assert made.linear.at(x).curvature(v) == pytest.approx(float(v @ wanted), rel=1e-12)


@EVERY
@SURROUNDED
def test_scores_carried_along_are_those_of_the_new_point(case, setting):
    made = make(case, setting)
    for x in points(made.size, 8):
        point = made.linear.at(x)
        for p, alpha in ((point.grad, -0.3 / point.grad_norm), (torch.ones_like(x), 0.1)):
            trial, fresh = point.along(p, alpha), made.generic.at(x + alpha * p)
            assert torch.equal(trial.x, x.add(p, alpha=alpha))
            assert trial.value == pytest.approx(fresh.value, rel=1e-13)
            close(trial.grad, fresh.grad, 1e-12)


@EVERY
def test_float32_is_float64_to_its_precision(case):
    setting = SETTINGS["all"]
    narrow, wide = make(case, setting, torch.float32), make(case, setting)
    for x in points(wide.size, 8):
        mine, exact = narrow.linear.at(x.float()), wide.linear.at(x.float().double())
        assert mine.grad.dtype == torch.float32
        assert mine.value == pytest.approx(exact.value, rel=1e-5, abs=1e-5)
        close(mine.grad.double(), exact.grad, 1e-4)
        product = mine.hvp(mine.grad)
        close(product.vector.double(), exact.hvp(mine.grad.double()).vector, 1e-4)
        assert product.relative_error > 0


def run(objective, x0, method, **limits):
    path = []
    result = minimize(
        objective,
        x0,
        method=method,
        gtol=0.0,
        callback=lambda progress: path.append(progress.x.clone()),
        **limits,
    )
    return result, path


@EVERY
@SURROUNDED
@pytest.mark.parametrize("scaling", ["CGMR", "MR", "GM"])
def test_five_steps_are_those_on_autograds_f(case, setting, scaling):
    made = make(case, setting)
    x0, method = made.linear.initial(), ScaledGradient(scaling=scaling)
    mine, my_path = run(made.linear, x0, method, max_iterations=5)
    theirs, their_path = run(made.generic, x0, method, max_iterations=5)
    for x, y in zip(my_path, their_path, strict=True):
        close(x, y, 1e-12)
    assert mine.oracle_calls == theirs.oracle_calls


@EVERY
@pytest.mark.parametrize("sigma", [1e-6, 0.3])
def test_fifty_steps_meet_the_same_cases_and_step_sizes(case, sigma):
    made = make(case, Setting(weight_decay=1e-4), condition=30.0)
    method = ScaledGradient(sigma=sigma)
    mine, _ = run(made.linear, made.linear.initial(), method, max_iterations=50)
    theirs, _ = run(made.generic, made.linear.initial(), method, max_iterations=50)
    steps = [
        [(row.curvature, row.scaling, row.step_size, row.trials) for row in result.history[:-1]]
        for result in (mine, theirs)
    ]
    assert len(steps[0]) == 50
    assert steps[0] == steps[1]


def test_rows_leave_out_what_the_cg_scale_did_not_need():
    made = make("pinned", SETTINGS["decay"])
    mine, _ = run(made.linear, made.linear.initial(), ScaledGradient(), max_iterations=6)
    theirs, _ = run(made.generic, made.linear.initial(), ScaledGradient(), max_iterations=6)
    for a, b in zip(mine.history[:-1], theirs.history[:-1], strict=True):
        assert a.descent_margin == pytest.approx(b.descent_margin, rel=1e-6, abs=1e-12)
        assert a.predicted_decrease == pytest.approx(b.predicted_decrease, rel=1e-8)
        assert (a.cosine is None, a.local_lipschitz is None) == (a.scaling == "CG",) * 2
        if a.scaling == "MR":
            assert a.cosine == pytest.approx(b.cosine, rel=1e-9)
            assert a.local_lipschitz == pytest.approx(b.local_lipschitz, rel=1e-9)


def test_a_partial_angle_gives_the_cg_scale_and_refuses_the_others():
    made = make("logistic", SETTINGS["decay"])
    point = made.linear.at(points(made.size, 1)[0])
    part, whole = point.angle(rayleigh_only=True), point.angle()
    assert (part.partial, whole.partial) == (True, False)
    assert scale("CG", part, 0.0) == pytest.approx(scale("CG", whole, 0.0), rel=1e-12)
    assert part.rayleigh == pytest.approx(whole.rayleigh, rel=1e-12)
    assert point.angle(rayleigh_only=True) == whole  # |Hg| is known now
    for name in ("MR", "GM"):
        with pytest.raises(ValueError, match=rf"scale\('{name}', ...\)` needs \|Hg\|"):
            scale(name, Angle(1.0, 1.0, 1.0, 0.0, partial=True), 0.0)


@pytest.mark.parametrize("size", [1e-200, 1e150])
def test_the_angle_does_not_overflow(size):
    A = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    objective = LinearModel(A, torch.full((2,), size), families.LeastSquares())
    part = objective.at(torch.zeros(2)).angle(rayleigh_only=True)
    # g = -(1, 2) size / 2 and H = diag(1, 4) / 2
    assert part.rayleigh == pytest.approx((1 + 16) / 5 / 2, rel=1e-12)


METHODS = [
    baselines.FixedStep(step_size=0.05),
    baselines.HeavyBall(step_size=0.05),
    baselines.Nesterov(step_size=0.05),
    baselines.Adam(step_size=0.05),
    baselines.LineSearch(),
    baselines.PoNo(),
    baselines.LBFGS(),
    baselines.ABBmin(),
    baselines.AdGD(step_size=1e-2),  # from 1e-10, rounding would be taken for curvature
    baselines.CDAT(),
    ScaledGradient(scaling="CGMRGM"),
]


@pytest.mark.parametrize("case", ["logistic", "pinned", "poisson"])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_every_method_takes_the_steps_it_takes_on_autograds_f(case, method):
    made = make(case, SETTINGS["sparse"])
    mine, my_path = run(made.linear, made.linear.initial(), method, max_iterations=6)
    theirs, their_path = run(made.generic, made.linear.initial(), method, max_iterations=6)
    assert len(my_path) == 6
    for x, y in zip(my_path, their_path, strict=True):
        close(x, y, 1e-10)
    assert mine.oracle_calls == theirs.oracle_calls


def solved(objective):
    method = ScaledGradient(sigma=0.0)
    result = minimize(
        objective, objective.initial(), method=method, gtol=1e-10, max_oracle_calls=100_000
    )
    assert result.success, result.message
    return result.x.numpy()


@pytest.mark.parametrize("weighted", [False, True])
def test_the_logistic_optimum_is_scikit_learns(weighted):
    made = make("logistic", Setting(weighted=weighted, intercept=True))
    w = made.weights
    total = float(len(made.A) if w is None else w.sum())
    objective = LinearModel(
        made.A,
        made.targets,
        families.Logistic(),
        sample_weight=w,
        weight_decay=1 / (0.5 * total),
        intercept=True,
        penalise_intercept=False,
    )
    model = LogisticRegression(C=0.5, tol=1e-13, solver="newton-cholesky")
    model.fit(made.A.numpy(), made.targets.numpy(), None if w is None else w.numpy())
    found = solved(objective)
    np.testing.assert_allclose(found[:-1], model.coef_[0], rtol=1e-7)
    np.testing.assert_allclose(found[-1:], model.intercept_, rtol=1e-7)


def test_the_multinomial_optimum_is_scikit_learns():
    made = make("multinomial", Setting(intercept=True))
    family = families.Multinomial()
    objective = LinearModel(
        made.A, made.targets, family, weight_decay=1 / len(made.A), intercept=True
    )
    ones = np.ones((len(made.A), 1))
    model = LogisticRegression(C=1.0, tol=1e-13, solver="newton-cholesky", fit_intercept=False)
    model.fit(np.hstack([made.A.numpy(), ones]), made.targets.numpy())
    np.testing.assert_allclose(solved(objective).reshape(4, -1), model.coef_, rtol=1e-6, atol=1e-9)


def test_the_poisson_optimum_is_scikit_learns():
    made = make("poisson", Setting(intercept=True))
    objective = LinearModel(
        made.A,
        made.targets,
        families.Poisson(),
        weight_decay=0.2,
        intercept=True,
        penalise_intercept=False,
    )
    model = PoissonRegressor(alpha=0.2, tol=1e-13, solver="newton-cholesky")
    model.fit(made.A.numpy(), made.targets.numpy())
    found = solved(objective)
    np.testing.assert_allclose(found[:-1], model.coef_, rtol=1e-7)
    np.testing.assert_allclose(found[-1], model.intercept_, rtol=1e-7)


def test_the_least_squares_optimum_is_scikit_learns():
    made = make("squares", Setting(intercept=True))
    objective = LinearModel(
        made.A.to_sparse(),
        made.targets,
        families.LeastSquares(),
        weight_decay=3.0 / len(made.A),
        intercept=True,
        penalise_intercept=False,
    )
    model = Ridge(alpha=3.0).fit(made.A.numpy(), made.targets.numpy())
    found = solved(objective)
    np.testing.assert_allclose(found[:-1], model.coef_, rtol=1e-8)
    np.testing.assert_allclose(found[-1], model.intercept_, rtol=1e-8)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
@pytest.mark.filterwarnings("ignore:Sparse CS")  # what the user's own conversion says
def test_any_sparse_layout_will_do(layout):
    A = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    turned = {"coo": A.to_sparse, "csr": A.to_sparse_csr, "csc": A.to_sparse_csc}[layout]()
    y = torch.tensor([1.0, 2.0, 3.0])
    x = torch.tensor([0.5, -1.0])
    dense, sparse = (LinearModel(B, y, families.LeastSquares()).at(x) for B in (A, turned))
    assert sparse.value == pytest.approx(dense.value, rel=summed(3))
    torch.testing.assert_close(sparse.grad, dense.grad)


def test_a_start_in_the_shape_of_the_weights_comes_back_in_it():
    made = make("pinned", SETTINGS["decay"])
    result = minimize(made.linear, torch.zeros(3, 6), max_iterations=3)
    assert result.x.shape == (3, 6)


def test_it_is_exported_with_its_families():
    assert firstish.LinearModel is LinearModel
    assert {"Logistic", "Multinomial", "LeastSquares", "Poisson"} <= set(dir(firstish.families))

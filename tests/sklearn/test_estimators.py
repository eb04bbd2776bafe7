"""The estimators have scikit-learn's objective, shapes and manners, and its own battery passes."""

import importlib
import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import estimator_checks_generator

import firstish
from firstish.sklearn import ScaledLogisticRegression, ScaledRidge, fitting

EXACT = {"tol": 1e-10, "max_iter": 5000}
METHODS = {
    "lazy": None,
    "CGMR": firstish.ScaledGradient(scaling="CGMR", sigma=0.0),
    "plane": firstish.PlaneStep(),
}


def data(classes=2, sparse=False, rows=120, columns=6):
    """Columns of uneven size and mean, one of them constant, and labels that depend on them."""
    rng = np.random.RandomState(classes)
    X = rng.randn(rows, columns) * np.logspace(-1, 1, columns) + np.linspace(0, 3, columns)
    if sparse:
        X[rng.rand(rows, columns) < 0.6] = 0
    X[:, 2] = 1.5
    scores = X @ rng.randn(columns, classes) / 5 + rng.gumbel(size=(rows, classes))
    w = rng.rand(rows) * 3
    w[::7] = 0
    return (sp.csr_matrix(X) if sparse else X), scores.argmax(1), w


def reference(X, y, w=None, **settings):
    """scikit-learn's own optimum, by Newton's method to the last digits."""
    model = LogisticRegression(solver="newton-cholesky", tol=1e-13, max_iter=500, **settings)
    return model.fit(X, y, w)


def same(mine, theirs, share=1e-7):
    assert mine.coef_.shape == theirs.coef_.shape
    assert np.shape(mine.intercept_) == np.shape(theirs.intercept_)
    size = np.abs(theirs.coef_).max()
    np.testing.assert_allclose(mine.coef_, theirs.coef_, rtol=share, atol=share * size)
    np.testing.assert_allclose(mine.intercept_, theirs.intercept_, rtol=share, atol=share * size)


BATTERY = [
    pytest.param(estimator, check, id=f"{type(estimator).__name__}-{name}")
    for estimator in (ScaledLogisticRegression(), ScaledRidge())
    for estimator, check in estimator_checks_generator(estimator)
    for name in [getattr(check, "func", check).__name__]
]


@pytest.mark.parametrize(("estimator", "check"), BATTERY)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)  # skips itself where pandas or the array API is not there


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "without"])
def test_the_coefficients_are_scikit_learns(sparse, classes, weighted, intercept):
    X, y, w = data(classes, sparse)
    w = w if weighted else None
    mine = ScaledLogisticRegression(C=0.7, fit_intercept=intercept, **EXACT).fit(X, y, w)
    theirs = reference(X, y, w, C=0.7, fit_intercept=intercept)
    same(mine, theirs)
    np.testing.assert_allclose(mine.predict_proba(X), theirs.predict_proba(X), atol=1e-8)
    np.testing.assert_allclose(mine.decision_function(X), theirs.decision_function(X), atol=1e-6)
    np.testing.assert_allclose(mine.predict_log_proba(X), np.log(mine.predict_proba(X)))
    np.testing.assert_array_equal(mine.predict(X), theirs.predict(X))
    assert mine.score(X, y, w) == theirs.score(X, y, w)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("precondition", [True, False])
@pytest.mark.parametrize("classes", [2, 3])
def test_every_method_finds_them_in_either_variables(name, precondition, classes):
    X, y, _ = data(classes)
    X = X / 3  # CGMR is to get there without a change of variables, too
    mine = ScaledLogisticRegression(
        C=0.1, method=METHODS[name], precondition=precondition, tol=1e-8, max_iter=50_000
    ).fit(X, y)
    same(mine, reference(X, y, C=0.1), 1e-4)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("class_weight", ["balanced", {0: 2.0, 1: 0.5}], ids=["balanced", "given"])
def test_class_weights_are_scikit_learns(classes, class_weight):
    X, y, w = data(classes)
    mine = ScaledLogisticRegression(class_weight=class_weight, **EXACT).fit(X, y, w)
    same(mine, reference(X, y, w, class_weight=class_weight))


def test_one_matrix_for_all_scores_serves_too(monkeypatch):
    X, y, _ = data(4)
    monkeypatch.setattr("firstish.sklearn.variables.BLOCKS", 0)
    same(ScaledLogisticRegression(**EXACT).fit(X, y), reference(X, y))
    monkeypatch.setattr("firstish.sklearn.variables.SHARED", 0)  # nor any
    same(ScaledLogisticRegression(**EXACT).fit(X, y), reference(X, y))


def test_no_penalty_at_all():
    X, y, _ = data(2)
    X = np.delete(X, 2, axis=1)  # the constant column and the intercept would be one too many
    same(ScaledLogisticRegression(C=np.inf, **EXACT).fit(X, y), reference(X, y, C=np.inf), 1e-6)


def test_labels_come_back_as_they_were():
    X, y, _ = data(3)
    names = np.array(["no", "perhaps", "yes"])
    model = ScaledLogisticRegression().fit(X, names[y])
    assert model.classes_.tolist() == names.tolist()
    assert set(model.predict(X)) <= set(names)


@pytest.mark.parametrize("classes", [2, 4])
def test_a_warm_start_is_where_the_last_fit_ended(classes):
    X, y, w = data(classes)
    model = ScaledLogisticRegression(warm_start=True, **EXACT).fit(X, y)
    first = model.n_iter_[0]
    assert first > 5
    assert model.fit(X, y).n_iter_[0] <= 1
    same(model, reference(X, y))
    near = model.fit(X, y, 1 + w / 1000).n_iter_[0]
    assert near < first
    same(model, reference(X, y, 1 + w / 1000))
    other = (y > 0).astype(int) if classes > 2 else y + (X[:, 0] > 0)
    same(model.fit(X, other), reference(X, other))  # other classes: from the beginning


def test_two_fits_are_the_same_to_the_bit():
    for sparse in (False, True):
        X, y, w = data(4, sparse)
        a, b = (ScaledLogisticRegression().fit(X, y, w) for _ in range(2))
        assert np.array_equal(a.coef_, b.coef_)
        assert np.array_equal(a.intercept_, b.intercept_)


def largest_slope(model, X, y, C):
    """The largest entry of the gradient of the mean loss, in plain NumPy."""
    p = model.predict_proba(X)
    r = p - np.eye(p.shape[1])[y]
    w = model.coef_ / (C * len(y))
    by_w = r.T @ X / len(y)
    if p.shape[1] == 2:
        r, by_w = r[:, 1:], by_w[1:]
    return max(np.abs(by_w + w).max(), np.abs(r.mean(0)).max())


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-7])
@pytest.mark.parametrize("classes", [2, 3])
def test_tol_bounds_every_entry_of_the_gradient(tol, classes):
    X, y, _ = data(classes)
    X = 30 * X  # the gradient by the coefficients is not that by the variables of the run
    model = ScaledLogisticRegression(C=0.3, tol=tol).fit(X, y)
    assert largest_slope(model, X, y, 0.3) <= tol * (1 + 1e-6)


def test_it_warns_when_it_did_not_converge():
    X, y, _ = data(2)
    with pytest.warns(ConvergenceWarning, match="ScaledLogisticRegression did not converge: The b"):
        model = ScaledLogisticRegression(max_iter=2, tol=1e-9).fit(X, y)
    assert model.n_iter_.tolist() == [2]
    with pytest.warns(ConvergenceWarning, match="below the precision of float64"):
        ScaledLogisticRegression(tol=0.0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ScaledLogisticRegression().fit(X, y)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_change_of_variables_saves_iterations(classes, weighted):
    X, y, w = data(classes, rows=400)
    w = w if weighted else None
    with_it, without = (
        ScaledLogisticRegression(tol=1e-7, max_iter=20_000, precondition=on).fit(X, y, w).n_iter_[0]
        for on in (True, False)
    )
    assert with_it < without / 2  # the pairs learn the scales of the columns too


def closed_form(X, y, alpha, w):
    """The ridge solution by the normal equations, the intercept centred away."""
    w = np.ones(len(y)) if w is None else w
    X = X.toarray() if sp.issparse(X) else X
    m, t = w @ X / w.sum(), w @ y / w.sum()
    Z = X - m
    coef = np.linalg.solve((Z.T * w) @ Z + alpha * np.eye(X.shape[1]), (Z.T * w) @ (y - t)).T
    return coef, t - coef @ m


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("targets", [None, 2])
def test_ridge_is_the_closed_form_and_scikit_learns(sparse, weighted, targets):
    X, _, w = data(2, sparse)
    w = w if weighted else None
    rng = np.random.RandomState(5)
    y = 100 + X @ rng.randn(6, targets or 1) + rng.randn(120, targets or 1)
    y = y if targets else y[:, 0]
    mine = ScaledRidge(alpha=2.0, **EXACT).fit(X, y, w)
    coef, intercept = closed_form(X, y, 2.0, w)
    np.testing.assert_allclose(mine.coef_, coef, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(mine.intercept_, intercept, rtol=1e-7)
    dense = X.toarray() if sparse else X
    theirs = Ridge(alpha=2.0).fit(dense, y, w)
    same(mine, theirs, 1e-6)
    np.testing.assert_allclose(mine.predict(X), theirs.predict(dense), rtol=1e-7)
    assert mine.score(X, y, w) == pytest.approx(theirs.score(dense, y, w), rel=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("columns", [None, 1, 2], ids=["vector", "one column", "two columns"])
def test_the_shapes_of_ridge_are_scikit_learns(columns, intercept):
    X, _, _ = data(2)
    y = X @ np.ones((6, columns or 1)) + 1
    y = y[:, 0] if columns is None else y
    mine, theirs = (kind(fit_intercept=intercept).fit(X, y) for kind in (ScaledRidge, Ridge))
    for name in ("coef_", "intercept_"):
        assert np.shape(getattr(mine, name)) == np.shape(getattr(theirs, name)), name
    assert mine.predict(X).shape == theirs.predict(X).shape
    again = mine.set_params(warm_start=True, tol=0.5).fit(X, y)
    assert again.coef_.shape == theirs.coef_.shape


def test_ridge_without_an_intercept_and_with_a_warm_start():
    X, _, _ = data(2)
    y = X @ np.arange(6.0) + 3
    model = ScaledRidge(fit_intercept=False, warm_start=True, **EXACT).fit(X, y)
    theirs = Ridge(fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-7, atol=1e-7)
    assert model.intercept_ == 0.0
    assert model.fit(X, y).n_iter_ <= 1


def test_the_units_of_y_do_not_matter_to_ridge():
    X, _, _ = data(2)
    y = X @ np.arange(6.0) + np.sin(np.arange(120.0))
    small, large = (ScaledRidge().fit(X, y * unit) for unit in (1.0, 2.0**40))
    assert small.n_iter_ == large.n_iter_
    np.testing.assert_allclose(large.coef_, small.coef_ * 2.0**40, rtol=1e-9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"C": 0}, r"`ScaledLogisticRegression\(C=...\)` must be a number above 0, got 0"),
        ({"C": "1"}, r"C=...\)` must be a number above 0, got '1'"),
        ({"C": np.nan}, r"C=...\)` must be a number above 0, got nan"),
        ({"tol": -1.0}, r"tol=...\)` must be a number at least 0, got -1"),
        ({"max_iter": 0}, r"max_iter=...\)` must be an integer of at least 1, got 0"),
        ({"max_iter": 2.5}, r"max_iter=...\)` must be an integer of at least 1, got 2.5"),
    ],
)
def test_settings_are_refused_by_name(settings, message):
    X, y, _ = data(2)
    with pytest.raises(ValueError, match=message):
        ScaledLogisticRegression(**settings).fit(X, y)


def test_flags_are_true_or_false():
    X, y, _ = data(2)
    with pytest.raises(ValueError, match=r"positive=...\)` must be True or False, got 'yes'"):
        ScaledRidge(positive="yes").fit(X, y)


def test_ridge_as_it_is_by_default_is_scikit_learns():
    X, y = make_regression(150, 150, n_informative=20, noise=1.0, random_state=0)
    mine, theirs = ScaledRidge().fit(X, y), Ridge().fit(X, y)
    centred = X - X.mean(0)
    conditioning = np.linalg.cond(centred.T @ centred + np.eye(150))
    error = np.linalg.norm(mine.coef_ - theirs.coef_) / np.linalg.norm(theirs.coef_)
    assert error <= ScaledRidge().tol * conditioning * 150**0.5 < 1e-3


def test_a_method_must_be_one():
    X, y, _ = data(2)
    for wrong in (3, firstish.LazyStep):
        with pytest.raises(TypeError, match=r"ScaledLogisticRegression\(method=...\)` must be a n"):
            ScaledLogisticRegression(method=wrong).fit(X, y)
    with pytest.raises(ValueError, match=r"`ScaledRidge\(method='newton'\)` is unknown"):
        ScaledRidge(method="newton").fit(X, y)


def test_what_cannot_be_fitted_is_refused():
    X, y, _ = data(2)
    with pytest.raises(ValueError, match=r"alpha=...\)` must be a number at least 0, got -1"):
        ScaledRidge(alpha=-1).fit(X, y)
    with pytest.raises(ValueError, match="at least 2 classes, got one class, 0"):
        ScaledLogisticRegression().fit(X, np.zeros(len(X), dtype=int))


def test_a_name_stands_for_the_method():
    X, y, _ = data(2)
    methods = {"CGMR": firstish.ScaledGradient(), "plane": firstish.PlaneStep(), "lazy": None}
    for name, method in methods.items():
        named, given = (ScaledLogisticRegression(method=m).fit(X, y) for m in (name, method))
        np.testing.assert_array_equal(named.coef_, given.coef_)


def test_the_package_does_not_hide_scikit_learn():
    assert importlib.import_module("sklearn").__name__ == "sklearn"
    assert importlib.import_module("firstish.sklearn") is not importlib.import_module("sklearn")
    code = "import sys, firstish; sys.exit('firstish.sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert fitting.FIRST_CHANGE > 0


@pytest.mark.parametrize("kind", [ScaledLogisticRegression, ScaledRidge])
def test_a_damaged_sparse_matrix_is_refused(kind):
    X, y, _ = data(sparse=True)
    fitted = kind().fit(X, y)
    bad = X.copy()
    bad.indptr = bad.indptr[::-1].copy()
    with pytest.raises(ValueError, match=rf"`{kind.__name__}.fit\(X\)` is a damaged sparse matrix"):
        kind().fit(bad, y)
    bad = X.copy()
    bad.indices[3] = 2**30
    with pytest.raises(ValueError, match=r"between 0 and 5, got 1073741824"):
        fitted.predict(bad)


def test_positive_coefficients_of_columns_that_are_far_from_centred():
    """Of the free intercept the columns' means are a part, and the minimum is that of nnls."""
    optimize = pytest.importorskip("scipy.optimize", reason="SciPy is an extra")
    random = np.random.default_rng(0)
    X = random.random((60, 160)) + 5
    y = X @ np.maximum(random.standard_normal(160), 0) + 0.1 * random.standard_normal(60)
    alpha = 1e-2
    Xc, yc = X - X.mean(0), y - y.mean()
    rows = np.vstack([Xc, math.sqrt(alpha) * np.eye(160)])
    _, least = optimize.nnls(rows, np.r_[yc, np.zeros(160)])
    fitted = ScaledRidge(alpha=alpha, positive=True, max_iter=2000).fit(X, y)
    residual = np.linalg.norm(rows @ fitted.coef_ - np.r_[yc, np.zeros(160)])
    assert fitted.coef_.min() == 0
    assert residual**2 - least**2 <= 1e-6 * least**2
    assert fitted.intercept_ == pytest.approx(y.mean() - X.mean(0) @ fitted.coef_, rel=1e-6)
    again = ScaledRidge(alpha=alpha, positive=True, warm_start=True, max_iter=2000).fit(X, y)
    assert again.fit(X, y).n_iter_ <= 3
    assert again.coef_.min() == 0

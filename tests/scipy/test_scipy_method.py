"""`scipy.optimize.minimize(method=firstish.scipy_method)`: every point of SciPy's protocol."""

import inspect
from collections import Counter

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import torch
from scipy.optimize import OptimizeResult, OptimizeWarning, rosen, rosen_der, rosen_hess
from scipy.optimize import rosen_hess_prod as rosen_hessp
from scipy.sparse.linalg import aslinearoperator

import firstish

START = np.array([-1.2, 1.0, -0.5, 0.8])
EXACT = {"jac": rosen_der, "hessp": rosen_hessp}


def run(fun=rosen, x0=START, *, options=None, **given):
    """With the paper's method, unless another or a setting of it is given: it asks for products."""
    options = dict(options or {})
    if not {"stepper", "scaling", "sigma", "s_nc", "s_lpc", "line_search"} & set(options):
        options["stepper"] = "CGMR"
    return scipy.optimize.minimize(fun, x0, method=firstish.scipy_method, options=options, **given)


def counted(**functions):
    """The functions, and how often each was really called."""
    calls = Counter()

    def counting(name, call):
        def wrapped(*args):
            calls[name] += 1
            return call(*args)

        return wrapped

    return {name: counting(name, call) for name, call in functions.items()}, calls


# The answers are SciPy's


@pytest.mark.parametrize("other", ["Newton-CG", "L-BFGS-B", "trust-exact"])
def test_it_ends_where_scipys_own_methods_end(other):
    A = np.random.default_rng(3).normal(size=(30, 5))

    def fun(x):
        return np.logaddexp(0, A @ x).sum() + 0.05 * x @ x

    def jac(x):
        return A.T @ (1 / (1 + np.exp(-A @ x))) + 0.1 * x

    def hess(x):
        p = 1 / (1 + np.exp(-A @ x))
        return (A * (p * (1 - p))[:, None]).T @ A + 0.1 * np.eye(5)

    options = {"gtol": 1e-9} if other != "Newton-CG" else {"xtol": 1e-12}
    if other == "L-BFGS-B":
        theirs = scipy.optimize.minimize(fun, np.ones(5), jac=jac, method=other, tol=1e-15)
    else:
        theirs = scipy.optimize.minimize(
            fun, np.ones(5), jac=jac, hess=hess, method=other, options=options
        )
    ours = run(fun, np.ones(5), jac=jac, hess=hess, options={"gtol": 1e-8})
    assert ours.success
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-5)
    assert ours.fun <= theirs.fun + 1e-9
    np.testing.assert_allclose(ours.jac, jac(ours.x), rtol=0, atol=0)


@pytest.mark.parametrize(
    "given",
    [
        {"jac": rosen_der, "hessp": rosen_hessp},
        {"jac": rosen_der, "hess": rosen_hess},
        {"jac": rosen_der},
        {"jac": rosen_der, "hess": "2-point"},
        {},
    ],
    ids=["hessp", "hess", "jac alone", "hess by differences", "fun alone"],
)
def test_rosenbrock_with_whatever_is_known(given):
    result = run(x0=[-1.2, 1.0], **given)
    assert result.success
    assert result.status == 0
    np.testing.assert_allclose(result.x, 1, atol=1e-4)


@pytest.mark.parametrize(
    "kind", [np.ndarray.tolist, scipy.sparse.csr_array, scipy.sparse.csr_matrix, aslinearoperator]
)
def test_every_kind_of_hessian_is_the_same_hessian(kind):
    plain = run(jac=rosen_der, hess=rosen_hess, options={"maxiter": 8, "return_all": True})
    other = run(
        jac=rosen_der,
        hess=lambda x: kind(rosen_hess(x)),
        options={"maxiter": 8, "return_all": True},
    )
    np.testing.assert_allclose(other.allvecs, plain.allvecs, rtol=1e-10)


def test_of_hess_and_hessp_the_first_is_used_as_in_scipy():
    def refused(x, v):
        raise AssertionError("hessp was called")

    assert run(x0=[-1.2, 1.0], jac=rosen_der, hess=rosen_hess, hessp=refused).success


# The same steps as through torch


def torch_rosen(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def through_torch(x):
    """f, g and v -> Hv of the torch function, to the bit, as NumPy."""
    leaf = torch.tensor(x, requires_grad=True)
    f = torch_rosen(leaf)
    (g,) = torch.autograd.grad(f, leaf, create_graph=True)

    def product(v):
        (Hv,) = torch.autograd.grad(g, leaf, torch.tensor(v))
        return Hv.numpy()

    return f.item(), g.detach().numpy(), product


NUMPY = {
    "fun": lambda x: through_torch(x)[0],
    "jac": lambda x: through_torch(x)[1],
    "hessp": lambda x, v: through_torch(x)[2](v),
}


@pytest.mark.parametrize(
    ("stepper", "hessp"),
    [
        (firstish.ScaledGradient(scaling="CGMR"), NUMPY["hessp"]),
        (firstish.ScaledGradient(scaling="MR"), NUMPY["hessp"]),
        (firstish.PlaneStep(), NUMPY["hessp"]),
        (firstish.LazyStep(), None),  # its rare products are differences in both
        (firstish.baselines.LBFGS(), None),
    ],
    ids=["CGMR", "MR", "plane", "lazy", "L-BFGS"],
)
def test_iterates_equal_those_through_torch_to_the_bit(stepper, hessp):
    seen = []
    ours = firstish.minimize(
        torch_rosen,
        torch.tensor(START),
        method=stepper,
        max_iterations=25,
        callback=lambda progress: seen.append(progress.x.numpy().copy()),
    )
    result = run(
        NUMPY["fun"],
        jac=NUMPY["jac"],
        hessp=hessp,
        options={"stepper": stepper, "maxiter": 25, "return_all": True},
    )
    np.testing.assert_array_equal(result.allvecs[1:], seen)
    assert result.fun == ours.value
    assert result.nit == ours.iterations
    assert result.firstish_result.oracle_calls == ours.oracle_calls
    rows = zip(result.firstish_result.history, ours.history, strict=True)
    for row, other in rows:
        assert (row.value, row.scale, row.curvature) == (other.value, other.scale, other.curvature)


def test_iterates_follow_scipys_own_formulas_of_the_function():
    seen = []
    firstish.minimize(
        torch_rosen,
        torch.tensor(START),
        method="CGMR",
        max_iterations=12,
        callback=lambda progress: seen.append(progress.x.numpy().copy()),
    )
    result = run(**EXACT, options={"maxiter": 12, "return_all": True})
    np.testing.assert_allclose(result.allvecs[1:], seen, rtol=1e-8)


# jac


def test_jac_true_evaluates_once_where_both_are_wanted():
    given, calls = counted(fun=lambda x: (rosen(x), rosen_der(x)))
    result = run(given["fun"], x0=[-1.2, 1.0], jac=True, hessp=rosen_hessp)
    plain = run(x0=[-1.2, 1.0], **EXACT)
    assert result.nfev == result.njev == calls["fun"] == plain.nfev
    np.testing.assert_array_equal(result.x, plain.x)


def test_jac_true_evaluates_once_although_forward_tracking_looks_further():
    # From near the top, f falls on for many doublings; the point kept is not the last one tried.
    def fun(x):
        return float(np.cos(x).sum()), -np.sin(x)

    given, calls = counted(fun=fun)
    options = {"maxiter": 1}
    result = run(
        given["fun"], [1e-3, 1e-3], jac=True, hess=lambda x: -np.diag(np.cos(x)), options=options
    )
    (row, _) = result.firstish_result.history
    assert row.curvature is firstish.Curvature.NC
    assert row.step_size > 1
    assert result.nfev == calls["fun"] == 1 + row.trials


def test_jac_true_called_directly():
    result = firstish.scipy_method(lambda x: (rosen(x), rosen_der(x)), [-1.2, 1.0], jac=True)
    assert result.success


def test_a_gradient_by_differences_is_scipys_two_point_and_counted():
    from scipy.optimize._numdiff import approx_derivative

    given, calls = counted(fun=rosen)
    result = run(given["fun"], x0=[-1.2, 1.0], hessp=rosen_hessp)
    bfgs = scipy.optimize.minimize(rosen, [-1.2, 1.0], method="BFGS")
    assert result.success
    assert result.nfev == calls["fun"]
    trials = sum(row.trials or 0 for row in result.firstish_result.history)
    assert result.nfev == 1 + trials + 2 * result.njev  # no value is computed a second time
    assert result.njev == result.nit + 1
    np.testing.assert_allclose(result.x, bfgs.x, atol=1e-4)
    np.testing.assert_array_equal(
        result.jac, approx_derivative(rosen, result.x, method="2-point", f0=result.fun)
    )


@pytest.mark.parametrize("method", ["3-point", "cs"])
def test_other_differences_are_nearer_the_gradient(method):
    options = {"finite_diff_method": method, "gtol": 1e-6}
    result = run(x0=[-1.2, 1.0], hessp=rosen_hessp, options=options)
    assert result.success
    np.testing.assert_allclose(result.jac, rosen_der(result.x), atol=1e-7)
    np.testing.assert_allclose(result.x, 1, atol=1e-5)
    given = {"jac": method, "hessp": rosen_hessp, "gtol": 1e-6, "stepper": "CGMR"}
    again = firstish.scipy_method(rosen, [-1.2, 1.0], **given)
    np.testing.assert_array_equal(again.x, result.x)


def test_the_step_of_the_difference_is_an_option():
    coarse = run(x0=[-1.2, 1.0], hessp=rosen_hessp, options={"eps": 1e-3, "maxiter": 0})
    expected = (rosen([-1.2 + 1e-3, 1.0]) - rosen([-1.2, 1.0])) / 1e-3
    assert coarse.jac[0] == pytest.approx(expected, rel=1e-9)
    relative = {"finite_diff_rel_step": 1e-3, "maxiter": 0}
    coarse = run(x0=[-2.0, 1.0], hessp=rosen_hessp, options=relative)
    expected = (rosen([-2.0 - 2e-3, 1.0]) - rosen([-2.0, 1.0])) / -2e-3
    assert coarse.jac[0] == pytest.approx(expected, rel=1e-9)


def test_an_unknown_difference_is_refused():
    with pytest.raises(ValueError, match=r"`finite_diff_method` must be one of .*'4-point'"):
        run(options={"finite_diff_method": "4-point"})


# Counts


def test_the_counts_are_the_calls_really_made():
    given, calls = counted(fun=rosen, jac=rosen_der, hessp=rosen_hessp)
    result = run(x0=[-1.2, 1.0], **given)
    assert (result.nfev, result.njev, result.nhev) == tuple(calls[n] for n in given)
    rows = result.firstish_result.history
    assert result.nhev == result.nit == len(rows) - 1
    assert result.njev == result.nit + 1
    assert result.nfev == 1 + sum(row.trials or 0 for row in rows)
    assert rows[-1].oracle_calls == result.nfev + result.njev + 2 * result.nhev


def test_a_product_by_difference_counts_as_gradients():
    given, calls = counted(fun=rosen, jac=rosen_der)
    result = run(x0=[-1.2, 1.0], **given)
    assert (result.nfev, result.njev, result.nhev) == (calls["fun"], calls["jac"], 0)
    assert result.njev >= 2 * result.nit + 1  # one more where the curvature is near zero
    assert result.success


def test_a_hessian_is_evaluated_once_at_a_point():
    given, calls = counted(hess=rosen_hess)
    objective = firstish.NumpyObjective(rosen, rosen_der, hess=given["hess"])
    point = objective.at(torch.tensor(START))
    for v in torch.eye(4):
        Hv = point.hvp(v).vector
        np.testing.assert_array_equal(Hv.numpy(), rosen_hess(START) @ v.numpy())
    assert calls["hess"] == 1


# args


def test_args_reach_every_function():
    def fun(x, a, b):
        return ((x - a) ** 2).sum() + b * (x**4).sum()

    def jac(x, a, b):
        return 2 * (x - a) + 4 * b * x**3

    def hess(x, a, b):
        return np.diag(2 + 12 * b * x**2)

    def hessp(x, v, a, b):
        assert (a, b) == args
        return 2 * v + 12 * b * x**2 * v

    args = (2.0, 0.5)
    truth = scipy.optimize.minimize(
        fun,
        np.zeros(2),
        args=args,
        jac=jac,
        hess=hess,
        method="trust-exact",
        options={"gtol": 1e-10},
    )
    for given in ({"jac": jac, "hess": hess}, {"jac": jac, "hessp": hessp}, {"jac": jac}, {}):
        ours = run(fun, np.zeros(2), args=args, **given)
        np.testing.assert_allclose(ours.x, truth.x, atol=1e-5)
    both = run(lambda x, a, b: (fun(x, a, b), jac(x, a, b)), np.zeros(2), args=args, jac=True)
    np.testing.assert_allclose(both.x, truth.x, atol=1e-5)
    one = run(lambda x, a: ((x - a) ** 2).sum(), np.zeros(2), args=3.0)
    np.testing.assert_allclose(one.x, 3, atol=1e-5)


# The callback


def test_a_callback_by_the_name_of_its_argument():
    seen = []

    def callback(intermediate_result):
        assert isinstance(intermediate_result, OptimizeResult)
        seen.append(intermediate_result)

    result = run(x0=[-1.2, 1.0], **EXACT, callback=callback)
    assert [shown.nit for shown in seen] == list(range(1, result.nit + 1))
    for shown in seen:
        assert shown.fun == rosen(shown.x)
        np.testing.assert_array_equal(shown.jac, rosen_der(shown.x))
    np.testing.assert_array_equal(seen[-1].x, result.x)
    assert seen[-1].nfev == result.nfev


def test_a_callback_of_another_name_gets_x():
    seen = []
    result = run(x0=[-1.2, 1.0], **EXACT, callback=lambda xk: seen.append(xk))
    assert all(type(x) is np.ndarray for x in seen)
    assert len(seen) == result.nit
    np.testing.assert_array_equal(seen[-1], result.x)
    again = []
    run(x0=[-1.2, 1.0], **EXACT, callback=again.append)  # a built-in method
    np.testing.assert_array_equal(again, seen)


@pytest.mark.parametrize("named", [True, False])
def test_a_callback_cannot_change_the_run(named):
    def by_name(intermediate_result):
        intermediate_result.x[:] = 17
        intermediate_result.jac[:] = 17

    def by_place(xk):
        xk[:] = 17
        return True  # which SciPy's methods overlook

    plain = run(x0=[-1.2, 1.0], **EXACT)
    result = run(x0=[-1.2, 1.0], **EXACT, callback=by_name if named else by_place)
    np.testing.assert_array_equal(result.x, plain.x)
    np.testing.assert_array_equal(result.jac, plain.jac)


def stop_at_third(method):
    seen = []

    def callback(xk):
        seen.append(xk)
        if len(seen) == 3:
            raise StopIteration

    result = scipy.optimize.minimize(
        rosen, [-1.2, 1.0], jac=rosen_der, method=method, callback=callback
    )
    return result, seen


def test_stop_iteration_ends_the_run_as_scipys_methods_end():
    theirs, _ = stop_at_third("BFGS")
    ours, seen = stop_at_third(firstish.scipy_method)
    assert (ours.nit, ours.success, ours.status) == (3, False, 99)
    assert (ours.message, ours.status) == (theirs.message, theirs.status)
    np.testing.assert_array_equal(ours.x, seen[-1])


# Tolerances and options


def test_tol_is_gtol_unless_gtol_is_given():
    for options, norm in (({}, 1e-2), ({"gtol": 1e-4}, 1e-4)):
        result = run(x0=[-1.2, 1.0], **EXACT, tol=1e-2, options=options)
        plain = run(x0=[-1.2, 1.0], **EXACT, options={"gtol": norm})
        assert result.success
        assert np.linalg.norm(result.jac) <= norm
        assert result.nit == plain.nit
    assert run(x0=[-1.2, 1.0], **EXACT, tol=0.0, options={"maxiter": 3}).nit == 3


def test_the_default_tolerance_is_that_of_minimize():
    exact = run(x0=[-1.2, 1.0], **EXACT)
    plain = run(x0=[-1.2, 1.0], **EXACT, options={"gtol": 1e-6})
    assert exact.nit == plain.nit
    default = inspect.signature(firstish.minimize).parameters["gtol"].default
    assert default == 1e-6


def test_maxiter_lifts_the_default_budget_of_oracle_calls():
    options = {"stepper": "CGMR", "gtol": 0.0, "maxiter": 6000}  # 4 oracle calls a step at least
    result = scipy.optimize.minimize(
        lambda x: (float((x**4).sum()), 4 * x**3),
        np.ones(2),
        jac=True,
        method=firstish.scipy_method,
        options=options,
    )
    assert result.status == 1
    assert result.nit == 6000
    assert result.firstish_result.oracle_calls > 10_000


def test_gtol_rel_and_ftol_are_options():
    result = run(**EXACT, options={"gtol": 0.0, "gtol_rel": 1e-2})
    assert (result.success, result.status) == (True, 0)
    result = run(**EXACT, options={"gtol": 0.0, "ftol": 1e-2})
    assert (result.success, result.status) == (True, 0)
    assert "ftol" in result.message


def test_budgets():
    result = run(**EXACT, options={"maxiter": 5})
    assert (result.nit, result.success, result.status) == (5, False, 1)
    assert "budget of iterations" in result.message
    assert "Raise maxiter=5 to go on." in result.message
    result = run(**EXACT, options={"max_oracle_calls": 40})
    assert (result.success, result.status) == (False, 1)
    assert 40 <= result.firstish_result.oracle_calls < 60
    result = run(**EXACT, options={"max_seconds": 0})
    assert (result.nit, result.status) == (0, 1)
    np.testing.assert_array_equal(result.x, START)


def test_settings_of_the_method_are_options():
    for settings in ({"scaling": "MR"}, {"scaling": "CG", "sigma": 0.0}, {"s_nc": 0.5}):
        result = run(**EXACT, options={**settings, "maxiter": 20})
        method = firstish.ScaledGradient(**settings)
        other = run(**EXACT, options={"stepper": method, "maxiter": 20})
        np.testing.assert_array_equal(result.x, other.x)
    used = {row.scaling for row in run(**EXACT, options={"scaling": "MR"}).firstish_result.history}
    assert used <= {"MR", None}


def test_a_stepper_with_settings_besides_is_refused():
    with pytest.raises(ValueError, match=r"has a stepper, LazyStep, .*`ScaledGradient`: scaling"):
        run(**EXACT, options={"stepper": firstish.LazyStep(), "scaling": "CG"})


def test_what_is_no_stepper_is_refused():
    with pytest.raises(TypeError, match=r"`scipy_method\(stepper=...\)` must be a name"):
        run(**EXACT, options={"stepper": 3})
    with pytest.raises(ValueError, match=r"`scipy_method\(stepper='newton'\)` is unknown"):
        run(**EXACT, options={"stepper": "newton"})


def test_the_stepper_is_the_default_of_minimize_unless_settings_are_given():
    given = {"x0": START, "method": firstish.scipy_method, **EXACT}
    for options, scaling in (({}, "pairs"), ({"stepper": "lazy"}, "pairs"), ({"sigma": 0.0}, "CG")):
        result = scipy.optimize.minimize(rosen, options=options, **given)
        assert result.success
        assert result.firstish_result.history[0].scaling == scaling


def test_unknown_options_are_warned_about_where_the_user_wrote_them():
    theirs = {}
    for method in ("BFGS", firstish.scipy_method):
        with pytest.warns(OptimizeWarning) as caught:
            scipy.optimize.minimize(
                rosen, START, jac=rosen_der, method=method, options={"oops": 1, "ah": 2}
            )
        theirs[method] = [(str(w.message), w.filename) for w in caught]
    assert theirs["BFGS"] == theirs[firstish.scipy_method]
    assert theirs["BFGS"] == [("Unknown solver options: oops, ah", __file__)]


def test_names_of_minimize_are_answered_with_scipys():
    with pytest.warns(OptimizeWarning, match="max_iterations. Use maxiter for max_iterations"):
        run(**EXACT, options={"max_iterations": 9})


def test_a_start_outside_of_the_bounds_is_warned_about_where_the_user_wrote_it():
    with pytest.warns(UserWarning, match="x0 outside of the bounds") as caught:
        result = run(
            x0=[5.0, 5.0], jac=rosen_der, bounds=[(0, 2)] * 2, options={"return_all": True}
        )
    assert [w.filename for w in caught] == [__file__]
    assert result.allvecs[0].tolist() == [2, 2]


def test_a_gradient_returned_without_jac_true_is_named():
    with pytest.raises(ValueError, match=r"for `\(f, g\)` pass `jac=True`"):
        run(lambda x: (rosen(x), rosen_der(x)))


@pytest.mark.parametrize("jac", [None, False, "2-point"])
def test_a_numpy_objective_without_a_gradient_names_this_method(jac):
    with pytest.raises(TypeError, match=r"method=firstish.scipy_method"):
        firstish.NumpyObjective(rosen, jac)


def test_further_arguments_of_a_numpy_objective():
    objective = firstish.NumpyObjective(
        lambda x, a: a * rosen(x),
        lambda x, a: a * rosen_der(x),
        hessp=lambda x, v, a: a * rosen_hessp(x, v),
        args=2.0,
    )
    result = firstish.minimize(objective, START, method="CGMR", max_iterations=3)
    plain = run(lambda x: 2 * rosen(x), jac=lambda x: 2 * rosen_der(x), options={"maxiter": 0})
    assert result.history[0].value == plain.fun
    assert result.history[0].grad_norm == pytest.approx(np.linalg.norm(plain.jac))


def test_disp_prints_how_it_ended(capsys):
    run(**EXACT, options={"maxiter": 2})
    assert capsys.readouterr().out == ""
    result = run(**EXACT, options={"maxiter": 2, "disp": True})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "The budget of iterations is spent."
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "Current function value",
        "Iterations",
        "Function evaluations",
        "Gradient evaluations",
        "Hessian evaluations",
    ]
    assert lines[3].endswith(f": {result.nfev}")


def test_all_points_on_request():
    assert "allvecs" not in run(**EXACT, options={"maxiter": 2})
    result = run(**EXACT, options={"maxiter": 4, "return_all": True})
    np.testing.assert_array_equal(result.allvecs[0], START)
    np.testing.assert_array_equal(result.allvecs[-1], result.x)
    assert len(result.allvecs) == 5


# What it does not do


@pytest.mark.parametrize(
    "constraints",
    [
        {"type": "ineq", "fun": lambda x: x[0]},
        [{"type": "ineq", "fun": lambda x: x[0]}],
        scipy.optimize.LinearConstraint(np.eye(4), 0, 1),
    ],
)
def test_constraints_are_refused_with_a_remedy(constraints):
    with pytest.raises(ValueError, match=r"other constraints.* method='trust-constr'"):
        run(**EXACT, constraints=constraints)


def test_no_constraints_are_none():
    for none in ((), [], {}):
        assert run(**EXACT, constraints=none, options={"maxiter": 1}).nit == 1


@pytest.mark.parametrize("hess", ["3-point", scipy.optimize.BFGS()])
def test_a_hessian_that_is_no_function_is_refused(hess):
    with pytest.raises(ValueError, match=r"hess=.*is unknown.*differences of gradients"):
        run(jac=rosen_der, hess=hess)


# Bad input


@pytest.mark.parametrize("bad", [np.ones((2, 2)), np.array([1j, 0]), np.array(["a"])])
def test_a_start_that_is_no_vector_is_refused(bad):
    with pytest.raises(ValueError, match="must be a vector of real numbers"):
        firstish.scipy_method(rosen, bad)


def test_an_empty_start_is_refused():
    with pytest.raises(ValueError, match="empty x0"):
        firstish.scipy_method(rosen, [])


def test_functions_that_return_the_wrong_thing_are_named():
    with pytest.raises(ValueError, match=r"`fun` must return one real number"):
        run(lambda x: x, jac=rosen_der)
    with pytest.raises(ValueError, match=r"`fun` must return one real number.*None"):
        run(lambda x: None, jac=rosen_der)
    with pytest.raises(ValueError, match=r"`jac` returned float64 of shape \(3,\).* 4 entries"):
        run(jac=lambda x: x[:3])
    with pytest.raises(ValueError, match=r"`hess` returned an array of shape \(3, 3\)"):
        run(jac=rosen_der, hess=lambda x: np.eye(3))
    with pytest.raises(ValueError, match=r"`hessp` returned float64 of shape \(3,\)"):
        run(jac=rosen_der, hessp=lambda x, v: v[:3])
    with pytest.raises(ValueError, match=r"`jac=True` says that `fun` returns \(f, g\)"):
        firstish.scipy_method(rosen, START, jac=True)


def test_a_start_where_f_is_not_finite_is_an_error():
    with pytest.raises(firstish.NonFiniteError, match="f is nan at the starting point"):
        run(lambda x: np.nan, jac=rosen_der)


def test_an_error_of_the_function_comes_through():
    def fun(x):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run(fun, jac=rosen_der)


# Arrays


def test_functions_may_write_into_what_they_get_and_return_one_array():
    reused = np.empty(2)

    def fun(x):
        value = rosen(x)
        x[:] = 17
        return value

    def jac(x):
        reused[:] = rosen_der(x)
        x[:] = 17
        return reused

    def hessp(x, v):
        product = rosen_hessp(x, v)
        x[:], v[:] = 17, 17
        return product

    x0 = np.array([-1.2, 1.0])
    options = {"stepper": firstish.PlaneStep()}  # it remembers the gradient before
    result = run(fun, x0, jac=jac, hessp=hessp, options=options)
    plain = run(x0=x0, **EXACT, options=options)
    np.testing.assert_array_equal(x0, [-1.2, 1.0])
    np.testing.assert_array_equal(result.x, plain.x)
    np.testing.assert_array_equal(result.jac, plain.jac)


def test_starts_of_every_kind():
    for x0 in ([-1, 1], (-1.0, 1.0), np.array([-1, 1], dtype=np.int8), np.float64([-1, 1])):
        result = run(x0=x0, **EXACT)
        assert result.success
        assert result.x.dtype == np.float64
    scalar = run(lambda x: (x[0] - 2) ** 2, 0.5, jac=lambda x: 2 * (x - 2), hess=lambda x: 2.0)
    assert scalar.x.shape == (1,)
    assert scalar.x[0] == 2


def test_values_and_gradients_of_every_shape():
    column = run(lambda x: np.array([[rosen(x)]]), [-1.2, 1.0], jac=lambda x: rosen_der(x)[:, None])
    plain = run(x0=[-1.2, 1.0], jac=rosen_der)
    np.testing.assert_array_equal(column.x, plain.x)


def test_single_precision_is_noticed_in_what_comes_back():
    def fun(x):
        return np.float32(rosen(x.astype(np.float32)))

    def jac(x):
        return rosen_der(x.astype(np.float32))

    objective = firstish.NumpyObjective(fun, jac)
    point = objective.at(torch.tensor([-1.2, 1.0]))
    assert point.eps == np.finfo(np.float64).eps
    _ = point.grad
    assert point.eps == np.finfo(np.float32).eps
    result = run(fun, np.array([-1.2, 1.0]), jac=jac, options={"gtol": 1e-2})
    np.testing.assert_allclose(result.x, 1, atol=0.05)
    single = run(x0=np.array([-1.2, 1.0], dtype=np.float32), **EXACT, options={"gtol": 1e-2})
    assert single.x.dtype == np.float32
    np.testing.assert_allclose(single.x, 1, atol=0.05)


# In SciPy's other solvers


def test_basin_hopping_takes_it_for_its_local_search():
    def fun(x):
        return np.cos(14.5 * x[0] - 0.3) + (x[0] + 0.2) * x[0], np.array(
            [-14.5 * np.sin(14.5 * x[0] - 0.3) + 2 * x[0] + 0.2]
        )

    result = scipy.optimize.basinhopping(
        fun,
        [1.0],
        minimizer_kwargs={"method": firstish.scipy_method, "jac": True},
        niter=100,
        rng=np.random.default_rng(0),
    )
    assert result.x[0] == pytest.approx(-0.1951, abs=1e-3)  # SciPy's own example
    assert result.fun == pytest.approx(-1.0009, abs=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_differences_of_a_large_f_end_at_their_noise(seed):
    """A sum over 2,000 rows: the error of the gradient is above the default tolerance."""
    random = np.random.default_rng(seed)
    A = random.standard_normal((2000, 8))
    y = random.random(2000) < 1 / (1 + np.exp(-A @ random.standard_normal(8)))

    def loss(w):
        z = A @ w
        return np.logaddexp(0, z).sum() - z[y].sum()

    ours = scipy.optimize.minimize(loss, np.zeros(8), method=firstish.scipy_method)
    theirs = scipy.optimize.minimize(loss, np.zeros(8), method="L-BFGS-B")
    assert ours.success
    assert ours.nfev <= 10 * theirs.nfev
    assert ours.fun <= theirs.fun + 1e-6 * abs(theirs.fun)

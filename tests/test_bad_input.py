"""Bad input: an error at the call that names the call, the value and the remedy."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import firstish
from firstish import (
    Armijo,
    Curvature,
    FiniteSum,
    FunctionObjective,
    LazyStep,
    ModuleObjective,
    NondeterministicError,
    NonFiniteError,
    ScaledGD,
    ScaledGradient,
    families,
)
from firstish.problems import PROBLEMS, Options
from firstish.scaling import Angle, algorithm_1

# The paper's method is what these tests are about, not the default one.
minimize = partial(firstish.minimize, method="CGMR")


def parameter(*numbers, **options):
    return nn.Parameter(torch.tensor(numbers or (1.0, 2.0), **options))


def square(x):
    return (x * x).sum()


# Settings


@pytest.mark.parametrize("scaling", ["", "CGM", "BB", "CG MR", "CG-MR", 3, None])
def test_an_unknown_scaling_is_refused_with_the_known_ones(scaling):
    with pytest.raises(ValueError, match=r"scaling=.* is unknown. Use 'CG', 'MR', 'GM'"):
        ScaledGradient(scaling=scaling)


OUT_OF_RANGE = [
    ("rho", [-0.1, 0.5, 1.0, math.nan, math.inf], r"`Armijo\(rho=...\)` must lie in \[0, 1/2\)"),
    ("theta", [0.0, 1.0, -1.0, 2.0, math.nan], r"`Armijo\(theta=...\)` must lie in \(0, 1\)"),
    ("max_trials", [0, -3], r"`Armijo\(max_trials=...\)` must be at least 1"),
    ("sigma", [-1e-9, math.inf, math.nan], r"`ScaledGradient\(sigma=...\)` must be at least 0"),
    ("s_nc", [0.0, -1.0, math.inf, math.nan], r"`ScaledGradient\(s_nc=...\)` must be positive"),
    ("s_lpc", [0.0, -1.0, 2e6, math.inf, math.nan], r"`ScaledGradient\(s_lpc=...\)` must lie in"),
]
CASES = [(name, value, message) for name, values, message in OUT_OF_RANGE for value in values]


@pytest.mark.parametrize(("name", "value", "message"), CASES)
def test_settings_out_of_range_are_refused_at_construction(name, value, message):
    owner = Armijo if name in {"rho", "theta", "max_trials"} else ScaledGradient
    with pytest.raises(ValueError, match=rf"{message}.*got {value}"):
        owner(**{name: value})


@pytest.mark.parametrize("name", [name for name, *_ in OUT_OF_RANGE] + ["scaling"])
def test_a_setting_of_the_method_is_not_one_of_the_optimizer(name):
    remedy = rf"is a setting of the method. Use `method=ScaledGradient\({name}=\.\.\.\)"
    if name in {"rho", "theta", "max_trials"}:
        remedy = rf"of the line search. Use `method=LazyStep\(line_search=Armijo\({name}=\.\.\.\)"
    with pytest.raises(TypeError, match=rf"`ScaledGD\({name}=...\)` is not an arg.*{remedy}"):
        ScaledGD([parameter()], **{name: 0.1})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            {"weight_decay": 0.1},
            "has no weight_decay, got 0.1. Add weight_decay/2 times the squares",
        ),
        ({"momentum": 0.9, "nesterov": True}, "has no momentum or nesterov: .* Omit it"),
        ({"betas": (0.9, 0.99)}, "has no betas"),
        ({"eps": 1e-8}, r"`ScaledGD\(eps=...\)` is not an argument: it has no effect"),
        ({"history_size": 5}, r"LazyStep\(memory=...\)"),
        (
            {"line_search_fn": "strong_wolfe"},
            r"is built in. Leave it out, .*`method=LazyStep\(line_search=Armijo\(...\)\)`",
        ),
        ({"learning_rate": 1e-3}, "Leave it out; the first trial step is `lr`"),
        ({"max_iter": 20}, "is one iteration. Call it as often"),
        ({"maximize": True}, "return `-loss`"),
        ({"weight_decay": 0.0}, "add weight decay to the loss"),
        ({"reuse_values": True}, "use `reuse_value`"),
        ({"colour": 1}, "It has params, lr, method, product, reuse_value, check"),
    ],
)
def test_keywords_of_other_optimizers_are_refused_with_advice(setting, message):
    with pytest.raises(TypeError, match=message):
        ScaledGD([parameter()], **setting)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_an_initial_step_or_lr_out_of_range_is_refused(value):
    with pytest.raises(ValueError, match=rf"`Armijo\(initial_step=...\)` must be.*got {value}"):
        Armijo(initial_step=value)
    with pytest.raises(ValueError, match=rf"`ScaledGD\(lr=...\)` must be positive.*got {value}"):
        ScaledGD([parameter()], lr=value)


@pytest.mark.parametrize("value", [2.5, True, "3", None])
def test_max_trials_must_be_an_int(value):
    with pytest.raises(TypeError, match=r"`Armijo\(max_trials=...\)` must be an int"):
        Armijo(max_trials=value)


@pytest.mark.parametrize("value", ["1/s", "sigma"])
def test_s_lpc_by_an_unknown_name_is_refused(value):
    with pytest.raises(ValueError, match=r"must be a number or '1/sigma'"):
        ScaledGradient(s_lpc=value)


def test_s_lpc_one_over_sigma_needs_a_sigma():
    with pytest.raises(ValueError, match=r"needs sigma > 0.*Pass a number"):
        ScaledGradient(s_lpc="1/sigma", sigma=0.0)
    flat = Angle(grad_norm=1.0, product_norm=0.0, cosine=0.0)
    assert algorithm_1(flat, "CG", sigma=0.5, s_lpc="1/sigma", s_nc=1.0) == (Curvature.LPC, 2.0)


def test_settings_at_the_ends_of_their_ranges_are_accepted():
    Armijo(rho=0.0)
    ScaledGradient(sigma=0.0, s_lpc=1e9)
    ScaledGradient(sigma=0.5, s_lpc=2.0)


UNEQUAL = r"`ScaledGD\(lr=...\)` must be equal in all groups, got \[0.5, 1.0\]"


def test_unequal_lr_is_refused_at_construction():
    with pytest.raises(ValueError, match=UNEQUAL):
        ScaledGD([{"params": [parameter()], "lr": 0.5}, {"params": [parameter()]}])


def test_lr_made_unequal_later_is_refused_at_the_step_and_nothing_moves():
    a, b = parameter(), parameter()
    optimizer = ScaledGD([{"params": [a]}, {"params": [b]}])
    optimizer.param_groups[0]["lr"] = 0.5
    with pytest.raises(ValueError, match=UNEQUAL):
        optimizer.step(lambda: square(a) + square(b))
    assert a.tolist() == b.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (lambda **kw: ScaledGD([parameter()], **kw), "ScaledGD"),
        (lambda **kw: FunctionObjective(square, torch.ones(2), **kw), "FunctionObjective"),
        (lambda **kw: ModuleObjective(nn.Linear(1, 1), square, torch.ones(1, 1), **kw), "Module"),
    ],
    ids=["ScaledGD", "FunctionObjective", "ModuleObjective"],
)
def test_an_unknown_product_is_refused_at_construction_by_the_users_own_call(make, call):
    with pytest.raises(ValueError, match=rf"`{call}.*\(product='hessian'\)` is unknown.*'auto'"):
        make(product="hessian")


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_weight_decay_out_of_range_is_refused_by_the_users_own_call(value):
    with pytest.raises(ValueError, match=rf"`ModuleObjective\(weight_decay=...\)`.*got {value}"):
        ModuleObjective(nn.Linear(1, 1), square, torch.ones(1, 1), weight_decay=value)


def test_gauss_newton_where_there_are_no_outputs_says_what_to_use():
    with pytest.raises(ValueError, match=r"`ScaledGD\(product='gauss-newton'\)`.*ModuleObjective"):
        ScaledGD([parameter()], product="gauss-newton")
    with pytest.raises(ValueError, match=r"gauss-newton.*use `ModuleObjective`"):
        FunctionObjective(square, torch.ones(2), product="gauss-newton")
    with pytest.raises(ValueError, match=r"gauss-newton.*pass `inputs`"):
        ModuleObjective(nn.Linear(1, 1), lambda model: model.weight.sum(), product="gauss-newton")


@pytest.mark.parametrize(
    "name", ["max_oracle_calls", "max_iterations", "max_seconds", "gtol", "gtol_rel", "ftol"]
)
@pytest.mark.parametrize("value", [-1, math.nan])
def test_negative_budgets_and_tolerances_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"`minimize\({name}=...\)` must be.*got {value}"):
        minimize(square, torch.ones(2), **{name: value})


@pytest.mark.parametrize(("value", "kind"), [(2.5, ValueError), (True, TypeError)])
def test_a_number_of_iterations_is_a_whole_number(value, kind):
    message = rf"`minimize\(max_iterations=...\)` must be a.* number, got {value}"
    with pytest.raises(kind, match=message):
        minimize(square, torch.ones(2), max_iterations=value)
    for count in (3, 3.0, np.int64(3)):
        assert minimize(square, torch.ones(2), gtol=0, max_iterations=count).iterations <= 3


@pytest.mark.parametrize("count", [2.5, True, "3"])
def test_other_counts_are_ints(count):
    for refused in (
        lambda: families.Multinomial(classes=count),
        lambda: PROBLEMS["digits-logistic"].load(Options(subset=count)),
        lambda: LazyStep(max_bytes=count),
    ):
        with pytest.raises(TypeError, match=rf"must be an int, got {count!r}"):
            refused()
    assert LazyStep(memory=np.int64(3)).memory == 3  # an int of NumPy is one


@pytest.mark.parametrize("method", [3, ScaledGradient, object()])
def test_something_else_than_a_method_is_refused(method):
    with pytest.raises(TypeError, match=r"`minimize\(method=...\)` must be a name.*'CGMR'.*got"):
        minimize(square, torch.ones(2), method=method)


@pytest.mark.parametrize("name", ["", "newton", "CGXX", "lazy step"])
def test_an_unknown_name_of_a_method_is_refused(name):
    with pytest.raises(ValueError, match=rf"`minimize\(method='{name}'\)` is unknown.*'lazy'"):
        minimize(square, torch.ones(2), method=name)


# The start


@pytest.mark.parametrize(
    ("x0", "place"),
    [
        (None, "x0"),
        ("ones", "x0"),
        ([1.0, [2.0, 3.0]], "x0"),
        (np.ones(2, dtype=complex), "x0"),
        ({"w": torch.ones(2), "b": (1.0, None)}, r"x0\['b'\]\[1\]"),
    ],
)
def test_a_start_that_is_no_numbers_is_refused_by_its_place(x0, place):
    with pytest.raises(TypeError, match=rf"takes a number, a list.*`{place}` is"):
        minimize(square, x0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex128])
def test_a_start_that_is_not_real_floating_point_is_refused(dtype):
    remedy = "view_as_real" if dtype.is_complex else "double"
    with pytest.raises(TypeError, match=rf"x0.*floating-point.*got {dtype}.*{remedy}"):
        minimize(square, torch.ones(2, dtype=dtype))


@pytest.mark.parametrize("x0", [torch.ones(0), [], {}, {"w": torch.ones(0)}])
def test_an_empty_start_is_refused(x0):
    with pytest.raises(ValueError, match=r"empty x0. Pass at least one number"):
        minimize(square, x0)


def test_several_dtypes_in_a_start_are_refused():
    with pytest.raises(ValueError, match=r"x0.*several dtypes \(torch.float32, torch.float64\)"):
        minimize(lambda p: square(p[0]), [torch.ones(2).float(), torch.ones(2).double()])


@pytest.mark.parametrize(
    "numpy", [np.sum, np.linalg.norm, lambda x: np.exp(x).sum(), lambda x: np.float64(3)]
)
def test_a_loss_computed_by_numpy_is_answered_with_torch_and_with_numpy_objective(numpy):
    with pytest.raises(TypeError, match=r"Write it with torch.*NumpyObjective\(fun, jac\)"):
        minimize(numpy, np.ones(2))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("lr", "set by the curvature"),
        ("maxiter", "use `max_iterations`"),
        ("max_iter", "use `max_iterations`"),
        ("options", "max_iterations=100"),
        ("jac", "NumpyObjective"),
        ("hess", "NumpyObjective"),
        ("xtol", "`ftol`"),
        ("history_size", r"LazyStep\(memory=...\)"),
        ("callbak", "use `callback`"),
        ("max_iteration", "use `max_iterations`"),
        ("colour", "It has fun, x0, args, method"),
        ("maximize", "return the negative of fun"),
        ("device", r"`x0.to\(...\)`"),
    ],
)
def test_an_unknown_keyword_is_answered_with_the_one_meant(name, meant):
    with pytest.raises(TypeError, match=rf"`minimize\({name}=...\)` is not an argument.*{meant}"):
        minimize(square, torch.ones(2), **{name: 1})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("wd", "use `weight_decay`"),
        ("weight_deca", "use `weight_decay`"),
        ("y", "use `targets`"),
        ("max_iterations", "pass it to `minimize`"),
        ("batch_size", r"use `FiniteSum\(model, loss_fn, data, chunk_size=...\)`"),
        ("colour", "It has model, loss_fn, inputs"),
    ],
)
def test_an_unknown_keyword_of_a_module_objective_is_answered_too(name, meant):
    message = rf"`ModuleObjective\({name}=...\)` is not an argument.*{meant}"
    with pytest.raises(TypeError, match=message):
        ModuleObjective(nn.Linear(2, 1), mse_loss, torch.ones(1, 2), torch.ones(1, 1), **{name: 1})


@pytest.mark.parametrize(
    ("fun", "args", "called", "defined"),
    [
        (lambda: 1.0, (), "x", ""),
        (lambda x, A: 1.0, (), "x", "x, A"),
        (lambda x: 1.0, (2, 3), r"x, args\[0\], args\[1\]", "x"),
    ],
)
def test_a_function_of_other_arguments_is_refused(fun, args, called, defined):
    message = (
        rf"calls `fun\({called}\)`, but it is defined as `fun\({defined}\)`.*lambda x: .*`args`"
    )
    with pytest.raises(TypeError, match=message):
        minimize(fun, torch.ones(2), args)


def test_a_loss_of_other_arguments_than_a_module_gives_is_refused():
    model, data = nn.Linear(2, 1), (torch.ones(1, 2), torch.ones(1, 1))
    with pytest.raises(TypeError, match=r"calls `fun\(model\)`, but .* `fun\(\)`.*lambda model: "):
        minimize(lambda: mse_loss(model(data[0]), data[1]), model)
    with pytest.raises(
        TypeError, match=r"calls `loss_fn\(outputs, targets\)`, but .*`loss_fn\(o\)`"
    ):
        ModuleObjective(model, lambda o: o.sum(), *data)
    with pytest.raises(TypeError, match=r"calls `loss_fn\(model\)`.*without inputs the model"):
        ModuleObjective(model, mse_loss)
    with pytest.raises(TypeError, match=r"calls `fun\(x\)`, but it is defined as `fun\(\)`"):
        FunctionObjective(lambda: 1.0, torch.ones(2))
    assert minimize(torch.linalg.norm, torch.ones(2)).status is not None  # it has no signature


@pytest.mark.parametrize("given", [{"args": (1,)}, {"product": "difference"}])
def test_what_belongs_to_an_objective_is_refused_beside_one(given):
    (name,) = given
    with pytest.raises(TypeError, match=rf"`minimize\({name}=...\)` has no meaning with an obj"):
        minimize(FunctionObjective(square, torch.ones(2)), torch.ones(2), **given)


def test_two_names_for_one_tolerance_must_agree():
    with pytest.raises(ValueError, match=r"`minimize\(gtol=0.1, tol=0.2\)`: both name"):
        minimize(square, torch.ones(2), gtol=0.1, tol=0.2)


def test_a_module_as_start_needs_its_own_objective():
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    remedy = r"`minimize\(ModuleObjective\(model, ...\), model\)`"
    with pytest.raises(TypeError, match=remedy):
        minimize(FunctionObjective(square, torch.ones(3)), model)
    with pytest.raises(TypeError, match=remedy):
        minimize(ModuleObjective(other, square, torch.ones(1, 2)), model)


def test_something_else_than_a_callable_is_refused():
    with pytest.raises(TypeError, match=r"must be callable, got int: 3"):
        minimize(3, torch.ones(2))
    with pytest.raises(TypeError, match=r"fun must be callable, got Tensor of shape \(2,\)\.$"):
        minimize(torch.ones(2), square)
    with pytest.raises(TypeError, match=r"`Mod.*callable, got Tensor of shape \(5, 2\)\.$"):
        ModuleObjective(nn.Linear(2, 1), torch.ones(5, 2), torch.ones(5, 1), mse_loss)
    with pytest.raises(TypeError, match=r"`ModuleObjective\(model=...\)` must be an nn.Module"):
        ModuleObjective(square, mse_loss)


@pytest.mark.parametrize("held", [list, tuple, lambda ps: next(iter(ps))])
def test_the_parameters_of_a_module_in_place_of_it_are_answered_with_the_module(held):
    model = nn.Linear(2, 1)
    with pytest.raises(TypeError, match=r"calls its argument.*`minimize\(lambda model: .*, model"):
        minimize(lambda model: square(model(torch.ones(1, 2))), held(model.parameters()))


@pytest.mark.parametrize("x0", [torch.ones(4), torch.ones(2, 2)])
def test_a_vector_of_the_wrong_length_is_refused_by_name(x0):
    with pytest.raises(ValueError, match=r"x0"):
        minimize(ModuleObjective(nn.Linear(2, 1), square, torch.ones(1, 2)), x0)


# The parameters


def test_an_empty_parameter_list_is_refused():
    with pytest.raises(ValueError, match=r"empty parameter list"):
        ScaledGD([])


def test_parameters_that_are_all_frozen_are_refused():
    with pytest.raises(ValueError, match=r"no trainable parameters.*requires_grad=True"):
        ScaledGD([parameter().requires_grad_(False)])
    model = nn.Linear(2, 1).requires_grad_(False)
    with pytest.raises(ValueError, match=r"`ModuleObjective\(model\)` got no trainable param"):
        ModuleObjective(model, mse_loss, torch.ones(1, 2), torch.ones(1, 1))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"dtype": torch.float32}, r"several dtypes \(torch.float32, torch.float64\)"),
        ({"device": "meta"}, r"several devices \(cpu, meta\)"),
    ],
)
def test_mixed_dtypes_and_devices_are_refused(other, message):
    mixed = nn.ParameterList([parameter(), nn.Parameter(torch.ones(3, **other))])
    with pytest.raises(ValueError, match=rf"`ScaledGD\(params\)` got.*{message}.*to one"):
        ScaledGD(mixed.parameters())
    with pytest.raises(ValueError, match=rf"`ModuleObjective\(model\)` got.*{message}"):
        ModuleObjective(mixed, lambda model: square(model[0]))


def test_complex_parameters_are_answered_with_a_real_view():
    remedy = r"real floating-point.*got torch.complex128.*`torch.view_as_real\(z\)`"
    z = parameter(dtype=torch.complex128)
    with pytest.raises(TypeError, match=remedy):
        ScaledGD([z])
    with pytest.raises(TypeError, match=remedy):
        ScaledGD([parameter(), z])
    pairs, target = torch.view_as_real(z.detach()), torch.tensor([1 + 2j, 3j, 0])[: len(z)]
    result = minimize(lambda x: (torch.view_as_complex(x) - target).abs().square().sum(), pairs)
    assert torch.allclose(torch.view_as_complex(result.x), target.to(z.dtype))


def test_integers_are_to_be_converted():
    with pytest.raises(ValueError, match=r"no trainable parameters.*convert integers first"):
        ScaledGD([torch.arange(3)])


@pytest.mark.parametrize("kind", ["module", "closure", "backward closure"])
def test_sparse_gradients_are_refused(kind):
    model, tokens = nn.Embedding(5, 2, sparse=True), torch.tensor([1, 3])
    before = model.weight.detach().clone()

    def closure():
        loss = square(model(tokens))
        if kind == "backward closure":
            loss.backward()
        return loss

    doors = {"module": lambda: minimize(ModuleObjective(model, square, tokens), model)}
    door = doors.get(kind, lambda: ScaledGD(model.parameters()).step(closure))
    with pytest.raises(TypeError, match=r"sparse gradient.*sparse=False"):
        door()
    assert torch.equal(model.weight, before)


# The loss


def doors(loss):
    """The same bad loss through each door: a function, a module and a closure."""

    def function():
        minimize(loss, torch.ones(2))

    def module():
        model = nn.Linear(2, 1, bias=False)
        minimize(ModuleObjective(model, lambda m: loss(m.weight[0])), model)

    def closure():
        w = parameter()
        ScaledGD([w], method="CGMR").step(lambda: loss(w))

    return {"fun": function, "the loss": module, "the closure": closure}


BAD_LOSSES = {
    "a vector": (lambda x: x * x, ValueError, r"one number, got a tensor of shape \(2,\).*mean"),
    "complex": (lambda x: square(x) * (1 + 0j), TypeError, "complex number.*Return a real one"),
    "an integer": (lambda x: square(x).long(), TypeError, "torch.int64. Return a floating-point"),
    "none": (lambda x: None, TypeError, "returned None. Return the loss"),
    "a dict": (lambda x: {"loss": square(x)}, TypeError, r"a dict. Return `loss`, or `\(loss, aux"),
    "a list": (lambda x: [square(x)], TypeError, r"a list. Return `loss`, or `\(loss, aux\)`"),
    "a float": (lambda x: square(x).item(), TypeError, "must return a tensor, got float"),
    "detached": (lambda x: square(x).detach(), ValueError, "does not depend on the parameters"),
    "constant": (lambda x: torch.ones(()), ValueError, r"does not depend.*without `.detach\(\)`"),
    "another's": (
        lambda x: square(torch.ones(2, requires_grad=True)),
        ValueError,
        "does not depend on any of the parameters",
    ),
}


@pytest.mark.parametrize("door", ["fun", "the loss", "the closure"])
@pytest.mark.parametrize(("loss", "error", "message"), BAD_LOSSES.values(), ids=BAD_LOSSES)
def test_what_cannot_be_a_loss_is_refused_with_the_remedy(door, loss, error, message):
    with pytest.raises(error, match=rf"^{door}.*{message}"):
        doors(loss)[door]()


@pytest.mark.parametrize("door", ["fun", "the closure"])
def test_inference_mode_is_named(door):
    run = doors(square)[door]
    with torch.inference_mode(), pytest.raises(ValueError, match=r"inside `torch.inference_mode"):
        run()


@pytest.mark.parametrize("kind", ["loss", "outputs", "outputs, backward"])
@pytest.mark.parametrize("method", ["lazy", "CGMR"])
def test_a_forward_pass_outside_of_the_closure_is_named(method, kind):
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    outputs, before = model(torch.randn(5, 2)), [p.detach().clone() for p in model.parameters()]
    loss, optimizer = square(outputs), ScaledGD(model.parameters(), method=method)

    def closure():
        again = loss if kind == "loss" else square(outputs)
        if kind == "outputs, backward":
            again.backward()
        return again

    with pytest.raises(RuntimeError, match="Run the forward pass inside the closure"):
        optimizer.step(closure)
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_a_step_without_a_closure_is_refused():
    with pytest.raises(ValueError, match=r"`ScaledGD.step\(closure\)` needs a closure.*lambda"):
        ScaledGD([parameter()]).step()


NOT_FINITE = {
    "f": (lambda x: square(x) + math.inf, "f is inf at the starting point"),
    "f, not a number": (lambda x: square(x) * math.nan, "f is nan at the starting point"),
    "g": (lambda x: (x - x.detach()).abs().sqrt().sum(), "gradient is not finite.*although f is"),
    # At 0 the second derivative of |x|^1.5 is infinite, value and gradient are not.
    "Hg": (
        lambda x: ((x - torch.tensor([1.0, 9.0])).abs() ** 1.5).sum(),
        "Hessian-vector product is not finite",
    ),
}


@pytest.mark.parametrize("door", ["fun", "the closure"])
@pytest.mark.parametrize(("loss", "message"), NOT_FINITE.values(), ids=NOT_FINITE)
def test_a_start_that_is_not_finite_says_which_of_f_g_and_Hg_is_not(door, loss, message):
    with pytest.raises(NonFiniteError, match=message):
        doors(loss)[door]()


def test_a_product_that_is_not_finite_at_the_start_says_where_and_what_to_do():
    with pytest.raises(
        NonFiniteError, match=r"product is not finite at the starting point.*[Ss]tart"
    ):
        doors(NOT_FINITE["Hg"][0])["fun"]()


def test_a_batch_that_is_not_finite_is_told_from_the_start():
    w = parameter()
    optimizer = ScaledGD([w])
    optimizer.step(lambda: square(w))
    with pytest.raises(NonFiniteError, match=r"f is nan at the start of step 1\."):
        optimizer.step(lambda: square(w) * math.nan)


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ({"learning_rate": 1e-3}, "first trial step is `lr`"),
        ({"history_size": 5}, r"LazyStep\(memory=...\)"),
        ({"method": "CGMR"}, r"for all groups. Use `ScaledGD\(..., method=...\)`"),
        ({"bound": (0, None)}, "use 'bounds'"),
    ],
)
def test_a_setting_that_a_group_does_not_have_is_refused_with_the_remedy(setting, remedy):
    (name,) = setting
    with pytest.raises(ValueError, match=rf"group of `ScaledGD` has '{name}': .*{remedy}"):
        ScaledGD([{"params": [parameter()], **setting}])


def test_tags_of_a_group_and_what_schedulers_add_to_it_may_stay():
    group = {"params": parameter(), "name": "encoder", "lr_scale": 0.5, "foreach": None}
    optimizer = ScaledGD([group])
    torch.optim.lr_scheduler.StepLR(optimizer, 10)
    again = ScaledGD(optimizer.param_groups)  # `initial_lr` is in them
    again.load_state_dict(optimizer.state_dict())
    assert again.param_groups[0]["name"] == "encoder"


@pytest.mark.parametrize("setting", [{"weight_decay": 0.1}, {"betas": (0.9, 0.99)}])
def test_settings_of_other_optimizers_in_a_group_are_refused(setting):
    one, two = parameter(), parameter()
    with pytest.raises(ValueError, match=rf"`ScaledGD` has no {next(iter(setting))}"):
        ScaledGD([{"params": [one], **setting}, {"params": [two]}])
    optimizer = ScaledGD([{"params": [one], "weight_decay": 0.0}])  # as trainers write it
    with pytest.raises(ValueError, match="has no"):
        optimizer.add_param_group({"params": [two], **setting})


@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.5])
def test_a_rate_left_over_from_another_optimizer_brings_a_warning(rate):
    told = rf"`ScaledGD\(lr={rate}\)` tries {rate} of the step.*Leave it at 1.0"
    with pytest.warns(UserWarning, match=told):
        ScaledGD([parameter()], lr=rate)


def test_parameters_stay_put_when_the_start_is_not_finite():
    for loss, _ in NOT_FINITE.values():
        w = parameter()
        optimizer = ScaledGD([w], method="CGMR")
        with pytest.raises(NonFiniteError):
            optimizer.step(lambda w=w, loss=loss: loss(w))
        assert w.tolist() == [1.0, 2.0]


# A loss that differs between two evaluations


class OwnGenerator(nn.Module):
    """Random, but not by torch's generator, which is replayed."""

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, z):
        return z + torch.rand(z.shape, generator=self.generator)


class NumpyNoise(nn.Module):
    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(0)

    def forward(self, z):
        return z + float(self.rng.random())


class Counting(nn.Module):
    """Not random at all, but a state that changes."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, z):
        self.calls += 1
        return z * self.calls


def noisy(culprit):
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Tanh(), culprit), nn.Linear(2, 1))


@pytest.mark.parametrize("culprit", [OwnGenerator, NumpyNoise, Counting])
def test_a_module_whose_output_differs_is_named_with_its_place(culprit):
    model = noisy(culprit())
    objective = ModuleObjective(model, square, torch.ones(3, 2))
    with pytest.raises(NondeterministicError, match=rf"'1.1', {culprit.__name__}\(\).*check=False"):
        minimize(objective, model)


@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("culprit", [OwnGenerator, NumpyNoise, Counting])
def test_in_a_closure_it_is_named_by_its_class(culprit, backward):
    model = noisy(culprit())
    before = [p.detach().clone() for p in model.parameters()]

    def closure():
        loss = square(model(torch.ones(3, 2)))
        if backward:
            loss.backward()
        return loss

    with pytest.raises(NondeterministicError, match=rf"differs is {culprit.__name__}\(\)"):
        ScaledGD(model.parameters()).step(closure)
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert [p.grad for p in model.parameters()] == [None] * 4


def test_a_module_whose_input_differs_already_is_not_blamed():
    model, rng = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), np.random.default_rng(0)
    innocent = r"differs is Linear\(in_features=2, out_features=2.*its input differs already"
    with pytest.raises(NondeterministicError, match=innocent):
        ScaledGD(model.parameters()).step(lambda: square(model(torch.ones(3, 2) + rng.random())))
    guilty = noisy(NumpyNoise())
    with pytest.raises(NondeterministicError) as refused:
        ScaledGD(guilty.parameters()).step(lambda: square(guilty(torch.ones(3, 2))))
    assert "already" not in str(refused.value)


@pytest.mark.parametrize("method", ["lazy", "plane", "CGMR"])
def test_a_broken_promise_of_reuse_value_is_named(method):
    model, batches = nn.Linear(2, 1), torch.randn(2, 5, 2)
    targets = torch.randn(5, 1)
    optimizer = ScaledGD(model.parameters(), method=method, reuse_value=True)
    optimizer.step(lambda: mse_loss(model(batches[0]), targets))
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(NondeterministicError, match=r"reuse_value=True.* needs the same loss"):
        # Lower than promised, so that the step itself would not fail.
        optimizer.step(lambda: mse_loss(model(batches[1]), targets) - 100)
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_a_promise_of_reuse_value_that_is_broken_later_is_named_where_a_step_fails():
    model, targets = nn.Linear(2, 1), torch.randn(50, 1)
    optimizer = ScaledGD(model.parameters(), method="lazy", reuse_value=True)

    def steps(inputs):
        for _ in range(4):
            optimizer.step(lambda: mse_loss(model(inputs), targets))

    steps(torch.randn(50, 2))
    with pytest.raises(NondeterministicError, match=r"reuse_value=True.* needs the same loss"):
        steps(3 + torch.randn(50, 2))


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("method", ["lazy", "CGMR"])
def test_data_that_get_a_nan_later_are_named_although_the_value_is_reused(method, check):
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.linspace(-3, 3, 40)[:, None]
    y = torch.sin(2 * x)
    optimizer = ScaledGD(model.parameters(), method=method, reuse_value=True, check=check)
    for _ in range(3):
        optimizer.step(lambda: mse_loss(model(x), y))
    before = [p.detach().clone() for p in model.parameters()]
    x[0] = math.nan
    with pytest.raises(NonFiniteError, match=r"loss is nan at the parameters where the last.*data"):
        optimizer.step(lambda: mse_loss(model(x), y))
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_a_promise_of_reuse_value_is_not_looked_at_without_check():
    model, batches = nn.Linear(2, 1), torch.randn(2, 5, 2)
    optimizer = ScaledGD(model.parameters(), reuse_value=True, check=False)
    for batch in batches:
        optimizer.step(lambda batch=batch: mse_loss(model(batch), torch.ones(5, 1)))
    assert optimizer.last_step.iteration == 1
    with pytest.warns(UserWarning, match="did not move"):  # nor where a step fails
        optimizer.step(lambda: 100 + mse_loss(model(batches[0]), torch.ones(5, 1)))


@pytest.mark.parametrize("fails", [False, True])
def test_looking_at_the_promise_leaves_no_trace(fails):
    """The second step may be skipped, or fail: parameters and buffers are those of its start."""
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    inputs, targets = torch.randn(6, 2), torch.randn(6, 1)
    optimizer = ScaledGD(model.parameters(), reuse_value=True)
    optimizer.step(lambda: mse_loss(model(inputs), targets))
    before = {k: v.clone() for k, v in model.state_dict().items()}

    def second():
        mse_loss(model(inputs), targets)
        if fails:
            raise KeyError("from the user's own code")

    if fails:
        with pytest.raises(KeyError):
            optimizer.step(second)
    else:
        with pytest.warns(UserWarning, match="returned None"):
            assert optimizer.step(second).isnan()
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize("make", [ModuleObjective, FiniteSum], ids=["module", "finite sum"])
def test_inputs_in_another_precision_are_refused_with_the_remedy(make):
    model = nn.Linear(2, 1, dtype=torch.float32)
    X, Y = torch.ones(3, 2, dtype=torch.float64), torch.ones(3, 1)
    data = ((X, Y),) if make is FiniteSum else (X, Y)
    with pytest.raises(RuntimeError, match=r"`inputs.to\(torch.float32\)` or `model.to\(torch.fl"):
        minimize(make(model, nn.functional.mse_loss, *data), model)


def test_a_function_that_differs_says_to_look_outside_of_modules():
    rng = np.random.default_rng(0)
    with pytest.raises(
        NondeterministicError, match=r"^fun differs.*the cause is outside of modules"
    ):
        minimize(lambda x: square(x) + float(rng.random()), torch.ones(2))


def test_batches_that_change_within_a_step_are_caught():
    w, batches = parameter(), iter(torch.randn(100, 2))
    with pytest.raises(NondeterministicError, match=r"^the closure differs"):
        ScaledGD([w]).step(lambda: square(w - next(batches)))
    assert w.tolist() == [1.0, 2.0]


def test_the_check_can_be_switched_off():
    rng = np.random.default_rng(0)

    def fun(x):
        return square(x) + 1e-3 * float(rng.random())

    objective = FunctionObjective(fun, torch.ones(2), check=False)
    assert minimize(objective, torch.ones(2), max_iterations=1).iterations == 1


@pytest.mark.filterwarnings("ignore:.*draws random numbers:UserWarning")
def test_torchs_own_randomness_is_replayed_and_no_difference():
    model = noisy(nn.Dropout(0.5))
    result = minimize(ModuleObjective(model, square, torch.ones(3, 2)), model, max_iterations=3)
    assert result.iterations == 3


def test_errors_can_be_caught_by_the_builtin_kinds_they_are():
    assert issubclass(firstish.NonFiniteError, ValueError)
    assert issubclass(firstish.NondeterministicError, ValueError)
    assert issubclass(firstish.ProductError, RuntimeError)


def test_a_module_in_place_of_its_parameters_is_refused():
    with pytest.raises(TypeError, match=r"`ScaledGD\(params\)`.*Linear.*model.parameters\(\)"):
        ScaledGD(nn.Linear(2, 1))


def test_a_loss_in_place_of_the_closure_is_refused():
    optimizer = ScaledGD(nn.Linear(2, 1).parameters())
    with pytest.raises(TypeError, match=r"`ScaledGD.step\(closure\)`.*got Tensor.*lambda"):
        optimizer.step(torch.tensor(1.0))


def test_a_rate_that_is_no_number_is_refused():
    with pytest.raises(TypeError, match=r"`ScaledGD\(lr=...\)` must be a number, got 'a'"):
        ScaledGD(nn.Linear(2, 1).parameters(), lr="a")


@pytest.mark.parametrize("returned", [lambda point: point, lambda point: (point, None)])
def test_a_method_that_does_not_return_three_things_is_named(returned):
    class Halving:
        order = 1

        def init(self, point):
            return None

        def step(self, point, state):
            return returned(point.along(point.grad, -0.5))

    with pytest.raises(TypeError, match=r"`Halving.step\(point, state\)` must return the next"):
        minimize(lambda x: (x**2).sum(), torch.ones(2), method=Halving())

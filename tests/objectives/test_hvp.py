"""Hessian-vector products, three ways, against dense truth; and which way is taken."""

import math
import warnings
from functools import partial

import pytest
import torch
from marks import AOT
from torch import nn
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import (
    cross_entropy,
    ctc_loss,
    log_softmax,
    mse_loss,
    scaled_dot_product_attention,
)

import firstish
from firstish import Curvature, FunctionObjective, ModuleObjective, ProductError, ScaledGradient

# The paper's method is what these tests are about, not the default one.
minimize = partial(firstish.minimize, method="CGMR")

ROOT_EPS = math.sqrt(torch.finfo(torch.float64).eps)


def mlp():
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def as_function(model, loss_fn, *data):
    """The loss as a function of one vector, and the model's outputs likewise."""
    shapes = {name: p.shape for name, p in model.named_parameters()}

    def outputs(x):
        parts = x.split([s.numel() for s in shapes.values()])
        swapped = {n: t.view(s) for (n, s), t in zip(shapes.items(), parts, strict=True)}
        return functional_call(model, swapped, (data[0],))

    return (lambda x: loss_fn(outputs(x), *data[1:])), outputs


@pytest.fixture
def classified():
    return torch.randn(15, 4), torch.arange(15) % 3


@pytest.mark.parametrize(
    ("product", "rtol"), [("double-backward", 1e-12), ("difference", 1e-6), ("auto", 1e-12)]
)
def test_products_are_the_dense_hessian_times_v(classified, product, rtol):
    model = mlp()
    objective = ModuleObjective(model, cross_entropy, *classified, product=product)
    x = objective.initial()
    H = hessian(as_function(model, cross_entropy, *classified)[0], x)
    point = objective.at(x)
    for v in (point.grad, torch.randn_like(x)):
        made = point.hvp(v)
        assert torch.linalg.norm(made.vector - H @ v) <= rtol * torch.linalg.norm(H @ v)


def dense_gauss_newton(model, loss_fn, x, inputs, targets):
    outputs = as_function(model, loss_fn, inputs, targets)[1]
    J = jacobian(outputs, x).reshape(-1, x.numel())
    z = outputs(x).detach()
    H = hessian(lambda z: loss_fn(z, targets), z).reshape(J.shape[0], J.shape[0])
    return J.T @ H @ J


def test_gauss_newton_products_are_the_dense_gauss_newton_matrix_times_v(classified):
    model = mlp()
    objective = ModuleObjective(model, cross_entropy, *classified, product="gauss-newton")
    x = objective.initial()
    G = dense_gauss_newton(model, cross_entropy, x, *classified)
    point = objective.at(x)
    for v in (point.grad, torch.randn_like(x)):
        torch.testing.assert_close(point.hvp(v).vector, G @ v, rtol=1e-12, atol=1e-13)
    assert torch.linalg.eigvalsh(G)[0] > -1e-12


def test_gauss_newton_adds_the_weight_decay(classified):
    model = mlp()
    objective = ModuleObjective(
        model, cross_entropy, *classified, product="gauss-newton", weight_decay=0.25
    )
    x = objective.initial()
    G = dense_gauss_newton(model, cross_entropy, x, *classified)
    point = objective.at(x)
    expected = G @ point.grad + 0.25 * point.grad
    torch.testing.assert_close(point.hvp(point.grad).vector, expected, rtol=1e-12, atol=1e-13)


def test_gauss_newton_of_a_loss_linear_in_the_outputs_is_zero(classified):
    objective = ModuleObjective(mlp(), lambda z: z.mean(), classified[0], product="gauss-newton")
    point = objective.at(objective.initial())
    assert not point.hvp(point.grad).vector.any()


def test_gauss_newton_never_reports_negative_curvature_where_the_hessian_does():
    kinds = {}
    for product in ("double-backward", "gauss-newton"):
        torch.manual_seed(1)
        inputs = torch.randn(15, 4)
        targets = torch.sign(inputs[:, :1] * inputs[:, 1:2])
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1), nn.Tanh())
        objective = ModuleObjective(model, mse_loss, inputs, targets, product=product)
        result = minimize(objective, model, max_iterations=60, gtol=1e-12)
        kinds[product] = {row.curvature for row in result.history[:-1]}
    assert Curvature.NC in kinds["double-backward"]
    assert Curvature.NC not in kinds["gauss-newton"]


def test_gauss_newton_with_outputs_that_are_no_tensor_says_so():
    model = nn.LSTM(3, 2)
    objective = ModuleObjective(
        model, lambda out: (out[0] ** 2).mean(), torch.randn(4, 3), product="gauss-newton"
    )
    with pytest.raises((TypeError, ValueError, ProductError), match="gauss-newton"):
        minimize(objective, model, max_iterations=1)


def test_gauss_newton_through_an_operation_that_cannot_do_it_names_it():
    model = Attention()
    objective = ModuleObjective(
        model, lambda z: (z**2).mean(), torch.randn(2, 5, 4), product="gauss-newton"
    )
    with pytest.raises(ProductError, match="attention"):
        minimize(objective, model, max_iterations=1)


# What cannot be differentiated twice


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4, 12)

    def forward(self, z):
        q, k, v = self.qkv(z).chunk(3, dim=-1)
        return scaled_dot_product_attention(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1))


def attention_case():
    model, inputs = Attention(), torch.randn(2, 5, 4)
    return model, (lambda z: (z**2).mean()), (inputs,)


def transformer_case(train):
    model = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True).train(train)
    inputs = torch.randn(2, 5, 4)
    return model, (lambda z: (z[..., 0] ** 2).mean()), (inputs,)


class Distances(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(3, 4))

    def forward(self, z):
        return torch.cdist(z, self.centres)


def cdist_case():
    return Distances(), (lambda z: (z**3).mean()), (torch.randn(6, 4),)


def ctc_case():
    targets = torch.tensor([[1, 2], [2, 1]])

    def loss_fn(z):
        return ctc_loss(
            log_softmax(z, -1), targets, torch.tensor([5, 5]), torch.tensor([2, 2]), reduction="sum"
        )

    return nn.Linear(4, 3), loss_fn, (torch.randn(5, 2, 4),)


CASES = {
    "attention": (attention_case, "attention"),
    "transformer in train mode": (lambda: transformer_case(True), "attention"),
    "transformer in eval mode": (lambda: transformer_case(False), "attention"),
    "cdist": (cdist_case, "cdist"),
    "ctc_loss": (ctc_case, "ctc_loss"),
}


@pytest.mark.parametrize(("case", "operation"), CASES.values(), ids=CASES)
def test_auto_names_the_operation_and_uses_differences(case, operation):
    model, loss_fn, data = case()
    objective = ModuleObjective(model, loss_fn, *data)
    x = objective.initial()
    f = as_function(model, loss_fn, *data)[0]

    def gradient(x):
        return torch.func.grad(f)(x)

    point = objective.at(x)
    with pytest.warns(UserWarning, match=f"{operation}.*cannot be differentiated twice"):
        made = point.hvp(point.grad)
    with sdpa_kernel(SDPBackend.MATH):
        torch.testing.assert_close(point.grad, gradient(x), rtol=1e-10, atol=1e-12)
    v = point.grad
    h = 1e-4 / torch.linalg.norm(v)
    central = (gradient(x + h * v) - gradient(x - h * v)) / (2 * h)
    assert torch.linalg.norm(made.vector - central) <= 1e-5 * torch.linalg.norm(central)
    assert objective.product.mode == "difference"
    # Once is enough: what follows is silent (warnings are errors here).
    assert minimize(objective, model, max_iterations=5).iterations == 5


@pytest.mark.parametrize(("case", "operation"), CASES.values(), ids=CASES)
def test_insisting_on_double_backward_raises_with_the_operation_and_the_remedy(case, operation):
    model, loss_fn, data = case()
    objective = ModuleObjective(model, loss_fn, *data, product="double-backward")
    with pytest.raises(ProductError, match=rf"{operation}.*product='difference'"):
        minimize(objective, model, max_iterations=1)


@pytest.mark.parametrize("reuse", [True, False])
def test_auto_falls_back_in_a_closure_too(reuse):
    model, loss_fn, (inputs,) = attention_case()
    optimizer = firstish.ScaledGD(model.parameters(), reuse_value=reuse, method="CGMR")
    with pytest.warns(UserWarning, match="attention.*cannot be differentiated twice"):
        first = optimizer.step(lambda: loss_fn(model(inputs)))
    losses = [float(optimizer.step(lambda: loss_fn(model(inputs)))) for _ in range(5)]
    assert float(first) > losses[0] > losses[-1]


@AOT
@pytest.mark.compiles
def test_auto_falls_back_on_a_compiled_module_whose_names_gain_a_prefix():
    if torch.__version__.startswith("2.4."):
        pytest.skip("before torch 2.5 a compiled module keeps to its own parameters")
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    compiled = torch.compile(model, backend="aot_eager")
    inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
    objective = ModuleObjective(compiled, mse_loss, inputs, targets)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = minimize(objective, compiled, max_iterations=10)
    assert objective.product.mode == "difference"
    assert result.value < result.history[0].value
    assert mse_loss(model(inputs), targets).item() == pytest.approx(result.value)
    ours = [str(w.message) for w in told]
    assert len(ours) == 1, ours
    assert "torch.compile cannot be differentiated twice" in ours[0]


# What is differentiated twice, but wrongly


class WrongExp(torch.autograd.Function):
    """exp whose backward forgets that the derivative depends on x."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].detach()


class Once(torch.autograd.Function):
    """x^4; torch does not raise at a second derivative here, it leaves it out."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**4

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 4 * grad * x**3


@pytest.mark.parametrize(
    ("fun", "dense"),
    [
        (lambda x: WrongExp.apply(x).sum(), lambda x: x.exp()),  # looks linear: no graph at all
        (lambda x: (WrongExp.apply(x) ** 2).sum(), lambda x: 4 * (2 * x).exp()),  # half is there
        (lambda x: (Once.apply(x) ** 2).sum(), lambda x: 56 * x**6),
    ],
)
def test_auto_notices_a_wrong_double_backward(fun, dense):
    x = torch.tensor([0.3, -0.7, 1.1])
    objective = FunctionObjective(fun, x)
    point = objective.at(x)
    with pytest.warns(UserWarning, match="contradicts the change of the gradient"):
        Hg = point.hvp(point.grad).vector
    truth = dense(x) * point.grad
    assert torch.linalg.norm(Hg - truth) <= 1e-6 * torch.linalg.norm(truth)
    assert objective.product.mode == "difference"


def test_auto_notices_a_wrong_double_backward_in_a_closure():
    w = nn.Parameter(torch.tensor([0.3, -0.7]))
    optimizer = firstish.ScaledGD([w], method="CG")
    x = w.detach().clone()
    with pytest.warns(UserWarning, match="contradicts"):
        optimizer.step(lambda: (WrongExp.apply(w) - w).sum())
    g, h = x.exp() - 1, x.exp()
    assert optimizer.last_step.scale == pytest.approx(float(g @ g / (g @ (h * g))), rel=1e-5)


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: (1e9 * x).cos().sum(),  # bends within the difference's reach
        lambda x: (1e-9 * x).cosh().sum(),
        lambda x: (x**2).sum() * 1e150,
        lambda x: (x - 0.3).abs().sum() + (x**2).sum(),
        lambda x: 1e8 * x.sum() + (x**2).sum(),  # the difference sees little of the Hessian
    ],
)
def test_auto_does_not_accuse_a_double_backward_that_is_right(fun):
    x = torch.tensor([0.5, -1.5])
    objective = FunctionObjective(fun, x)
    point = objective.at(x)
    Hg = point.hvp(point.grad).vector  # silent: warnings are errors here
    torch.testing.assert_close(Hg, hessian(fun, x) @ point.grad)
    assert objective.product.mode == "double-backward"


# Curvature that a difference cannot decide


def bowl(c):
    slope = torch.tensor([3.0, 4.0])
    return lambda x: slope @ x + c / 2 * (x @ x)


@pytest.mark.parametrize(
    ("c", "case"),
    [
        (1e-3, Curvature.SPC),
        (1e-10, Curvature.LPC),
        (-1e-10, Curvature.LPC),
        (0.0, Curvature.LPC),
        (-1e-3, Curvature.NC),
    ],
)
def test_the_differences_error_never_decides_the_case(c, case):
    objective = FunctionObjective(bowl(c), torch.zeros(2), product="difference")
    method = ScaledGradient(sigma=0.0)
    result = minimize(objective, torch.zeros(2), method=method, max_iterations=1)
    assert result.history[0].curvature is case


@pytest.mark.parametrize("c", [1e3, -1e3])
def test_the_differences_truncation_does_not_decide_the_case_at_an_inflection(c):
    x = torch.zeros(1)  # f'' = 0 here, but it changes fast
    objective = FunctionObjective(lambda x: (x + c * x**3 / 6).sum(), x, product="difference")
    result = minimize(objective, x, max_iterations=1)
    assert result.history[0].curvature is Curvature.LPC


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_difference_is_off_by_no_more_than_it_says(dtype):
    A = torch.randn(6, 6) / 6
    for seed in range(20):
        torch.manual_seed(seed)
        x = torch.randn(6)
        exact = hessian(lambda x: (A @ x).cosh().sum(), x)
        low, B = x.to(dtype), A.to(dtype)
        objective = FunctionObjective(
            lambda x, B=B: (B @ x).cosh().sum(), low, product="difference"
        )
        point = objective.at(low)
        v = point.grad
        made = point.hvp(v)
        w, Hw = v.double(), made.vector.double()
        off = abs(float(w @ (Hw - exact @ w))) / float(w @ w)
        allowed = made.relative_error * torch.linalg.norm(Hw) / torch.linalg.norm(w)
        # It counts one rounding of each gradient; these are made of four operations.
        assert off <= float(allowed) + 4 * made.absolute_error


def test_a_double_backward_in_float64_claims_no_error_and_in_float32_a_rounding_one():
    for dtype, error in ((torch.float64, 0.0), (torch.float32, 8 * 2.0**-23)):
        x = torch.ones(3, dtype=dtype)
        point = FunctionObjective(lambda x: (x**4).sum(), x).at(x)
        made = point.hvp(point.grad)
        assert (made.relative_error, made.absolute_error) == (error, 0.0)


# Linear losses


@pytest.mark.parametrize("product", ["auto", "double-backward", "difference"])
def test_a_linear_loss_has_no_curvature_and_is_limited(product):
    x = torch.tensor([1.0, 2.0])
    fun = bowl(0.0)
    objective = FunctionObjective(lambda x: torch.tensor([3.0, 4.0]) @ x, x, product=product)
    point = objective.at(x)
    assert torch.linalg.norm(point.hvp(point.grad).vector) <= 100 * ROOT_EPS
    if product != "difference":
        assert not point.hvp(point.grad).vector.any()
    result = minimize(fun, x, max_iterations=3)
    assert [row.curvature for row in result.history[:-1]] == [Curvature.LPC] * 3
    assert [row.scale for row in result.history[:-1]] == [1.0] * 3


@pytest.mark.parametrize("product", ["auto", "double-backward"])
def test_a_module_with_a_linear_loss_is_limited(product):
    model = nn.Linear(3, 2)
    objective = ModuleObjective(model, lambda z: z.sum(), torch.ones(1, 3), product=product)
    result = minimize(objective, model, max_iterations=2)
    assert [row.curvature for row in result.history[:-1]] == [Curvature.LPC] * 2


def test_a_loss_linear_in_one_of_two_parameters_has_zeros_there():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.tensor([2.0])), nn.Parameter(torch.tensor([3.0]))

        def forward(self, z):
            return z * self.a + self.b**4

    model = Both()
    objective = ModuleObjective(model, lambda z: z.sum(), torch.ones(1))
    point = objective.at(objective.initial())
    assert point.hvp(torch.tensor([1.0, 1.0])).vector.tolist() == [0.0, 108.0]
    optimizer = firstish.ScaledGD(model.parameters(), method="CG")
    optimizer.step(lambda: model(torch.ones(1)).sum())
    g, Hg = torch.tensor([1.0, 108.0]), torch.tensor([0.0, 108.0 * 108.0])
    assert optimizer.last_step.scale == pytest.approx(float(g @ g / (g @ Hg)), rel=1e-12)


def test_a_linear_closure_is_limited():
    w = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = firstish.ScaledGD([w], method="CGMR")
    optimizer.step(lambda: (torch.tensor([3.0, 4.0]) * w).sum())
    assert optimizer.last_step.curvature is Curvature.LPC
    assert w.tolist() == [-2.0, -2.0]


def test_a_difference_that_x_cannot_hold_contradicts_nothing():
    # The gradient changes altogether over a distance of 1, of which 2^60 holds nothing.
    x = torch.tensor([2.0**60], dtype=torch.float64)
    objective = FunctionObjective(lambda x: ((x - 2.0**60 - 1) ** 2).sum() / 2, x)
    point = objective.at(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert point.hvp(point.grad).vector.tolist() == [-1.0]

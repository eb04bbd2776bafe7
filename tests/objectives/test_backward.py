"""The gradient by torch's engine itself is that of `torch.autograd.grad`."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from firstish import FunctionObjective, minimize
from firstish.objectives import autograd


def checkpointed(x: Tensor) -> Tensor:
    """Imported here: torch 2.4 warns of its own call."""
    from torch.utils.checkpoint import checkpoint

    loss = checkpoint(lambda y: y.sin().sum(), x, use_reentrant=False)
    assert isinstance(loss, Tensor)
    return loss


X = torch.linspace(-1.5, 2.0, 7, dtype=torch.float64)
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "polynomial": lambda x: (x**4 - x).sum(),
    "one entry": lambda x: x.exp()[:1],  # of shape (1,)
    "float32": lambda x: (x.to(torch.float32) ** 2).sum(),
    "view": lambda x: x.view(7, 1).matmul(x.view(1, 7)).trace(),
    "checkpointed": checkpointed,
    "in its own graph": lambda x: torch.autograd.grad((x**3).sum(), x, create_graph=True)[0].sum(),
}


@pytest.fixture(params=[True, False], ids=["engine", "public"])
def direct(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways, whatever this version of torch allows."""
    if request.param and not autograd._engine_works():
        pytest.skip("this version of torch has no such engine")
    monkeypatch.setattr(autograd, "_engine_works", lambda: request.param)
    return bool(request.param)


def test_this_version_of_torch_has_the_engine() -> None:
    """If this fails, a new torch has moved it: runs are slower, and nothing else is wrong."""
    assert autograd._engine_works()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.filterwarnings("ignore:.*torch.cpu.amp:FutureWarning")
@pytest.mark.usefixtures("direct")
def test_same_bits_as_the_public_function(name: str) -> None:
    one, two = (X.clone().requires_grad_() for _ in range(2))
    (ours,) = autograd.gradient(LOSSES[name](one), (one,), create_graph=False, retain_graph=False)
    (theirs,) = torch.autograd.grad(LOSSES[name](two), two)
    assert ours is not None
    assert torch.equal(ours, theirs)
    assert not ours.requires_grad


@pytest.mark.usefixtures("direct")
def test_leaves_that_are_not_used_and_grad_fields_left_alone() -> None:
    layer = nn.Linear(2, 2)
    loss = layer(torch.ones(3, 2)).square().mean()
    other = nn.Parameter(torch.ones(1))
    kept = autograd.gradient(
        loss, [*layer.parameters(), other], create_graph=False, retain_graph=True
    )
    again = autograd.gradient(
        loss, list(layer.parameters()), create_graph=False, retain_graph=False
    )
    assert kept[2] is None
    assert all(p.grad is None for p in [*layer.parameters(), other])
    for one, two in zip(kept, again, strict=False):
        assert one is not None
        assert two is not None
        assert torch.equal(one, two)
    with pytest.raises(RuntimeError, match="second time"):
        autograd.gradient(loss, list(layer.parameters()), create_graph=False, retain_graph=False)


@pytest.mark.usefixtures("direct")
def test_a_graph_of_the_gradient() -> None:
    leaf = X.clone().requires_grad_()
    (g,) = autograd.gradient(leaf.pow(3).sum(), (leaf,), create_graph=True, retain_graph=False)
    assert g is not None
    (second,) = torch.autograd.grad(g.sum(), leaf)
    torch.testing.assert_close(second, 6 * X, rtol=4 * torch.finfo(X.dtype).eps, atol=0)


@pytest.mark.usefixtures("direct")
def test_hooks_and_errors_of_a_backward_pass() -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.sum()

        @staticmethod
        def backward(ctx: object, *grads: Tensor) -> Tensor:
            raise ValueError("my own backward")

    leaf, seen = X.clone().requires_grad_(), []
    loss = leaf.square().sum()
    loss.register_hook(lambda g: seen.append(float(g)))  # type: ignore[no-untyped-call]
    autograd.gradient(loss, (leaf,), create_graph=False, retain_graph=False)
    assert seen == [1.0]
    broken = Broken.apply(leaf)  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match="my own backward"):
        autograd.gradient(broken, (leaf,), create_graph=False, retain_graph=False)


@pytest.mark.usefixtures("direct")
def test_a_compiled_loss() -> None:
    """Its backward pass is compiled when it is first run, by whichever way it is called."""
    torch.compiler.reset()
    loss = torch.compile(lambda x: (x.sin() * x).sum(), backend="aot_eager")
    g = FunctionObjective(loss, X).at(X).grad
    torch.testing.assert_close(g, X.cos() * X + X.sin(), rtol=0, atol=16 * torch.finfo(X.dtype).eps)


@pytest.mark.parametrize("engine", [None, object()])
def test_without_the_engine(engine: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "_ENGINE", engine)
    assert not autograd._engine_works.__wrapped__()


def test_an_engine_that_returns_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        def run_backward(self, *args: object, accumulate_grad: bool) -> tuple[Tensor, None]:
            return torch.zeros(2), None

    monkeypatch.setattr(autograd, "_ENGINE", Other())
    assert not autograd._engine_works.__wrapped__()


def test_runs_are_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Tensor:
        x = minimize(
            lambda x: (1 - x[:-1]).pow(2).sum() + 100 * (x[1:] - x[:-1] ** 2).pow(2).sum(), X
        ).x
        assert isinstance(x, Tensor)
        return x

    one = run()
    monkeypatch.setattr(autograd, "_engine_works", lambda: False)
    assert torch.equal(one, run())


def test_importing_runs_no_backward_pass() -> None:
    """Beside a GPU, a process that is forked after one can run none of its own."""
    code = "import firstish.objectives.autograd as a; print(a._engine_works.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"

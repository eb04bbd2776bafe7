"""Derivatives by autograd's engine are those of `torch.autograd.grad`, to the bit."""

import pytest
import torch
from torch import nn

from firstish.objectives import backward
from firstish.objectives.backward import derivative


class Marked(torch.Tensor):
    pass


def case(kind=torch.Tensor):
    a = nn.Parameter(torch.linspace(-1, 1, 4, dtype=torch.float64))
    b = torch.linspace(1, 2, 4, dtype=torch.float64).as_subclass(kind).requires_grad_()
    unused = torch.ones(2, requires_grad=True)
    return (a.sin() * b).sum() + b.pow(3).dot(a), (a, b, unused)


@pytest.mark.parametrize("engine", [True, False])
@pytest.mark.parametrize("kind", [torch.Tensor, Marked])
def test_first_and_second_derivatives_are_those_of_torch(engine, kind, monkeypatch):
    if not engine:
        monkeypatch.setattr(backward, "_engine", None)
    (loss, leaves), (again, others) = case(kind), case(kind)
    mine = derivative([loss], leaves, create_graph=True)
    theirs = torch.autograd.grad(again, others, create_graph=True, allow_unused=True)
    assert mine[2] is None
    v = [torch.full_like(g, 0.5).detach() for g in mine[:2]]
    second = derivative(mine[:2], leaves[:2], v)
    expected = torch.autograd.grad(theirs[:2], others[:2], v)
    for one, two in zip((*mine[:2], *second), (*theirs[:2], *expected), strict=True):
        assert torch.equal(one, two)


def test_the_graph_is_freed_unless_it_is_kept():
    loss, leaves = case()
    derivative([loss], leaves, retain_graph=True)
    derivative([loss], leaves)
    with pytest.raises(RuntimeError, match="second time"):
        derivative([loss], leaves)


def test_leaves_keep_no_gradient():
    loss, leaves = case()
    derivative([loss], leaves)
    assert all(leaf.grad is None for leaf in leaves)

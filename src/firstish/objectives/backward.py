"""autograd's engine, without what `torch.autograd.grad` looks at anew in every call.

For small losses those looks cost as much as the kernels. The engine's Python entry is private to
torch, so `torch.autograd.grad` takes its place where it is missing or tensors are of a subclass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

try:
    from torch.autograd.graph import _engine_run_backward as _engine
except ImportError:  # a torch that has given it another name
    _engine = None  # type: ignore[assignment]

_PLAIN = (Tensor, nn.Parameter)


def derivative(
    outputs: Sequence[Tensor],
    leaves: Sequence[Tensor],
    along: Sequence[Tensor] | None = None,
    *,
    create_graph: bool = False,
    retain_graph: bool = False,
) -> tuple[Tensor | None, ...]:
    """The derivative of <outputs, along> by each leaf, None where it does not depend on it.

    Without `along` the output is one number, and the derivative its gradient. The graph is freed
    unless it is to be kept or a graph of the result is asked for.

    >>> x = torch.tensor([1.0, 3.0], requires_grad=True)
    >>> derivative([x.dot(x)], [x])[0]
    tensor([2., 6.])
    """
    keep = create_graph or retain_graph
    if _engine is None or not all(type(t) in _PLAIN for t in (*outputs, *leaves)):
        return torch.autograd.grad(
            outputs, leaves, along, keep, create_graph=create_graph, allow_unused=True
        )
    if along is None:
        along = [torch.ones_like(output) for output in outputs]
    found: Any = _engine(
        tuple(outputs),
        tuple(along),
        keep,
        create_graph,
        tuple(leaves),
        True,  # leaves may be unused
        accumulate_grad=False,
    )
    return tuple(found)

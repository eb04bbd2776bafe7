"""A module sharded by `fully_shard`, seen as a function of this rank's part of its parameters.

A sharded module cannot be called on other parameters: its hooks gather those that it holds, and
`functional_call` has no effect. So a point is written into the shards for as long as it is
evaluated, and what was there before is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from firstish.distributed import Group
from firstish.objectives.finite_sum.chunks import tensors_in
from firstish.objectives.flatten import Layout, is_sharded
from firstish.objectives.module.checksums import Described, checksum, of_module
from firstish.objectives.sharded.vector import Shard, Spread


class ShardedModule:
    """loss_fn(model(inputs), targets) of a sharded model, and the gradient's part.

    Args:
        model: a module to which `fully_shard` was applied.
        loss_fn: takes the outputs and the targets.
        call: the call to name in errors.
    """

    def __init__(self, model: nn.Module, loss_fn: Callable[..., object], call: str) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"`{call}(model=...)` must be an nn.Module, got {model!r}.")
        if not callable(loss_fn):
            raise TypeError(f"`{call}(loss_fn=...)` must be callable, got {loss_fn!r}.")
        self.model = model
        self._loss_fn = loss_fn
        # Known by what they do: importing `torch.distributed.fsdp` for its classes takes seconds.
        self._units: list[Any] = [m for m in model.modules() if hasattr(m, "reshard")]
        self.reshard()  # a model that has just run may still hold whole parameters
        named = {n: p for n, p in model.named_parameters() if p.requires_grad}
        # Sharded ones first: what all ranks hold comes last, where rank 0 alone counts it. The
        # tensors are held from here on, because while the model runs it has others in their place.
        self._sharded = [p for p in named.values() if is_sharded(p)]
        self._replicated = [p for p in named.values() if not is_sharded(p)]
        if not self._units or not self._sharded:
            raise ValueError(
                f"`{call}(model=...)` has no sharded parameters. Call "
                "`torch.distributed.fsdp.fully_shard(model)` first, or use "
                "`FiniteSum(..., process_group=...)`, which keeps all parameters on every rank."
            )
        self._names = [n for n, p in named.items() if not is_sharded(p)]  # of the replicated
        mesh = _one_mesh(self._sharded, call)
        self.shapes = [p.shape for p in (*self._sharded, *self._replicated)]
        self.layout = Layout(self._parts(), f"{call}(model)")
        self.group = Group(mesh.get_group(), self.layout.device)
        self.replicated = sum(p.numel() for p in self._replicated)
        mine = self.layout.total
        self.spread = Spread(
            group=self.group,
            own=mine if self.group.rank == 0 else mine - self.replicated,
            total=sum(shape.numel() for shape in self.shapes),
        )

    def is_of(self, module: nn.Module) -> bool:
        """Whether that is the module given."""
        return module is self.model

    def reshard(self) -> None:
        """Let go of gathered parameters."""
        for unit in self._units:
            unit.reshard()

    @torch.no_grad()
    def _parts(self) -> list[Tensor]:
        return [_local(p) for p in self._sharded] + [p.detach() for p in self._replicated]

    def initial(self) -> Shard:
        """This rank's part of the model's parameters as one vector."""
        return self.spread(self.layout.flatten(self._parts()))

    def described(self, x: Tensor) -> Described:
        """What must be the same on every rank that evaluates this model at x: all but the shards.

        Of parameters that are sharded, shape and placement.
        """
        cut = len(self._sharded)
        parts = zip(self._names, self.layout.split(x.as_subclass(Tensor))[cut:], strict=True)
        start = {f"starting point, parameter '{name}'": checksum(part) for name, part in parts}
        return {**of_module(self.model, "model", trainable=False), **start}

    def load(self, x: Tensor) -> None:
        """Write the vector into the model's parameters; gathered ones are out of date after it."""
        self.reshard()
        self.layout.write(x.as_subclass(Tensor), self._parts())

    @contextmanager
    def holding(self, x: Tensor) -> Iterator[None]:
        """The model at x; afterwards its parameters, `.grad` and buffers are what they were."""
        parameters = (*self._sharded, *self._replicated)
        before, grads = self.initial(), [p.grad for p in parameters]
        buffers = [b.clone() for b in self.model.buffers()]
        for p in parameters:
            p.grad = None
        self.load(x)
        try:
            yield
        finally:
            self.load(before)
            for p, grad in zip(parameters, grads, strict=True):
                p.grad = grad
            with torch.no_grad():
                for b, value in zip(self.model.buffers(), buffers, strict=True):
                    b.copy_(value)

    def __call__(self, inputs: Any, targets: Any) -> object:
        """What the loss returned, at the parameters that the model holds."""
        return self._loss_fn(self._outputs(inputs), targets)

    def _outputs(self, inputs: Any) -> Any:
        return self.model(*inputs) if isinstance(inputs, tuple) else self.model(inputs)

    def nothing(self, inputs: Any) -> Tensor:
        """Run the model for the sake of the other ranks: 0, with a graph."""
        return sum(t.sum() for t in tensors_in(self._outputs(inputs))) * torch.zeros(())

    @torch.no_grad()
    def collect(self, vector: Tensor) -> None:
        """Add the gradient to this rank's part of a vector, and clear it.

        FSDP has taken the mean over the ranks, so that times their number is the sum. What is
        replicated still is this rank's own and has to be added up.
        """
        sizes = self.layout.sizes
        shares = torch.split(vector, sizes)
        cut = len(self._sharded)
        for p, part in zip(self._sharded, shares[:cut], strict=True):
            if p.grad is not None:
                part.add_(_local(p.grad).reshape(-1), alpha=self.group.size)
        for p, part in zip(self._replicated, shares[cut:], strict=True):
            if p.grad is not None:
                part.add_(p.grad.reshape(-1))
        for p in (*self._sharded, *self._replicated):
            p.grad = None


def _local(p: Any) -> Tensor:
    part: Tensor = p.to_local()
    return part


def _one_mesh(parameters: Sequence[Any], call: str) -> Any:
    mesh = parameters[0].device_mesh
    for p in parameters:
        if p.device_mesh != mesh:
            raise ValueError(f"`{call}(model=...)` has parameters on several meshes. Use one.")
        if mesh.ndim != 1 or not all(q.is_shard() for q in p.placements):
            raise ValueError(
                f"`{call}(model=...)` must be sharded over a mesh of one dimension, got "
                f"{tuple(p.placements)} on {mesh}. Use `fully_shard(model)`."
            )
    return mesh

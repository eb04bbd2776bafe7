"""A module sharded by `fully_shard`, as a function of this rank's part of its parameters.

`functional_call` has no effect on a sharded module, whose hooks gather the parameters it holds. So
an evaluation writes the point into the shards and restores them afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from firstish.distributed import Group
from firstish.objectives.flatten import Layout, is_sharded, tensors_in
from firstish.objectives.module.checksums import Described, checksum, of_module
from firstish.objectives.sharded.vector import Shard, Sharding


class ShardedModule:
    """loss_fn(model(inputs), targets) of a sharded model, and this rank's part of the gradient.

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
        # By attribute, because importing `torch.distributed.fsdp` for its class takes seconds.
        self._units: list[Any] = [m for m in model.modules() if hasattr(m, "reshard")]
        self.reshard()  # after a forward pass the model may still hold whole parameters
        named = {n: p for n, p in model.named_parameters() if p.requires_grad}
        # Replicated parameters come last, as `Sharding` requires. The tensors are stored, because
        # the model replaces them while it runs.
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
        self.sharding = Sharding(
            group=self.group,
            own=mine if self.group.rank == 0 else mine - self.replicated,
            total=sum(shape.numel() for shape in self.shapes),
        )

    def is_of(self, module: nn.Module) -> bool:
        """True if `module` is the module passed."""
        return module is self.model

    def reshard(self) -> None:
        """Free gathered parameters."""
        for unit in self._units:
            unit.reshard()

    @torch.no_grad()
    def _parts(self) -> list[Tensor]:
        return [_local(p) for p in self._sharded] + [p.detach() for p in self._replicated]

    def initial(self) -> Shard:
        """This rank's part of the model's parameters as one vector."""
        return self.sharding(self.layout.flatten(self._parts()))

    def described(self, x: Tensor) -> Described:
        """What must be the same on every rank: all but the values of sharded parameters."""
        cut = len(self._sharded)
        parts = zip(self._names, self.layout.split(x.as_subclass(Tensor))[cut:], strict=True)
        start = {f"starting point, parameter '{name}'": checksum(part) for name, part in parts}
        return {**of_module(self.model, "model", trainable=False), **start}

    def load(self, x: Tensor) -> None:
        """Write the vector into the model's parameters."""
        self.reshard()  # gathered parameters would be out of date
        self.layout.write(x.as_subclass(Tensor), self._parts())

    @contextmanager
    def holding(self, x: Tensor) -> Iterator[None]:
        """A context with the parameters at x; restores parameters, `.grad` and buffers."""
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
        """The result of the loss function at the parameters that the model holds."""
        return self._loss_fn(self._outputs(inputs), targets)

    def _outputs(self, inputs: Any) -> Any:
        return self.model(*inputs) if isinstance(inputs, tuple) else self.model(inputs)

    def zero_loss(self, inputs: Any) -> Tensor:
        """0 with a graph of the model, for a rank that runs it only because the others do."""
        return sum(t.sum() for t in tensors_in(self._outputs(inputs))) * torch.zeros(())

    @torch.no_grad()
    def pop_gradient(self, vector: Tensor) -> None:
        """Add this rank's part of the gradient to a vector, and clear `.grad`.

        FSDP averages over the ranks: the sum is that times the world size. Gradients of replicated
        parameters are not reduced at all.
        """
        parts = torch.split(vector, self.layout.sizes)
        cut = len(self._sharded)
        for p, part in zip(self._sharded, parts[:cut], strict=True):
            if p.grad is not None:
                part.add_(_local(p.grad).reshape(-1), alpha=self.group.size)
        for p, part in zip(self._replicated, parts[cut:], strict=True):
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
                f"`{call}(model=...)` must be sharded over a one-dimensional mesh, got "
                f"{tuple(p.placements)} on {mesh}. Use `fully_shard(model)`."
            )
    return mesh

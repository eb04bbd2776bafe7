"""A module and its loss as a function of one vector, through `functional_call`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call

from firstish._validate import described
from firstish.interface.warn import warn
from firstish.objectives.checks import check_loss
from firstish.objectives.flatten import Layout, tensors_in
from firstish.objectives.global_state import in_use
from firstish.objectives.module.checksums import Described, checksum, of_module

_COPY = "Give each thread a model of its own, for example `copy.deepcopy(model)`."
_PAIR_ENTRIES = (
    nn.functional.mse_loss,
    nn.functional.l1_loss,
    nn.functional.smooth_l1_loss,
    nn.functional.huber_loss,
)
_PAIRING_MODULES = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss)


class FunctionalLoss:
    """loss_fn(model(inputs), targets) as a function of the model's trainable parameters.

    Tied parameters count once, frozen ones are constants. The model's own parameters are only
    read by `initial` and written by `load`.

    Args:
        model: the module; one wrapped in DistributedDataParallel is unwrapped, with a warning.
        loss_fn: takes the outputs and the targets; see `ModuleObjective` if either is missing.
        call: the call to name in errors.
        joined: True if the losses of several processes will be added up.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., object],
        call: str,
        *,
        joined: bool = False,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"`{call}(model=...)` must be an nn.Module, got {described(model)}.")
        check_loss(loss_fn, call)
        _check_compiled(model, call)
        self._call = call
        self.given = model
        self.model = _unwrapped(model, call, joined)
        named = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self.layout = Layout(list(named.values()), f"{call}(model)")
        self.shapes = self.layout.shapes
        self.parameters = list(named.values())
        self.names = list(named)
        self._names = [f"model.{name}" for name in named]
        self._loss = _Loss(self.model, loss_fn)
        self._modules = list(self.model.modules())
        self._shared = f"the model of `{call}`. {_COPY}"

    def is_of(self, module: nn.Module) -> bool:
        """True if `module` is the module passed, wrapped or unwrapped."""
        return module is self.given or module is self.model

    def initial(self) -> Tensor:
        """The model's parameters as one vector."""
        return self.layout.flatten([p.detach() for p in self.parameters])

    def described(self, x: Tensor) -> Described:
        """What must be the same on every rank that evaluates this model at x."""
        parts = zip(self.names, self.layout.split(x), strict=True)
        start = {f"starting point, parameter '{name}'": checksum(part) for name, part in parts}
        return {**of_module(self.model, "model", trainable=False), **start}

    def load(self, x: Tensor) -> None:
        """Write the vector into the model's parameters."""
        self.layout.write(x, self.parameters)

    def buffers(self) -> dict[str, Tensor]:
        """Copies of the model's buffers, which an evaluation may change."""
        return {f"model.{n}": b.clone() for n, b in self.model.named_buffers()}

    def __call__(
        self, leaf: Tensor, inputs: Any, targets: Any, buffers: dict[str, Tensor]
    ) -> tuple[object, object]:
        """The result of the loss function and the outputs; `buffers` are updated by the model."""
        swapped = dict(zip(self._names, self.layout.split(leaf), strict=True))
        swapped.update(buffers)
        try:
            with in_use(self._modules, self._shared):
                # The module's parameters are replaced by those of this call meanwhile.
                result: tuple[object, object] = functional_call(
                    self._loss, swapped, (inputs, targets)
                )
        except (RuntimeError, ValueError) as error:
            remedy = self._other_precision(inputs) or _other_rows(inputs, targets)
            if remedy is None:
                raise
            kind = RuntimeError if isinstance(error, RuntimeError) else ValueError
            raise kind(f"{error}. {remedy}") from error
        for name in buffers:
            buffers[name] = swapped[name]  # the model may have replaced one
        return result

    def _other_precision(self, inputs: Any) -> str | None:
        """The advice for inputs in another precision than the model; None if there are none."""
        own = self.layout.dtype
        for t in tensors_in(inputs):
            if t.is_floating_point() and t.dtype != own:
                return (
                    f"The model of `{self._call}` is in {own} and its input in {t.dtype}: convert "
                    f"one, by `inputs.to({own})` or `model.to({t.dtype})`."
                )
        return None


def _check_compiled(model: nn.Module, call: str) -> None:
    """Raise if the model has compiled modules, before torch 2.5.

    There they ignore the parameters that `functional_call` puts in place.
    """
    release = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if release < (2, 5) and any(hasattr(module, "_orig_mod") for module in model.modules()):
        raise RuntimeError(
            f"`{call}(model=...)` has a module compiled by torch.compile, which needs torch 2.5 or "
            f"later here; this is {torch.__version__}. Use the module that was compiled, or "
            "`ScaledGD`."
        )


def _unwrapped(model: nn.Module, call: str, joined: bool) -> nn.Module:
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        kind = type(model).__name__
        alone = isinstance(model, nn.DataParallel) or dist.get_world_size(model.process_group) == 1
        if not joined and not alone:
            raise ValueError(
                f"`{call}(model=...)` is wrapped in DistributedDataParallel, which does not add up "
                "the losses of its processes. Use `FiniteSum(model.module, ..., "
                "process_group=torch.distributed.group.WORLD)`."
            )
        warn(
            f"`{call}(model=...)` is wrapped in {kind}, which does not support second derivatives; "
            "the module inside is used. Use `FiniteSum(process_group=...)` for several processes."
        )
        inner: nn.Module = model.module
        return inner
    return model


def _other_rows(inputs: Any, targets: Any) -> str | None:
    """The advice for inputs and targets with different numbers of rows; None for equal ones."""
    rows = [len(t) for t in (inputs, targets) if isinstance(t, Tensor) and t.dim()]
    if len(rows) < 2 or rows[0] == rows[1]:
        return None
    return f"`inputs` has {rows[0]} rows and `targets` {rows[1]}: pass a target for each input"


def _refuse_broadcast(outputs: Any, targets: Any) -> None:
    """Raise where outputs (n, 1) and targets (n,) would be broadcast to (n, n)."""
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)):
        return
    shapes = tuple(outputs.shape), tuple(targets.shape)
    if shapes[0] == (*shapes[1], 1) and targets.numel() > 1:
        remedy = "Pass `targets[..., None]`"
    elif shapes[1] == (*shapes[0], 1) and targets.numel() > 1:
        remedy = "Pass `targets.squeeze(-1)`"
    else:
        return
    raise ValueError(
        f"The outputs have shape {shapes[0]} and the targets {shapes[1]}: the loss would compare "
        f"each output with every target. {remedy}."
    )


class _Loss(nn.Module):
    """The loss as a module, so that one functional_call replaces everything it depends on."""

    def __init__(self, model: nn.Module, loss_fn: Callable[..., object]) -> None:
        super().__init__()
        self.model = model
        self.call = [loss_fn]  # in a list, so that a loss module does not become a submodule
        self.pairs_entries = loss_fn in _PAIR_ENTRIES or isinstance(loss_fn, _PAIRING_MODULES)

    def forward(self, inputs: Any, targets: Any) -> tuple[object, object]:
        (loss_fn,) = self.call
        if inputs is None:
            return loss_fn(self.model), None
        outputs = self.model(*inputs) if isinstance(inputs, tuple) else self.model(inputs)
        if self.pairs_entries:
            _refuse_broadcast(outputs, targets)
        return (loss_fn(outputs) if targets is None else loss_fn(outputs, targets)), outputs

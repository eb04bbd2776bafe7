"""A module that a callback uses, and what the run needs of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restore the modes and buffers of a module after the block.

    A callback that evaluates the model in training mode updates BatchNorm's statistics, and one
    that calls `model.eval()` may not call `model.train()`. Neither may change the run.
    """
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        for buffer, before in buffers:
            buffer.detach().copy_(before)  # no_grad() would stay on after a Ctrl-C at its end

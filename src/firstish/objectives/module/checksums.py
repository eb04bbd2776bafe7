"""Checksums of a model and its loss, to verify that all ranks evaluate the same function.

f is the sum of what each process computes on its rows. If one has another buffer or frozen weight,
the sum belongs to no model, and its value would not show that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from firstish.distributed import Group
from firstish.objectives.finite_sum.summed_loss import Summed
from firstish.objectives.flatten import is_sharded

Described = dict[str, str]
"""What must be the same on every rank, by name."""

_PLACES = re.compile(r"0x[0-9a-f]+|(cuda|mps|xpu):\d+")  # differ from process to process


def checksum(t: Tensor) -> str:
    """A text that identifies the dtype, shape and bytes of a tensor, on any device.

    >>> checksum(torch.zeros(2)) == checksum(-torch.zeros(2))
    False
    """
    kind = f"{t.dtype} {tuple(t.shape)}"
    if is_sharded(t):  # each rank holds another part
        return f"{kind} {t.placements}"  # type: ignore[attr-defined]
    if t.is_meta:
        return kind
    plain = t.detach().as_subclass(Tensor)
    plain = plain.to_dense() if plain.layout != torch.strided else plain
    content = plain.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return f"{kind} {hashlib.blake2b(content.numpy(), digest_size=16).hexdigest()}"  # type: ignore[arg-type]


def of_module(root: nn.Module, what: str, trainable: bool) -> Described:
    """Checksums of the buffers and frozen (or all) parameters, and each module's settings."""
    found: Described = {}
    for name, module in root.named_modules():
        label = f"{what}, module '{name}'" if name else what
        settings = _PLACES.sub("", module.extra_repr())
        found[label] = f"{type(module).__name__}({settings}) training={module.training}"
    for name, p in root.named_parameters():
        if trainable or not p.requires_grad:
            found[f"{what}, {'' if p.requires_grad else 'frozen '}parameter '{name}'"] = checksum(p)
    for name, b in root.named_buffers():
        found[f"{what}, buffer '{name}'"] = checksum(b)
    return found


def of_loss(loss_fn: Any) -> Described:
    """Checksums of the tensors and settings that are attributes of a loss."""
    if isinstance(loss_fn, Summed):
        return of_loss(loss_fn.fn)
    if isinstance(loss_fn, nn.Module):
        settings = {k: v for k, v in vars(loss_fn).items() if isinstance(v, str | int | float)}
        modules = of_module(loss_fn, "loss", trainable=True)
        return {**modules, "settings of the loss": repr(sorted(settings.items()))}
    if isinstance(loss_fn, partial):
        given = {f"loss, argument '{k}'": _value(v) for k, v in loss_fn.keywords.items()}
        return {**of_loss(loss_fn.func), **given}
    return {"loss": str(getattr(loss_fn, "__qualname__", type(loss_fn).__qualname__))}


def _value(thing: object) -> str:
    return checksum(thing) if isinstance(thing, Tensor) else _PLACES.sub("", repr(thing))


def require_same(group: Group, mine: Described, call: str) -> None:
    """Raise on every rank if descriptions differ between ranks, naming the first difference."""
    if group.alone:
        return
    whole = hashlib.blake2b(repr(list(mine.items())).encode(), digest_size=6).digest()
    numbers = group.gather(float(int.from_bytes(whole, "big")))
    others = [rank for rank, number in enumerate(numbers) if number != numbers[0]]
    if not others:
        return
    first = group.broadcast_object(mine)
    difference = next(_differences(first, mine), ("", "", ""))
    name, theirs, here = group.broadcast_object(difference, others[0])
    ranks = ", ".join(map(str, others))
    raise ValueError(
        f"`{call}(process_group=...)` has ranks that differ: the {name} of rank {others[0]} is not "
        f"rank 0's ({here or 'missing'}, not {theirs or 'missing'}; all ranks that differ: {ranks})"
        ". Build the same on every rank: set the seed first, or send rank 0's by "
        "`torch.distributed.broadcast(tensor, 0)` for each of `model.state_dict().values()`."
    )


def _differences(first: Described, mine: Described) -> Iterator[tuple[str, str, str]]:
    for name in (*first, *mine):
        if first.get(name) != mine.get(name):
            yield name, first.get(name, ""), mine.get(name, "")
    yield "order of parameters", "", ""

"""What a finite sum looks at once, before it trusts data and loss: order, independence, labels."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import isfinite
from typing import cast

import torch
from torch import Tensor, nn

from firstish.errors import NondeterministicError
from firstish.objectives.finite_sum.chunks import (
    Chunk,
    Chunks,
    TensorChunks,
    mapped,
    part,
    rows_of,
    tensors_in,
)
from firstish.objectives.finite_sum.reduction import Sum, Summed, SummedLoss
from firstish.objectives.hooks import refuse_nondeterministic
from firstish.objectives.rng import RandomState


class FirstLook:
    """Refuses what would make f a different function from one pass, or one chunk size, to the next.

    Args:
        model: for the names in errors.
        loss: the loss in sums.
        evaluate: one chunk's sum at a vector.
    """

    def __init__(
        self, model: nn.Module, loss: SummedLoss, evaluate: Callable[[Tensor, Chunk], Sum]
    ) -> None:
        self._model = model
        self._loss = loss
        self._evaluate = evaluate

    def __call__(self, x: Tensor, chunks: Chunks) -> None:
        """Look at everything once; the data twice if it is not plain tensors."""
        refuse_batch_norm(self._model, self._loss.call)
        if not isinstance(chunks, TensorChunks):
            refuse_changing_data(chunks)
        for chunk in chunks:
            self._same_twice(x, chunk)
            if not self._draws(x, chunk):
                self._ignores_none(x, chunks)
                self._adds_up(x, chunk)
            break

    def _same_twice(self, x: Tensor, chunk: Chunk) -> None:
        state = RandomState.capture()

        def evaluate() -> float:
            return self._evaluate(x, chunk).total.item()

        with state.replayed():
            first = evaluate()
        second = evaluate()  # which leaves the state moved, for others to see that it draws
        eps = torch.finfo(x.dtype).eps
        if abs(first) < float("inf") and not abs(first - second) <= 10 * eps * abs(first):
            refuse_nondeterministic(
                state.replaying(evaluate), first, second, "the loss", self._model
            )

    def _adds_up(self, x: Tensor, chunk: Chunk) -> None:
        """Whether two halves give what the whole gives."""
        rows = rows_of(chunk)
        if rows < 2:
            return
        whole = self._evaluate(x, chunk)
        halves = [
            self._evaluate(x, part(chunk, *ends)) for ends in ((0, rows // 2), (rows // 2, rows))
        ]
        total = sum(h.total.item() for h in halves)
        size = sum(abs(h.total.item()) for h in halves)
        denominator = sum(h.denominator for h in halves)
        loose = torch.finfo(x.dtype).eps ** 0.6
        apart = abs(whole.total.item() - total) > loose * size
        if self._loss.is_sum:
            denominator = whole.denominator
        if apart and self._loss.assumes_mean:
            returned = whole.total.item() / rows
            parts = [h.total.item() / h.denominator for h in halves]
            if abs(returned - sum(parts)) <= loose * sum(map(abs, parts)):
                raise sum_not_mean(self._loss.call, rows, returned)
        if apart or abs(whole.denominator - denominator) > 1e-6 * abs(denominator):
            raise mixed_rows(self._loss, rows, whole.total.item(), total)

    def _ignores_none(self, x: Tensor, chunks: Chunks) -> None:
        """Whether a row whose label is no class counts as much as one whose label is.

        The mean over rows that leaves some out is wrong in chunks, often by less than rounding.
        """
        if not self._loss.assumes_mean:
            return
        for chunk in chunks if isinstance(chunks, TensorChunks) else islice(chunks, 1):
            odd, plain = _unlike_rows(chunk)
            if odd is None:
                continue
            alone = self._evaluate(x, part(chunk, odd, odd + 1)).total.item()
            agree = isfinite(alone)
            if agree and plain is not None:
                other = self._evaluate(x, part(chunk, plain, plain + 1)).total.item()
                both = self._evaluate(x, _two_rows(chunk, odd, plain)).total.item()
                size = abs(alone) + abs(other)
                agree = abs(both - alone - other) <= torch.finfo(x.dtype).eps ** 0.6 * size
            if not agree:
                raise ignored_rows(self._loss.call)
            return

    def _draws(self, x: Tensor, chunk: Chunk) -> bool:
        with RandomState.capture().replayed() as drew:
            self._evaluate(x, chunk)
            return drew()


def sum_not_mean(call: str, rows: int, value: float) -> ValueError:
    """The error for a function that returns the sum over its rows."""
    return ValueError(
        f"`{call}(loss_fn=...)` returns the sum over its rows ({value:.9g} for {rows} of them); a "
        "function of your own must return the mean. Divide by the rows it is given, "
        "`outputs.shape[0]`; to minimise the sum over all N rows, multiply by N after that."
    )


def ignored_rows(call: str) -> ValueError:
    """The error for a function of the user's that leaves rows out of its mean."""
    return ValueError(
        f"`{call}(loss_fn=...)` leaves rows with negative labels out of its mean, which a function "
        "of your own must take over all of its rows: chunks would not add up. Give torch's own "
        "loss, as `functools.partial(torch.nn.functional.cross_entropy, ignore_index=-100)`, or "
        "return sum and denominator through `firstish.Summed(fn)`."
    )


def _unlike_rows(chunk: Chunk) -> tuple[int | None, int | None]:
    """A row whose label is negative, and one whose is not; None where there is none."""
    labels = chunk[1]
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        return None, None
    negative = (labels.reshape(len(labels), -1) < 0).any(dim=1)
    found = [mask.nonzero().flatten()[:1].tolist() for mask in (negative, ~negative)]
    odd, plain = (rows[0] if rows else None for rows in found)
    return odd, plain


def _two_rows(chunk: Chunk, one: int, two: int) -> Chunk:
    return cast(Chunk, mapped(chunk, lambda t: t[[one, two]]))


def mixed_rows(loss: SummedLoss, rows: int, whole: float, halves: float) -> ValueError:
    """The error for rows whose loss is another than that of their halves together."""
    remedy = (
        "Look for layers that mix rows, such as a batch normalisation of your own"
        if isinstance(loss.original, Summed)
        else "If the loss weighs rows differently, return its sum and denominator through "
        "`firstish.Summed(fn)`; else look for layers or losses that mix rows"
    )
    return ValueError(
        f"`{loss.call}(...)` adds up chunks, but {rows} rows have another loss than their "
        f"halves together ({whole:.9g} and {halves:.9g} in sum): rows are not "
        f"independent of each other. {remedy}."
    )


def refuse_batch_norm(model: nn.Module, call: str) -> None:
    """Raise if the model has statistics of the chunk in it."""
    for name, module in model.named_modules():
        if not isinstance(module, nn.modules.batchnorm._BatchNorm):
            continue
        if module.training or module.running_mean is None:
            kept = module.running_mean is not None
            remedy = "Call `model.eval()`, or use" if kept else "It keeps no statistics. Use"
            raise ValueError(
                f"`{call}(model=...)` has BatchNorm that depends on the chunk: '{name}', "
                f"{module!r}. {remedy} another normalisation (`GroupNorm`, `LayerNorm`), or "
                "`ModuleObjective`."
            )


def refuse_changing_data(chunks: Chunks) -> None:
    """Raise if a second pass over the data gives something else."""
    first, second = _fingerprints(chunks), _fingerprints(chunks)
    if first == second:
        return
    if len(first) != len(second):
        what = f"{len(first)} chunks the first time and {len(second)} the second"
    else:
        at = next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
        what = f"chunk {at} differs"
    raise NondeterministicError(
        f"`FiniteSum(data=...)` gives other data on a second pass ({what}). Look for shuffling, "
        "random augmentation in the dataset or its transform, or an iterator that is used up."
    )


def _fingerprints(chunks: Chunks) -> list[tuple[float, ...]]:
    return [
        tuple(
            number
            for t in tensors_in(chunk)
            for number in (float(len(t)), float(t.sum(dtype=torch.float64)), *_ends(t))
        )
        for chunk in chunks
    ]


def _ends(t: Tensor) -> tuple[float, float]:
    """Weighted sums of the first and last row, so that an exchange of rows shows."""
    weights = torch.arange(1, t[0].numel() + 1, dtype=torch.float64, device=t.device)
    first, last = (row.reshape(-1).to(torch.float64) @ weights for row in (t[0], t[-1]))
    return float(first), float(last)

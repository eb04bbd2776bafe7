"""Checks before the first evaluation that f is one function, whatever the chunk size and the pass.

Only sums over all ranks decide, so that all ranks make the same calls and raise together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import isfinite

import torch
from torch import Tensor, nn

from firstish.distributed import Group
from firstish.errors import NondeterministicError
from firstish.objectives.finite_sum.chunks import Chunk, Chunks, TensorChunks, part, rows_of
from firstish.objectives.finite_sum.summed_loss import Summed, SummedLoss
from firstish.objectives.flatten import map_tensors, tensors_in
from firstish.objectives.global_state import RandomState
from firstish.objectives.hooks import refuse_nondeterministic

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

ValuePass = Callable[[Tensor, Iterable[Chunk]], tuple[float, float]]


class LossChecks:
    """Checks that the loss is deterministic and the mean, or a sum, over independent rows.

    Args:
        model: for the names in errors.
        loss: the loss split into sum and denominator.
        group: the ranks.
        value: the sum and the denominator at x over some chunks of every rank.
        eps: unit roundoff of the arithmetic f is computed in.
    """

    def __init__(
        self, model: nn.Module, loss: SummedLoss, group: Group, value: ValuePass, eps: float
    ) -> None:
        self._model = model
        self._loss = loss
        self._group = group
        self._value = value
        self._eps = eps
        self._tolerance = eps**0.6  # for sums of the same terms in different order

    def __call__(self, x: Tensor, chunks: Chunks) -> None:
        """Check the loss on the first chunk of every rank."""
        first = list(islice(chunks, 1))
        draws = self._check_deterministic(x, first)
        if not draws:
            self._check_no_row_ignored(x, chunks)
            self._check_rows_independent(x, first)

    def _check_deterministic(self, x: Tensor, chunks: Sequence[Chunk]) -> bool:
        """Raise if two evaluations differ; returns True if some rank draws random numbers."""
        state = RandomState.capture()

        def evaluate() -> float:
            return self._value(x, chunks)[0]

        with state.replayed() as drew:
            first = evaluate()
            draws = drew()
        second = state.replaying(evaluate)()
        if isfinite(first) and not abs(first - second) <= 10 * self._eps * abs(first):
            refuse_nondeterministic(
                state.replaying(evaluate), first, second, "the loss", self._model
            )
        return self._group.any(draws)

    def _check_rows_independent(self, x: Tensor, chunks: Sequence[Chunk]) -> None:
        """Raise if the two halves of the chunks do not add up to the whole."""
        rows = sum(map(rows_of, chunks))
        if not self._group.any(rows >= 2):
            return
        cut = rows // 2
        halves = [
            [part(chunk, start, stop) for chunk in chunks if start < stop]
            for start, stop in ((0, cut), (cut, rows))
        ]
        whole, denominator = self._value(x, chunks)
        values, denominators = zip(*(self._value(x, half) for half in halves), strict=True)
        size = sum(map(abs, values))
        apart = abs(whole - sum(values)) > self._tolerance * size
        if apart and self._loss.assumes_mean:
            means = [v / d for v, d in zip(values, denominators, strict=True)]
            if abs(whole / denominator - sum(means)) <= self._tolerance * sum(map(abs, means)):
                raise _sum_not_mean(self._loss.call)
        below = denominator if self._loss.is_sum else sum(denominators)
        if apart or abs(denominator - below) > 1e-6 * abs(below):
            total_rows = int(sum(self._group.gather(rows)))
            raise _dependent_rows(self._loss, total_rows, whole, sum(values))

    def _check_no_row_ignored(self, x: Tensor, chunks: Chunks) -> None:
        """Raise if a mean over rows omits those with negative labels.

        Such a mean is wrong in chunks, often by less than the other checks can detect.
        """
        if not self._loss.assumes_mean:
            return
        negative, other, both = _rows_by_label(chunks)
        if not self._group.any(bool(negative)):
            return
        first, second, together = (self._value(x, rows)[0] for rows in (negative, other, both))
        error = abs(together - first - second)
        if not (isfinite(first) and error <= self._tolerance * (abs(first) + abs(second))):
            raise _ignored_rows(self._loss.call)


def _rows_by_label(chunks: Chunks) -> tuple[list[Chunk], list[Chunk], list[Chunk]]:
    """A row with a negative label, one of the same chunk without, and both in one chunk.

    All are empty if no label is negative. Only tensors are searched beyond the first chunk.
    """
    for chunk in chunks if isinstance(chunks, TensorChunks) else islice(chunks, 1):
        labels = chunk[1]
        if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
            continue
        is_negative = (labels.reshape(len(labels), -1) < 0).any(dim=1)
        i, j = (mask.nonzero().flatten()[:1].tolist() for mask in (is_negative, ~is_negative))
        if i:
            return _rows(chunk, i), _rows(chunk, j), _rows(chunk, i + j)
    return [], [], []


def _rows(chunk: Chunk, indices: list[int]) -> list[Chunk]:
    return [map_tensors(lambda t: t[indices], chunk)] if indices else []


def check_no_batch_norm(model: nn.Module, call: str) -> None:
    """Raise if the model normalises by the statistics of a chunk."""
    for name, module in model.named_modules():
        if not isinstance(module, BATCH_NORMS):
            continue
        if module.training or module.running_mean is None:
            kept = module.running_mean is not None
            remedy = "Call `model.eval()`, or use" if kept else "It keeps no statistics. Use"
            raise ValueError(
                f"`{call}(model=...)` has BatchNorm that depends on the chunk: '{name}', "
                f"{module!r}. {remedy} another normalisation (`GroupNorm`, `LayerNorm`), or "
                "`ModuleObjective`."
            )


def check_same_data(chunks: Chunks, group: Group, call: str) -> None:
    """Raise on every rank if a second pass over the data differs from the first on some rank."""
    difference = None
    if not isinstance(chunks, TensorChunks):
        with RandomState.capture().replayed():
            difference = _difference(_fingerprints(chunks), _fingerprints(chunks))
    if group.any(difference is not None):
        raise NondeterministicError(
            f"`{call}(data=...)` gives different data on a second pass "
            f"({difference or 'on another rank'}). Remove shuffling, random augmentation in the "
            "dataset or its transform, or an iterator that is used up."
        )


Fingerprint = tuple[float, ...]


def _difference(first: Sequence[Fingerprint], second: Sequence[Fingerprint]) -> str | None:
    if len(first) != len(second):
        return f"{len(first)} chunks the first time and {len(second)} the second"
    differing = (i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
    return next((f"chunk {i} differs" for i in differing), None)


def _fingerprints(chunks: Chunks) -> list[Fingerprint]:
    return [
        tuple(
            number
            for t in tensors_in(chunk)
            for number in (float(len(t)), float(t.sum(dtype=torch.float64)), *_ends(t))
        )
        for chunk in chunks
    ]


def _ends(t: Tensor) -> tuple[float, float]:
    """Weighted sums of the first and last row, which differ if rows are exchanged."""
    weights = torch.arange(1, t[0].numel() + 1, dtype=torch.float64, device=t.device)
    first, last = (row.reshape(-1).to(torch.float64) @ weights for row in (t[0], t[-1]))
    return float(first), float(last)


def _sum_not_mean(call: str) -> ValueError:
    return ValueError(
        f"`{call}(loss_fn=...)` returns the sum over its rows; a function of your own must return "
        "the mean. Divide by the number of rows, `outputs.shape[0]`; to minimise the sum over all "
        "N rows, multiply by N after that."
    )


def _ignored_rows(call: str) -> ValueError:
    return ValueError(
        f"`{call}(loss_fn=...)` leaves rows with negative labels out of its mean, which a function "
        "of your own must take over all of its rows: chunks would not add up. Give torch's own "
        "loss, as `functools.partial(torch.nn.functional.cross_entropy, ignore_index=-100)`, or "
        "return sum and denominator through `firstish.Summed(fn)`."
    )


def _dependent_rows(loss: SummedLoss, rows: int, whole: float, halves: float) -> ValueError:
    remedy = (
        "Look for layers that mix rows, such as a batch normalisation of your own"
        if isinstance(loss.original, Summed)
        else "If the loss weighs rows differently, return its sum and denominator through "
        "`firstish.Summed(fn)`; else look for layers or losses that mix rows"
    )
    return ValueError(
        f"`{loss.call}(...)` adds up chunks, but the sum of the losses of {rows} rows is "
        f"{whole:.9g} for the whole and {halves:.9g} for its two halves: rows are not "
        f"independent of each other. {remedy}."
    )

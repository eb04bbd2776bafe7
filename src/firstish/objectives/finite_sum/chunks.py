"""Data in chunks: tensors, a Dataset or a DataLoader, always in the same order.

A chunk is a pair of inputs and targets; each is a tensor, or a tuple, list or dict of tensors. The
first dimension of every tensor counts rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)

from firstish._validate import check_count
from firstish.objectives.flatten import map_tensors, tensors_in
from firstish.objectives.global_state import RandomState

Chunk = tuple[Any, Any]


def rows_of(chunk: Chunk) -> int:
    """The number of rows of a chunk."""
    found = tensors_in(chunk)
    if not found or any(t.dim() == 0 for t in found):
        raise TypeError(
            "`FiniteSum(data=...)` has a chunk without rows: "
            f"{type(chunk[0]).__name__} and {type(chunk[1]).__name__}. "
            "Each must hold tensors whose first dimension counts rows; a DataLoader with "
            "`batch_size=None` gives single samples."
        )
    return len(found[0])


class Chunks(ABC):
    """A data set read chunk by chunk, in the same order in every pass."""

    single = False  # True if there is one chunk at most, so that its graph may be kept
    can_sample = True  # True if rows can be read by index
    total: int | None  # the number of rows; None if unknown before a pass

    @abstractmethod
    def __iter__(self) -> Iterator[Chunk]: ...

    @abstractmethod
    def rows(self, indices: Tensor) -> Iterator[Chunk]:
        """The rows with these indices, in chunks."""


def as_chunks(data: object, chunk_size: int) -> Chunks:
    """The data of a `FiniteSum` in chunks of at most `chunk_size` rows."""
    check_count("FiniteSum", "chunk_size", chunk_size)
    if isinstance(data, DataLoader):
        return LoaderChunks(data, chunk_size)
    if isinstance(data, IterableDataset):
        raise TypeError(
            "`FiniteSum(data=...)` got an IterableDataset, which has no batches. Wrap it in "
            "`DataLoader(dataset, batch_size=...)`."
        )
    if isinstance(data, Dataset):
        return DatasetChunks(data, chunk_size, default_collate)
    if isinstance(data, (tuple, list)) and len(data) in (1, 2):
        return TensorChunks(data[0], data[1] if len(data) == 2 else None, chunk_size)
    if isinstance(data, Tensor):
        return TensorChunks(data, None, chunk_size)
    raise TypeError(
        "`FiniteSum(data=...)` must be `(inputs, targets)`, a Dataset or a DataLoader, "
        f"got {type(data).__name__}."
    )


class TensorChunks(Chunks):
    """Tensors in memory, or mapped from a file."""

    def __init__(self, inputs: Any, targets: Any, chunk_size: int) -> None:
        found = tensors_in((inputs, targets))
        if not found:
            raise TypeError(
                "`FiniteSum(data=(inputs, targets))` needs tensors, got "
                f"{type(inputs).__name__} and {type(targets).__name__}. Use `torch.as_tensor`."
            )
        lengths = {len(t) if t.dim() else 0 for t in found}
        if len(lengths) > 1:
            raise ValueError(
                "`FiniteSum(data=(inputs, targets))` got tensors of different numbers of rows: "
                f"{', '.join(str(len(t)) for t in found)}."
            )
        self._data = (inputs, targets)
        self._size = chunk_size
        self.total = lengths.pop()
        self.single = self.total <= chunk_size

    def __iter__(self) -> Iterator[Chunk]:
        assert self.total is not None
        for start in range(0, self.total, self._size):
            yield part(self._data, start, start + self._size)

    def rows(self, indices: Tensor) -> Iterator[Chunk]:
        """The rows with these indices, in chunks."""
        for some in torch.split(indices, self._size):
            yield map_tensors(lambda t, some=some: t[some.to(t.device)], self._data)  # type: ignore[misc]


class DatasetChunks(Chunks):
    """A map-style Dataset of pairs of inputs and targets."""

    def __init__(
        self, dataset: Dataset[Any], chunk_size: int, collate: Callable[[list[Any]], Any]
    ) -> None:
        if not hasattr(dataset, "__len__"):
            raise TypeError(
                f"`FiniteSum(data=...)` needs a Dataset with a length, got "
                f"{type(dataset).__name__} without `__len__`."
            )
        self._dataset = dataset
        self._size = chunk_size
        self._collate = collate
        self.total = len(dataset)
        self.single = self.total <= chunk_size

    def __iter__(self) -> Iterator[Chunk]:
        assert self.total is not None
        return self.rows(torch.arange(self.total))

    def rows(self, indices: Tensor) -> Iterator[Chunk]:
        """The rows with these indices, in chunks."""
        for some in torch.split(indices, self._size):
            yield as_chunk(self._collate([self._dataset[i] for i in some.tolist()]))


class LoaderChunks(Chunks):
    """The batches of a DataLoader, split if they are larger than the chunk size."""

    def __init__(self, loader: DataLoader[Any], chunk_size: int) -> None:
        self._loader = loader
        self._size = chunk_size
        self._check_sampler()
        dataset = loader.dataset
        # A custom sampler may give other rows than those of the data set.
        self.can_sample = (
            type(loader.sampler) is SequentialSampler
            and type(loader.batch_sampler) in (BatchSampler, type(None))
            and not isinstance(dataset, IterableDataset)
        )
        self.total = len(cast("Sequence[Any]", dataset)) if self.can_sample else None

    def _check_sampler(self) -> None:
        loader = self._loader
        batches = loader.batch_sampler
        if loader.drop_last or getattr(batches, "drop_last", False):
            raise ValueError(
                "`FiniteSum(data=loader)` must see every row, but the DataLoader has "
                "`drop_last=True`. Omit it."
            )
        for sampler in (loader.sampler, getattr(batches, "sampler", None)):
            if isinstance(sampler, DistributedSampler):
                raise ValueError(
                    "`FiniteSum(data=loader)` must see every row once, but a DistributedSampler "
                    "repeats some. Give each process its own part of the data, and "
                    "`process_group=...`."
                )
            if isinstance(sampler, RandomSampler | WeightedRandomSampler | SubsetRandomSampler):
                raise ValueError(
                    "`FiniteSum(data=loader)` needs the same rows in the same order every time, "
                    f"but the DataLoader has a {type(sampler).__name__}. Use `shuffle=False`."
                )

    def __iter__(self) -> Iterator[Chunk]:
        with RandomState.capture().replayed():
            batches = iter(self._loader)  # draws a seed for its workers, even without any
        for batch in batches:
            chunk = as_chunk(batch)
            rows = rows_of(chunk)
            for start in range(0, rows, self._size):
                whole = rows <= self._size
                yield chunk if whole else part(chunk, start, start + self._size)

    def rows(self, indices: Tensor) -> Iterator[Chunk]:
        """The rows with these indices, in chunks."""
        collate = self._loader.collate_fn
        return DatasetChunks(self._loader.dataset, self._size, collate).rows(indices)


def part(chunk: Chunk, start: int, stop: int) -> Chunk:
    """Rows `start` to `stop` of a chunk."""
    return cast(Chunk, map_tensors(lambda t: t[start:stop], chunk))


def as_chunk(batch: Any) -> Chunk:
    """A batch as a chunk; without targets, these are None."""
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    if isinstance(batch, (tuple, list)) and len(batch) == 1:
        return batch[0], None
    if isinstance(batch, Tensor):
        return batch, None
    raise TypeError(
        "`FiniteSum(data=...)` needs batches of inputs and targets, got "
        f"{type(batch).__name__}{f' of {len(batch)}' if isinstance(batch, (tuple, list)) else ''}. "
        "Write a `collate_fn` that returns a pair."
    )

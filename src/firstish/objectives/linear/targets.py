"""Checks of the targets and weights of a linear model, one value per sample."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from firstish.linalg import dot


def per_sample(A: Tensor, name: str, values: object) -> Tensor:
    """The values, detached; raises unless there is one for each row of A, on the device of A."""
    call = f"LinearModel({name}=...)"
    if not isinstance(values, Tensor):
        raise TypeError(
            f"`{call}` must be a tensor, got {type(values).__name__}. Use `torch.as_tensor`."
        )
    if values.ndim == 0 or len(values) != len(A):
        raise ValueError(
            f"`{call}` must have one entry for each of the {len(A)} rows of the features, "
            f"got shape {tuple(values.shape)}."
        )
    if values.device != A.device:
        raise ValueError(
            f"`{call}` is on {values.device} and the features on {A.device}. "
            f"Move one of them, for example with `.to('{A.device}')`."
        )
    return values.detach()


def checked_weights(A: Tensor, weights: Tensor | None) -> tuple[Tensor | None, float]:
    """The weights and their sum; without weights, None and the number of samples."""
    if weights is None:
        return None, float(len(A))
    weights = per_sample(A, "sample_weight", weights)
    if weights.ndim != 1 or weights.is_complex():
        raise ValueError(
            "`LinearModel(sample_weight=...)` must be one real number per sample, got shape "
            f"{tuple(weights.shape)} of {weights.dtype}."
        )
    weights = weights.to(A.dtype)
    total = dot(weights, torch.ones_like(weights))
    if not (math.isfinite(total) and total > 0 and bool((weights >= 0).all())):
        raise ValueError(
            "`LinearModel(sample_weight=...)` must be finite and at least 0, and not all 0; got "
            f"values from {weights.min().item()} to {weights.max().item()}."
        )
    return weights, total

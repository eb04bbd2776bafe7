"""Checks of a loss: one real number that depends on the parameters."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def check_loss(loss_fn: object, call: str) -> None:
    """Raise unless `loss_fn` can be a loss function."""
    if not callable(loss_fn):
        raise TypeError(f"`{call}(loss_fn=...)` must be callable, got {loss_fn!r}.")
    if isinstance(loss_fn, type):
        name = loss_fn.__name__
        raise TypeError(f"`{call}(loss_fn=...)` is the class {name}. Pass an instance: `{name}()`.")


def loss_and_aux(returned: object, what: str) -> tuple[Tensor, Any]:
    """The loss and aux, from a loss function that returned `loss` or `(loss, aux)`."""
    loss, aux = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    if isinstance(loss, Tensor) and loss.numel() == 1 and loss.is_floating_point():
        return loss, None if aux is None else detached(aux)
    raise wrong_loss(loss, what)


def detached(aux: Any) -> Any:
    """A copy of aux with all tensors detached: aux outlives the graph of its evaluation.

    >>> import torch
    >>> detached({"w": [torch.ones((), requires_grad=True) * 2]})
    {'w': [tensor(2.)]}
    """
    if isinstance(aux, Tensor):
        return aux.detach()
    if type(aux) is dict:
        return {key: detached(value) for key, value in aux.items()}
    if isinstance(aux, tuple) and hasattr(aux, "_fields"):  # a namedtuple
        return type(aux)(*map(detached, aux))
    if type(aux) in (list, tuple):
        return type(aux)(map(detached, aux))
    return aux


def wrong_loss(loss: object, owner: str) -> Exception:
    """The error for a loss that is not one real floating-point number."""
    if loss is None:
        return TypeError(f"{owner} returned None. Return the loss.")
    if not isinstance(loss, Tensor):
        return TypeError(
            f"{owner} must return a tensor, got {type(loss).__name__}. "
            "Compute it with torch, without `.item()` and `float()`."
        )
    if loss.numel() != 1:
        return ValueError(
            f"{owner} must return one number, got a tensor of shape {tuple(loss.shape)}. "
            "Take its mean or sum."
        )
    if loss.is_complex():
        return TypeError(
            f"{owner} returned a complex number ({loss.dtype}). Return a real one, "
            "such as its squared modulus."
        )
    return TypeError(f"{owner} returned {loss.dtype}. Return a floating-point loss.")


def independent(what: str) -> ValueError:
    """The error for a loss without a graph."""
    return ValueError(
        f"{what} does not depend on the parameters, according to autograd. "
        "Compute it from them, without `.detach()`, `.item()`, NumPy or `torch.no_grad()`."
    )

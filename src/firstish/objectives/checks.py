"""Checks of a loss, and the errors that name what is wrong with it."""

from __future__ import annotations

from torch import Tensor


def check_loss(loss_fn: object, call: str) -> None:
    """Raise unless `loss_fn` can be a loss function."""
    if not callable(loss_fn):
        raise TypeError(f"`{call}(loss_fn=...)` must be callable, got {loss_fn!r}.")
    if isinstance(loss_fn, type):
        name = loss_fn.__name__
        raise TypeError(f"`{call}(loss_fn=...)` is the class {name}. Pass an instance: `{name}()`.")


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

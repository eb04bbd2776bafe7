"""What a loss must be, one real number that depends on the parameters; clear errors if not."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def loss_and_aux(returned: object, what: str) -> tuple[Tensor, Any]:
    """The loss and what came with it: a loss function may return `(loss, aux)`."""
    if isinstance(returned, tuple) and len(returned) == 2:
        return check_loss(returned[0], what), returned[1]
    return check_loss(returned, what), None


def check_loss(loss: object, owner: str) -> Tensor:
    """The loss, if it is one real floating-point number."""
    if isinstance(loss, Tensor) and loss.numel() == 1 and loss.is_floating_point():
        return loss
    if loss is None:
        raise TypeError(f"{owner} returned None. Return the loss.")
    if not isinstance(loss, Tensor):
        raise TypeError(
            f"{owner} must return a tensor, got {type(loss).__name__}. "
            "Compute it with torch, and leave out `.item()` and `float()`."
        )
    if loss.numel() != 1:
        raise ValueError(
            f"{owner} must return one number, got a tensor of shape {tuple(loss.shape)}. "
            "Take its mean or sum."
        )
    if loss.is_complex():
        raise TypeError(
            f"{owner} returned a complex number ({loss.dtype}). Return a real one, "
            "such as its squared modulus."
        )
    raise TypeError(f"{owner} returned {loss.dtype}. Return a floating-point loss.")


def independent(what: str) -> ValueError:
    """The error for a loss that autograd cannot follow back to the parameters."""
    return ValueError(
        f"{what} does not depend on the parameters as far as autograd can see. "
        "Compute it from them, without `.detach()`, `.item()`, NumPy or `torch.no_grad()`."
    )

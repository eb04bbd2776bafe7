"""Checks of a loss, and the errors that name what is wrong with it."""

from __future__ import annotations

import traceback

import torch
from torch import Tensor

from firstish._validate import described


def check_loss(loss_fn: object, call: str) -> None:
    """Raise unless `loss_fn` can be a loss function."""
    if not callable(loss_fn):
        raise TypeError(f"`{call}(loss_fn=...)` must be callable, got {described(loss_fn)}.")
    if isinstance(loss_fn, type):
        name = loss_fn.__name__
        raise TypeError(f"`{call}(loss_fn=...)` is the class {name}. Pass an instance: `{name}()`.")


def wrong_loss(loss: object, owner: str) -> Exception:
    """The error for a loss that is not one real floating-point number."""
    if loss is None:
        return TypeError(f"{owner} returned None. Return the loss.")
    if type(loss).__module__ == "numpy":
        return numpy_loss(f"{owner} must return a tensor, got NumPy's {type(loss).__name__}")
    if isinstance(loss, dict | list | tuple):
        return TypeError(
            f"{owner} returned a {type(loss).__name__}. Return `loss`, or `(loss, aux)` with "
            "anything else as aux."
        )
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


def numpy_loss(fact: str) -> TypeError:
    """The error for a loss computed by NumPy, through which autograd does not see."""
    return TypeError(
        f"{fact}. Write it with torch (`torch.exp` for `np.exp`, `torch.as_tensor(A)` for an "
        "array): its argument is a tensor, whatever x0 is. For a NumPy function with its gradient, "
        "pass `firstish.NumpyObjective(fun, jac)`; without one, use `scipy.optimize.minimize(fun, "
        "x0, method=firstish.scipy_method)`."
    )


def raised_by_numpy(error: Exception) -> bool:
    """True if the error came from a NumPy function that was given a tensor."""
    frames = traceback.walk_tb(error.__traceback__)
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in frames]
    text = str(error)
    mixed = "numpy.ndarray" in text and "Tensor" in text
    return mixed or "call numpy() on Tensor" in text or modules[-1].startswith("numpy.")


def independent(what: str) -> ValueError:
    """The error for a loss without a graph."""
    if torch.is_inference_mode_enabled():
        return ValueError(
            f"{what} has no gradient inside `torch.inference_mode()`. Call this outside of it; "
            "`torch.no_grad()` may stay."
        )
    return ValueError(
        f"{what} does not depend on the parameters, according to autograd. "
        "Compute it from them, without `.detach()`, `.item()`, NumPy or `torch.no_grad()`."
    )

"""Look on while a loss is evaluated: which modules ran, in which precision, with which outputs.

Global module hooks see every module that a loss calls, also one that only a closure knows of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from firstish.errors import NondeterministicError


class Seen:
    """The modules that ran in one evaluation, and the lowest precision autocast asked for."""

    def __init__(self) -> None:
        self.modules: set[nn.Module] = set()
        self.eps = _autocast_eps()
        self.buffers: list[Tensor] = []  # of the modules that ran, such as BatchNorm's statistics
        self.buffers_before: list[Tensor] = []  # copies of them from before their module ran

    def note(self, module: nn.Module, args: Any) -> None:
        """A forward pre-hook."""
        self.eps = max(self.eps, _autocast_eps())
        if module not in self.modules:
            self.modules.add(module)
            mine = list(module.buffers(recurse=False))
            self.buffers += mine
            self.buffers_before += [b.clone() for b in mine]


@contextmanager
def watch() -> Iterator[Seen]:
    """Record what runs inside the block."""
    seen = Seen()
    handle = register_module_forward_pre_hook(seen.note)
    try:
        yield seen
    finally:
        handle.remove()


def _autocast_eps() -> float:
    """The unit roundoff of the dtype autocast computes in now; 0 when it is off."""
    devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    on = [torch.get_autocast_dtype(d) for d in devices if torch.is_autocast_enabled(d)]
    return max((torch.finfo(dtype).eps for dtype in on), default=0.0)


def refuse_nondeterministic(
    evaluate: Callable[[], object], first: float, second: float, owner: str, root: nn.Module | None
) -> None:
    """Raise, naming the module whose output differs between two evaluations if there is one."""
    culprit = _first_difference(_outputs(evaluate), _outputs(evaluate))
    if culprit is None:
        where = "No module's output differed, so look outside of modules"
    else:
        names = {m: n for n, m in root.named_modules()} if root is not None else {}
        name = names.get(culprit)
        label = f"'{name}', " if name else ""
        where = f"The first module whose output differs is {label}{culprit!r}"
    raise NondeterministicError(
        f"{owner} differs between two evaluations at the same point ({first!r} and {second!r}). "
        f"{where}. torch's random state was replayed, so the cause is another source of "
        "randomness or a state that changes. Make the loss a function of the parameters alone, "
        "or pass `check=False` if the difference is harmless."
    )


def _outputs(evaluate: Callable[[], object]) -> list[tuple[nn.Module, Any]]:
    calls: list[tuple[nn.Module, Any]] = []

    def note(module: nn.Module, args: Any, output: Any) -> None:
        calls.append((module, output.detach().clone() if isinstance(output, Tensor) else None))

    handle = register_module_forward_hook(note)
    try:
        with torch.no_grad():
            evaluate()
    except RuntimeError:
        pass  # a closure that calls backward() cannot run without a graph; its modules did run
    finally:
        handle.remove()
    return calls


def _first_difference(
    one: list[tuple[nn.Module, Any]], two: list[tuple[nn.Module, Any]]
) -> nn.Module | None:
    for (module, a), (other, b) in zip(one, two, strict=False):
        if module is not other:
            return module
        tensors = isinstance(a, Tensor) and isinstance(b, Tensor)
        if tensors and not torch.equal(a.nan_to_num(), b.nan_to_num()):
            return module
    return None

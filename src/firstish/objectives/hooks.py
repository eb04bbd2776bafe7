"""Forward hooks that record modules, buffers, dtypes and outputs while a loss is evaluated.

Only the closure knows its modules. A global hook finds the outermost of them as they are called.
It is removed while they run, so that it is not traced into a compiled module; and after the
evaluation, because torch.compile warns of global hooks in every call of a compiled module.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from firstish.errors import NondeterministicError
from firstish.interface.warn import warn
from firstish.objectives.global_state import RandomState, alone, ignored
from firstish.objectives.hvp import graph_eps


class Buffers:
    """The buffers of the modules that ran, such as BatchNorm's statistics, by module and name."""

    def __init__(self) -> None:
        self.places: list[tuple[nn.Module, str]] = []
        self.before: list[Tensor] = []  # copies from before their module ran
        self.eps = 0.0  # the largest unit roundoff in the graphs of their outputs
        self.hooks: list[RemovableHandle] = []  # all that were registered to find them

    def unhook(self) -> None:
        """Remove the hooks, also after an interruption."""
        for hook in self.hooks:
            hook.remove()

    def add(self, root: nn.Module) -> None:
        """Add the buffers of a module and its submodules."""
        known = {module for module, _ in self.places}
        for module in root.modules():
            if module in known:
                continue
            for name, buffer in module.named_buffers(recurse=False):
                self.places.append((module, name))
                self.before.append(buffer.clone())

    def read(self) -> list[Tensor]:
        """Copies of all buffers."""
        return [getattr(module, name).clone() for module, name in self.places]

    @torch.no_grad()
    def write(self, values: Sequence[Tensor]) -> None:
        """Write values to all buffers, in place if the shape is the same.

        The last place may have no value, if Ctrl-C came while it was added.
        """
        for (module, name), value in zip(self.places, values, strict=False):
            live = getattr(module, name)
            if live.shape == value.shape:
                live.copy_(value)
            else:
                setattr(module, name, value.clone())


@contextmanager
def touched_buffers(found: Buffers) -> Iterator[None]:
    """Collect the buffers of every module that this thread calls inside the block.

    A hook and its handle are made and kept in one line each: at any other line Ctrl-C leaves no
    hook that `unhook` does not know.
    """
    here = _this_thread()

    def enter(module: nn.Module, args: Any) -> None:
        if not hasattr(here, "inside"):
            return  # another thread's module
        refuse_replicas(module)
        found.hooks[-1].remove()
        found.add(module)
        found.hooks.append(module.register_forward_hook(leave, always_call=True))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        if not hasattr(here, "inside"):
            return
        found.hooks[-1].remove()
        found.hooks.append(register_module_forward_pre_hook(enter))
        found.eps = max([found.eps, *map(graph_eps, _with_graph(output))])

    # torch.compile notices the hook; it is gone before the compiled module runs.
    with ignored("Using `torch.compile.*global hooks"):
        try:
            found.hooks.append(register_module_forward_pre_hook(enter))
            yield
        finally:
            found.unhook()


def _this_thread() -> threading.local:
    """An object with the attribute `inside` in this thread: global hooks run in all threads."""
    here = threading.local()
    here.inside = True
    return here


def refuse_replicas(module: nn.Module) -> None:
    """Raise for a module in DistributedDataParallel on several processes.

    It averages the gradients of `backward()`, but not the loss, so that each process would accept
    another step.
    """
    if isinstance(module, nn.parallel.DistributedDataParallel):
        processes = module.process_group.size()
        if processes > 1:
            raise RuntimeError(
                f"The closure calls a model in DistributedDataParallel on {processes} processes, "
                "which does not average the loss: each would accept another step. Use `minimize` "
                "with `FiniteSum(model, ..., process_group=...)`, which joins them."
            )


def _with_graph(output: Any) -> list[Tensor]:
    """The floating-point tensors with a graph in a module's output."""
    if isinstance(output, Tensor):
        return [output] if output.grad_fn is not None and output.is_floating_point() else []
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, list | tuple):
        return [tensor for part in output for tensor in _with_graph(part)]
    return []


def refuse_nondeterministic(
    evaluate: Callable[[], object], first: float, second: float, what: str, root: nn.Module | None
) -> None:
    """Raise, naming the first module whose output differs between two evaluations."""
    module, input_differs = _first_difference(_calls(evaluate), _calls(evaluate))
    if module is None:
        where = "No module's output differed, so the cause is outside of modules"
    else:
        where = f"The first module whose output differs is {_label(module, root)}"
        if input_differs:
            where += ", but its input differs already: the cause comes before it"
    raise NondeterministicError(
        f"{what} differs between two evaluations at the same point ({first!r} and {second!r}). "
        "If it draws a batch (`next(loader)`), draw that before the step, outside of the closure. "
        f"{where}. torch's random state was replayed, so the cause is another source of "
        "randomness or a state that changes. Make the loss a function of the parameters alone, "
        "or, if the difference is harmless, pass `check=False` to the objective (as in "
        "`FunctionObjective(fun, x0, check=False)`) or to `ScaledGD`."
    )


def _label(module: nn.Module, root: nn.Module | None) -> str:
    names = {m: n for n, m in root.named_modules()} if root is not None else {}
    name = names.get(module)
    return f"'{name}', {module!r}" if name else repr(module)


def warn_of_one_mask(evaluate: Callable[[], object], root: nn.Module | None) -> None:
    """Warn that a loss draws random numbers that are the same in a whole run.

    Name the module that draws them, if one does.
    """
    drawing = _that_draw(evaluate)
    if root is not None:
        drawing = [module for module in drawing if module in set(root.modules())]
    who = _label(drawing[0], root) if drawing else "The loss"
    loss, instead = (
        ("that of one dropout mask", "Call `model.eval()` before")
        if drawing
        else ("one function, that of one sample", "Draw them once, before and outside of the loss")
    )
    warn(
        f"{who} draws random numbers, and they are the same in every evaluation: the loss is "
        f"{loss}. {instead}, or, to train with new ones in each step, use `ScaledGD` without "
        "`reuse_value`. Pass `check=False` to the objective (`FunctionObjective(fun, x0, "
        "check=False)`) or to `ScaledGD` if that is what you want."
    )


def _that_draw(evaluate: Callable[[], object]) -> list[nn.Module]:
    """The modules that draw random numbers, an inner one before those that it is in."""
    found: list[nn.Module] = []
    before: list[RandomState] = []  # of the modules that are running
    here = _this_thread()

    def enter(module: nn.Module, args: Any) -> None:
        if hasattr(here, "inside"):
            before.append(RandomState.capture())

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        if hasattr(here, "inside") and not before.pop().same_as(RandomState.capture()):
            found.append(module)

    with ignored("Using `torch.compile.*global hooks"):
        _evaluate_with_hooks(
            evaluate,
            lambda: register_module_forward_pre_hook(enter),
            lambda: register_module_forward_hook(leave),
        )
    return found


def _evaluate_with_hooks(
    evaluate: Callable[[], object], *register: Callable[[], RemovableHandle]
) -> None:
    """Evaluate with global hooks, which are gone after it, whenever Ctrl-C comes."""
    hooks: list[RemovableHandle] = []
    with alone():
        try:
            try:
                for hook in register:
                    hooks.append(hook())  # in one line: see above
                evaluate()
            finally:
                for handle in hooks:
                    handle.remove()
        finally:  # of a Ctrl-C in the lines before
            for handle in hooks:
                handle.remove()


class _Call(NamedTuple):
    module: nn.Module
    inputs: list[Tensor]
    output: list[Tensor]


def _calls(evaluate: Callable[[], object]) -> list[_Call]:
    calls: list[_Call] = []
    here = _this_thread()

    def note(module: nn.Module, args: Any, output: Any) -> None:
        if hasattr(here, "inside"):
            calls.append(_Call(module, _copies(args), _copies((output,))))

    _evaluate_with_hooks(evaluate, lambda: register_module_forward_hook(note))
    return calls


def _copies(values: tuple[Any, ...]) -> list[Tensor]:
    return [t.detach().clone() for t in values if isinstance(t, Tensor)]


def _first_difference(one: list[_Call], two: list[_Call]) -> tuple[nn.Module | None, bool]:
    """The first module whose output differs, and True if its inputs did too."""
    for a, b in zip(one, two, strict=False):
        if a.module is not b.module:
            return a.module, False
        if _differ(a.output, b.output):
            return a.module, _differ(a.inputs, b.inputs)
    return None, False


def _differ(one: list[Tensor], two: list[Tensor]) -> bool:
    return any(
        not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(one, two, strict=False)
    )

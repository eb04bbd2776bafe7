"""`ScaledGD`, the torch optimizer: one iteration of the loop per step, over live parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from firstish.bounds.bounded import BoundedPoint
from firstish.bounds.box import Box
from firstish.bounds.forms import box_of, ends_of, outside
from firstish.distributed import warn_of_own_loss
from firstish.errors import NonFiniteError
from firstish.interface.optimizer_settings import refuse_in_group, refuse_settings
from firstish.interface.warn import warn
from firstish.linalg import dot
from firstish.line_search import Armijo
from firstish.loop import Clock, Run, Snapshot
from firstish.methods.base import AnyMethod, Failure
from firstish.methods.registry import method_of
from firstish.methods.take_step import ProposingMethod
from firstish.objectives.base import Meter, Point
from firstish.objectives.closure import Closure, ClosureObjective, OwnGrads, Skipped
from firstish.objectives.flatten import Layout, Structure
from firstish.objectives.global_state import RandomState, alone, in_use, limit_threads_after_fork
from firstish.objectives.hvp import Mode, ProductSelector
from firstish.result import Entry, Row

_SHARED = (
    "parameters of this `ScaledGD`: the two would write over each other. Give each thread a model "
    "of its own, for example `copy.deepcopy(model)`."
)
_MOVED = (
    "The parameters were changed since the last `ScaledGD.step`, not for the first time. If they "
    "are clamped, pass the limits as bounds of their group instead, which the steps then respect: "
    "`ScaledGD([{'params': [p], 'bounds': (0, None)}])`. Other constraints can be written into the "
    "model with `torch.nn.utils.parametrize`. Curvature pairs remain valid if the loss is the same "
    "function in every step, which cannot be checked at other parameters: for mini-batches pass "
    "`method='CGMR'`. (Warned once.)"
)
_STALE = (
    "The closure uses a graph from before `ScaledGD.step`, such as a loss or outputs that were "
    "computed outside of it. Run the forward pass inside the closure, which is evaluated several "
    "times: `optimizer.step(lambda: loss_fn(model(inputs), targets))`."
)
_SKIPPED = (
    "The closure returned None: `ScaledGD.step` has left the parameters as they are and returned "
    "NaN. Return the loss, unless the batch is to be skipped, as by None from `training_step` in "
    "Lightning. (Warned once.)"
)
_SCHEDULED = 0.1  # a scheduler may set the first trial step, but this short it does harm


class ScaledGD(Optimizer):
    """Scaled gradient descent as a torch optimizer: `optimizer.step(closure)` is one iteration.

    All groups form one vector; parameters with `requires_grad=False` stay out of it. The closure
    may be called several times and must compute the same loss each time: within a step the random
    state is replayed (one dropout mask per step), and buffers such as BatchNorm's are updated once.

    Args:
        params: parameters or groups. A group may have bounds, as in
            `{"params": [rates], "bounds": (0, None)}`: each end a number, None, or shaped like each
            of its parameters.
        lr: the first trial step, equal in all groups. 1.0 is the step that the scale is made for,
            and less brings a warning; an LR scheduler makes it a step-size schedule, with a warning
            at 0.1 or less.
        method: a name or a method with settings, such as `ScaledGradient(sigma=0)`. By default
            "lazy" as long as the loss is the same function (full batch): f at the start of each
            step must equal f where the last one ended. At the first difference it switches to
            "CGMR", which remembers nothing of the loss before, for good, and says so.
        product: "auto", "double-backward" or "difference"; see `FunctionObjective`.
        reuse_value: promise that the loss is the same function in every step (full batch). The
            value and graph of the accepted trial then serve the next step, which saves a forward
            pass per step, and one dropout mask is used for the whole run.
        check: compare two evaluations in the first step, and raise if they differ; with
            `reuse_value` do so again in the second, to see that the promise is kept.

    Examples:
        >>> model = torch.nn.Linear(1, 1)
        >>> inputs, targets = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [3.0]])
        >>> optimizer = ScaledGD(model.parameters())
        >>> for _ in range(50):
        ...     loss = optimizer.step(lambda: torch.nn.functional.mse_loss(model(inputs), targets))
        >>> bool(loss < 1e-6)
        True
    """

    last_step: Row | None = None
    """The row of the last iteration, None before the first."""

    last_aux: Any = None
    """What the closure returned besides the loss at the new parameters.

    None if the method did not evaluate them, as methods without a line search do not.
    """

    # With it a GradScaler sets `found_inf` and calls `step`, which raises with advice.
    _step_supports_amp_scaling = True
    _own: OwnGrads
    _constructed = False  # True once all groups that the constructor got were added
    _times_moved = 0  # how often the parameters were changed between steps

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        *,
        method: AnyMethod | str | None = None,
        product: Mode = "auto",
        reuse_value: bool = False,
        check: bool = True,
        **other: Any,
    ) -> None:
        refuse_settings(other)
        if isinstance(params, torch.nn.Module):
            raise TypeError(
                f"`ScaledGD(params)` needs parameters, got the module {type(params).__name__}. "
                "Pass `model.parameters()`."
            )
        if product == "gauss-newton":
            raise ValueError(
                "`ScaledGD(product='gauss-newton')` is not supported: a closure does not show its "
                "outputs. Use `minimize` with a `ModuleObjective`."
            )
        self.method: AnyMethod = method_of(method, "ScaledGD")
        self._by_default = method is None
        ProductSelector(product, "ScaledGD")
        self._product: Mode = product
        self._check = check
        self._reuse = reuse_value
        self._objective: ClosureObjective | None = None
        self._kept: Point | None = None  # the accepted point, with `reuse_value`
        self._trusted = not check  # True once the promise of `reuse_value` was seen to be kept
        self._kind: type | None = None  # of the method's state
        self._own = ()
        self._warned: set[Failure | str] = set()  # what was warned of
        self._loaded = False  # True from `load_state_dict` to the next step
        super().__init__(params, {"lr": lr})
        Layout(self._trainable(), "ScaledGD(params)")
        warn_of_own_loss()
        self._move_inside()
        self._constructed = True
        rate = self._first_step()
        if rate < 1:
            self._warn_of_rate(rate, "Leave it at 1.0.")

    def step(self, closure: Closure | None = None) -> Tensor:  # type: ignore[override]
        """One iteration.

        Args:
            closure: returns the loss, or `(loss, aux)`; it need not call `backward()` or
                `zero_grad()`, but may. Once a step was taken, None instead of the loss skips the
                step, as in Lightning, with a warning the first time.

        Returns:
            The loss before the step; NaN if it was skipped.
        """
        self._refuse_scaler()
        if closure is None:
            raise ValueError(
                "`ScaledGD.step(closure)` needs a closure that returns the loss, because trials "
                "evaluate it again: `optimizer.step(lambda: loss_fn(model(inputs), targets))`. "
                "A trainer that calls `step()` without one, as that of Hugging Face does, needs "
                "the subclass in docs/trainers.md."
            )
        if not callable(closure):
            raise TypeError(
                f"`ScaledGD.step(closure)` needs a function that computes the loss, got "
                f"{type(closure).__name__}. Pass `lambda: loss_fn(model(inputs), targets)`."
            )
        limit_threads_after_fork()
        objective = self._engine()
        with in_use(objective.parameters, _SHARED), alone(), _stale_graph_explained():
            return self._step(objective, closure)

    def _step(self, objective: ClosureObjective, closure: Closure) -> Tensor:
        memory, kept, outside = self._memory(), self._kept, RandomState.capture()
        if memory["changing"] and self._by_default and _needs_same_loss(self.method):
            self._use_fallback()  # the state dict of a run that had gone over to it
        clock, before = Clock(), objective.meter.copy()
        random, self._kept = self._random(memory, outside), None
        point = objective.begin(
            closure,
            random,
            order=self.method.order,
            iterations=memory["iterations"],
            kept=kept,
            own=self._own,
        )
        try:
            if point is kept and not self._trusted:
                objective.expect(kept)
                self._trusted = True
            moved = point is not kept and self._compare(memory, point)
            run = self._resumed(objective, point, memory, objective.meter.since(before), clock)
            if moved and isinstance(self.method, ProposingMethod):
                run.state = self.method.elsewhere(run.state)
            if not memory["iterations"] and self.method.order < 2:
                objective.confirm_once(point)  # otherwise the first product does it
            entry, new = self._advanced(run, objective, kept if point is kept else None)
            new = new.inner if isinstance(new, BoundedPoint) else new
            assert entry.step is not None
            failure = entry.step.failure
            if failure is not None and point is kept and self._check:
                objective.expect(kept)  # a loss that has changed explains it better
            own = objective.finish(point, new, self._own)
            learnt = self._learnt(run, new, objective.product.grad_scale)
            if self._reuse:
                learnt["random"] = memory.get("random", random.to_tensors())
            memory.update(learnt)  # at once and last: until here the step can be undone
        except BaseException as error:
            objective.undo()
            outside.restore()
            if isinstance(error, Skipped):
                return self._skip(objective, error)
            raise
        self.last_step, self.last_aux, self._own = entry.row(), new.aux, own
        if self._reuse:
            self._kept = new
        if failure not in (None, Failure.STATIONARY) and failure not in self._warned:
            self._warned.add(failure)
            warn(
                f"`ScaledGD.step` did not move: {failure.value}. `optimizer.last_step` has the "
                "numbers, and `last_step.failure` the reason of every step. (Warned once.)"
            )
        return torch.tensor(point.value, dtype=objective.layout.dtype, device=point.x.device)

    def _advanced(
        self, run: Run, objective: ClosureObjective, kept: Point | None
    ) -> tuple[Entry, Point]:
        """One step of the run; `kept` is its start if that is the point of the step before."""
        try:
            return run.step()
        except (NonFiniteError, RuntimeError):
            if kept is not None:
                objective.expect(kept)  # data that have changed explain it better
            raise

    def _resumed(
        self,
        objective: ClosureObjective,
        point: Point,
        memory: dict[str, Any],
        spent: Meter,
        clock: Clock,
    ) -> Run:
        """The run of all steps so far, at this point; `spent` and `clock` are this step's."""
        spent = Meter(memory["oracle_calls"] + spent.oracle_calls, memory["passes"] + spent.passes)
        seconds = memory["seconds"] + clock.seconds()
        state = self._state(memory)
        box = self._box()
        if box is not None:
            if not box.contains(point.x):
                raise ValueError(
                    "`ScaledGD.step(...)` found parameters outside of the bounds of their group "
                    f"({outside(box, self._form()) or 'where the bounds are equal'}). "
                    "Move them inside: `p.clamp_(lower, upper)` under `torch.no_grad()`."
                )
            point = BoundedPoint(point, box)
        snapshot = Snapshot(point.x, state, memory["iterations"], spent, seconds)
        run = Run(objective, point.x, self._method(), snapshot, start=point)
        if self._kind is None:
            self._kind = _dataclass_of(run.state, self.method)
            held = self._state(memory)
            run.state = run.state if held is None else held
        return run

    def _compare(self, memory: dict[str, Any], point: Point) -> bool:
        """Warn if the loss or the parameters are not those that the last step ended with.

        Returns:
            True if the parameters are not: the loss cannot be compared then.
        """
        loaded, self._loaded = self._loaded, False
        at = memory["at"] if self._is_of_these(memory) else 0.0
        moved = bool(at) and at != _checksum(point.x)
        if loaded:
            _warn_of_other_parameters(at, point.x)
        elif moved:
            self._times_moved += 1
            if self._times_moved == 2:  # once is a new start
                warn(_MOVED)
        if not moved and not memory["changing"] and _differs(memory["value"], point):
            self._note_change(memory, point)
        return moved

    def _note_change(self, memory: dict[str, Any], point: Point) -> None:
        """Warn that the loss is not the same function in every step; the default gives way."""
        memory["changing"] = True
        seen = (
            "The loss is not the same function as in the last step (another batch or dropout "
            f"mask): at the same parameters it was {memory['value']:.6g} and is {point.value:.6g}."
        )
        if self._by_default:
            memory.pop("method", None)
            self._use_fallback()
            point.order = self.method.order
            advice = (
                "`ScaledGD` uses method='CGMR' from now on, whose steps do not depend on earlier "
                "ones. Pass `method='CGMR'` to silence this. If the loss changes only now and then "
                "(new points every 100 steps), pass `method='lazy'` instead."
            )
        else:
            advice = (
                f"{type(self.method).__name__} combines gradients of several steps, and goes on. "
                "That is right for a loss that changes only now and then (new points every 100 "
                "steps). If it changes at every step, use `method='CGMR'`, or a loss of all of the "
                "data without random numbers."
            )
        warn(f"{seen} {advice}")

    def _use_fallback(self) -> None:
        self.method, self._kind = method_of("CGMR", "ScaledGD"), None

    def _learnt(self, run: Run, new: Point, grad_scale: float) -> dict[str, Any]:
        """What a state dict carries, after a step to the new point."""
        done, compare = run.snapshot(), _needs_same_loss(self.method)
        return {
            "value": new.known_value if compare else None,
            "at": _checksum(new.x) if compare else 0.0,
            "oracle_calls": done.spent.oracle_calls,
            "passes": done.spent.passes,
            "seconds": done.seconds,
            "method": {f.name: getattr(done.state, f.name) for f in fields(done.state)},
            "kind": {type(self.method).__name__: True},  # torch loads no strings but keys
            **self._these(),
            "iterations": done.iterations,
            "grad_scale": grad_scale,
        }

    def _random(self, memory: dict[str, Any], now: RandomState) -> RandomState:
        """The random state that the evaluations of a step replay; with `reuse_value` the first."""
        if self._reuse and "random" in memory:
            return RandomState.from_tensors(memory["random"])
        return now

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; raise if it has settings of other optimizers, or wrong bounds.

        Parameters outside of its bounds are moved to them, with a warning.
        """
        refuse_in_group(param_group)
        super().add_param_group(param_group)
        if self._constructed:
            try:
                self._move_inside()
            except (TypeError, ValueError):
                self.param_groups.pop()
                raise

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume: the next step is the same bit for bit as without the interruption."""
        held = [kept for kept in state_dict["state"].values() if kept]
        if held and not any("iterations" in kept for kept in held):
            raise ValueError(
                "`ScaledGD.load_state_dict(...)` got the state of another optimizer: it holds "
                f"{', '.join(map(str, held[0]))}. Begin with a new `ScaledGD`: the parameters are "
                "all that it needs."
            )
        for kept in held:
            if not self._is_of_these(kept):
                raise ValueError(
                    "`ScaledGD.load_state_dict(...)` got the state of "
                    f"{_unequal(kept, self._these())}. Load it for the model that it was saved "
                    "with, with the same parameters frozen, or begin with a new `ScaledGD`: the "
                    "parameters are all that it needs."
                )
        super().load_state_dict(state_dict)
        self._objective = self._kept = None
        self._loaded = True

    def __repr__(self) -> str:
        name = type(self).__name__
        return super().__repr__().replace(f"{name} (", f"{name} (\nmethod: {self.method!r}", 1)

    def __getstate__(self) -> dict[str, Any]:
        names = ("method", "_by_default", "_product", "_check", "_reuse")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in names}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._objective = self._kept = self._kind = None
        self._own, self._warned, self._loaded = (), set(), False
        super().__setstate__(state)
        self._trusted = not self._check

    def _trainable(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

    def _these(self) -> dict[str, Any]:
        """What a state dict says of the trainable parameters: how many numbers, and which."""
        every = [p for group in self.param_groups for p in group["params"]]
        return {
            "numbers": sum(p.numel() for p in every if p.requires_grad),
            "trainable": tuple(k for k, p in enumerate(every) if p.requires_grad),
        }

    def _is_of_these(self, memory: dict[str, Any]) -> bool:
        """True if the memory is of the parameters that are trainable now.

        State dicts of earlier versions do not say which they were, but how many numbers.
        """
        return all(memory.get(name, now) == now for name, now in self._these().items())

    def _first_step(self) -> float:
        rates = {_number(group["lr"]) for group in self.param_groups}
        if len(rates) > 1:
            raise ValueError(
                f"`ScaledGD(lr=...)` must be equal in all groups, got {sorted(rates)}: the groups "
                "form one vector, and `lr` is its first trial step."
            )
        (rate,) = rates
        if not 0 < rate < math.inf:
            raise ValueError(
                f"`ScaledGD(lr=...)` must be positive and finite, got {rate}. "
                "It is the first trial step, and 1.0 the natural one. A scheduler must begin and "
                "end above 0 (`start_factor`, `eta_min`)."
            )
        return rate

    def _warn_of_rate(self, rate: float, remedy: str) -> None:
        self._warned.add("lr")
        warn(
            f"`ScaledGD(lr={rate:.3g})` tries {rate:.3g} of the step that the curvature gives, in "
            f"every step: `lr` is the first trial step, not a learning rate. {remedy}"
        )

    def _method(self) -> AnyMethod:
        rate = self._first_step()
        if rate <= _SCHEDULED and "lr" not in self._warned:  # not by the constructor: later
            remedy = "It was set after the construction: leave out the learning-rate scheduler."
            self._warn_of_rate(rate, remedy)
        search = getattr(self.method, "line_search", None)
        if isinstance(search, Armijo) and is_dataclass(self.method):
            changed = replace(search, initial_step=rate)
            return replace(self.method, line_search=changed)
        if rate != 1:
            raise ValueError(
                f"`ScaledGD(lr={rate})` has no meaning for {type(self.method).__name__}, which has "
                "no line search. Leave it at 1.0, and set the method's own step size."
            )
        return self.method

    def _state(self, memory: dict[str, Any]) -> Any:
        """The method's state after the last step; None if a new one is needed.

        As for other parameters, if the state holds vectors.
        """
        held = memory.get("method")
        if held is None or self._kind is None:
            return None
        if not self._is_of_these(memory) and any(map(_holds_tensors, held.values())):
            return None
        names = {f.name for f in fields(self._kind)}
        if set(held) != names:
            saved = next(iter(memory.get("kind", ["another method"])))
            raise ValueError(
                f"The state dict that was loaded is of {saved}, but this optimizer uses "
                f"{type(self.method).__name__}. Make `ScaledGD(method=...)` the one that was "
                "saved, or begin with a new optimizer: the parameters are all that it needs."
            )
        return self._kind(**held)

    def _memory(self) -> dict[str, Any]:
        """What a state dict carries, stored with the first parameter as torch's L-BFGS does."""
        memory: dict[str, Any] = self.state[self.param_groups[0]["params"][0]]
        for name in ("iterations", "grad_scale", "oracle_calls", "passes", "seconds"):
            memory.setdefault(name, 0)
        memory.setdefault("value", None)  # of the loss, where the last step ended: at this x
        memory.setdefault("at", 0.0)
        memory.setdefault("changing", False)  # True once the loss was seen to be another function
        return memory

    def _engine(self) -> ClosureObjective:
        """The objective over the parameters that are trainable now."""
        parameters = self._trainable()
        old = self._objective
        if old is None or [id(p) for p in old.parameters] != [id(p) for p in parameters]:
            self._kept = None
            self._objective = ClosureObjective(
                parameters,
                reuse=self._reuse,
                product=self._product,
                check=self._check,
                grad_scale=self._memory()["grad_scale"],
            )
        assert self._objective is not None
        return self._objective

    def _box(self) -> Box | None:
        """The bounds of the groups, for the vector of the trainable parameters."""
        given = [group.get("bounds") for group in self.param_groups]
        if not any(bounds is not None for bounds in given):
            return None
        ends = [
            (None, None) if bounds is None else ends_of(bounds, "ScaledGD([{'bounds': ...}])")
            for bounds, group in zip(given, self.param_groups, strict=True)
            for p in group["params"]
            if p.requires_grad
        ]
        both = [low for low, _ in ends], [high for _, high in ends]
        return box_of(both, self._form(), "ScaledGD")

    def _form(self) -> Structure:
        """The form of the trainable parameters."""
        return Structure(self._trainable(), "ScaledGD(..., params)")

    def _move_inside(self) -> None:
        """Move parameters to their bounds where they are outside, with a warning."""
        box = self._box()
        if box is None:
            return
        if not isinstance(self.method, ProposingMethod):
            raise TypeError(
                f"`ScaledGD`: {type(self.method).__name__} does not support bounds. Use 'lazy', "
                "'plane' or a scaling such as 'CGMR'."
            )
        form = self._form()
        if not box.contains(form.start):
            told = outside(box, form)
            form.layout.write(box.project(form.start), self._trainable())
            if told is not None:
                warn(
                    "`ScaledGD` got parameters outside of their bounds and moved them to the "
                    f"bounds ({told})."
                )

    def _skip(self, objective: ClosureObjective, skipped: Skipped) -> Tensor:
        """NaN; the random state goes on as after one evaluation, all else is as before."""
        if "skipped" not in self._warned:
            self._warned.add("skipped")
            warn(_SKIPPED)
        if skipped.random_after is not None and not self._reuse:
            skipped.random_after.restore()
        layout = objective.layout
        return torch.full((), math.nan, dtype=layout.dtype, device=layout.device)

    def _refuse_scaler(self) -> None:
        """Raise if called by a GradScaler, which leaves `found_inf` on the optimizer."""
        if "found_inf" not in self.__dict__:
            return
        for name in ("found_inf", "grad_scale"):
            self.__dict__.pop(name, None)
        raise RuntimeError(
            "`ScaledGD` cannot be stepped by a GradScaler: it scales one gradient, but trials "
            "compute the loss and its gradient again. Use bfloat16, which needs no scaler: "
            "`torch.autocast(device, dtype=torch.bfloat16)` inside the closure, then "
            "`optimizer.step(closure)`. Parameters stay in full precision."
        )


@contextmanager
def _stale_graph_explained() -> Iterator[None]:
    """Say what to do where torch only says that a graph was freed."""
    try:
        yield
    except RuntimeError as error:
        if "backward through the graph a second time" in str(error):
            raise RuntimeError(_STALE) from error
        raise


def _dataclass_of(state: object, method: AnyMethod) -> type:
    """The type of the method's state; raise if a state dict cannot carry it."""
    if not is_dataclass(state):
        raise TypeError(
            f"The state of {type(method).__name__} is a {type(state).__name__}. It must be a "
            "dataclass of tensors, numbers and tuples of them, so that a state dict can carry it."
        )
    return type(state)


def _unequal(saved: dict[str, Any], now: dict[str, Any]) -> str:
    """How the parameters that a state dict is of differ from those that are trainable now.

    >>> _unequal({"numbers": 9, "trainable": (0, 2)}, {"numbers": 9, "trainable": (1, 2)})
    '9 trainable parameters, but this optimizer has 9; parameter 0 is trainable in only one of them'
    """
    one = set(saved.get("trainable", now["trainable"])) ^ set(now["trainable"])
    which = f"; parameter {min(one)} is trainable in only one of them" if one else ""
    count = f"{saved['numbers']} trainable parameters, but this optimizer has {now['numbers']}"
    return count + which


def _holds_tensors(value: object) -> bool:
    return isinstance(value, Tensor) or (
        isinstance(value, tuple) and any(map(_holds_tensors, value))
    )


def _needs_same_loss(method: AnyMethod) -> bool:
    return getattr(method, "needs_same_loss", False)


def _differs(before: float | None, point: Point) -> bool:
    """True if f differs from an earlier value at the same parameters, by more than rounding."""
    if before is None or not math.isfinite(point.value):
        return False
    now = point.value
    return not abs(now - before) <= 10 * point.eps * max(abs(now), abs(before))


def _warn_of_other_parameters(saved: float, x: Tensor) -> None:
    """Warn if x is not the point that a loaded state was saved at; `saved` is its checksum."""
    rounding = 100 * torch.finfo(x.dtype).eps * _checksum(x.abs())
    if saved and abs(saved - _checksum(x)) > rounding:
        warn(
            "`ScaledGD.load_state_dict(...)`: the parameters are not those that the state was "
            "saved with. Load the model's too: `model.load_state_dict(...)`."
        )


def _checksum(x: Tensor) -> float:
    """A number that differs between x and what it was before a change, also if x is or was 0.

    Of the sum and the norm, since a projection may keep one of them; pi, lest they cancel.
    """
    return 1.0 + x.sum().item() + math.pi * dot(x, x)


def _number(rate: Any) -> float:
    if isinstance(rate, str) or not hasattr(rate, "__float__"):
        raise TypeError(f"`ScaledGD(lr=...)` must be a number, got {rate!r}.")
    return float(rate)

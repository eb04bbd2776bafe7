"""The torch.optim front door: a shell around the same method, with no mathematics of its own."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from firstish.line_search import Armijo
from firstish.loop import Clock
from firstish.methods.base import AnyMethod, Failure
from firstish.methods.registry import method_of
from firstish.methods.scaled_gradient import ScaledGradient
from firstish.objectives.base import Meter, Point
from firstish.objectives.closure import Closure, ClosureObjective, Skipped
from firstish.objectives.flatten import Layout
from firstish.objectives.product_selector import Mode, ProductSelector
from firstish.objectives.rng import RandomState
from firstish.objectives.threads import alone, in_use, limit_threads_after_fork
from firstish.result import Entry, Row

_SHARED = (
    "parameters of this `ScaledGD`: the two would write over each other. Give each thread a model "
    "of its own, for example `copy.deepcopy(model)`."
)
_SPENT = ("oracle_calls", "passes", "seconds")
_OTHERS = ("momentum", "dampening", "nesterov", "betas", "amsgrad")  # of other optimizers
_LIKE_A_RATE = 0.1  # a first trial step below this was meant for another optimizer


class ScaledGD(Optimizer):
    """Scaled gradient descent as a torch optimizer: `optimizer.step(closure)` is one iteration.

    `method=` puts another method in its place: `ScaledGD(params, method=LazyStep())`.

    All groups form one vector; parameters with `requires_grad=False` stay out of it. The closure
    may be called several times and must compute the same loss each time: within a step the random
    state is replayed (one dropout mask per step), and buffers such as BatchNorm's are updated once.

    Args:
        params: parameters or groups.
        lr: the first trial step, equal in all groups. 1.0 is the step the scale was made for; an LR
            scheduler makes it a step-size schedule.
        method: what to do: "lazy", "plane", or a method such as `ScaledDirection()`; its own
            settings then take the place of the seven below. They look back on the step before, so
            they are for a loss that stays the same function: use `reuse_value=True` with them.
            By default `ScaledGradient` with those settings.
        scaling: "CG", "MR", "GM" or a cycle of them such as "CGMR", or a rule such as "DY".
        sigma: curvature above which it counts as strong.
        rho: share of the linear decrease Armijo asks for, in [0, 1/2).
        theta: factor between trials, in (0, 1).
        s_lpc: scale where curvature is limited; by default min(1, 1/sigma).
        s_nc: scale where curvature is negative.
        max_trials: cap on trials of one search.
        product: "auto", "double-backward" or "difference"; see `FunctionObjective`.
        reuse_value: promise that the loss is the same function in every step (full batch). The
            value and graph of the accepted trial then serve the next step, which saves a forward
            pass per step, and one dropout mask is used for the whole run.
        check: compare two evaluations in the first step, and refuse a loss that differs; with
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
    """The row of the last iteration."""

    last_aux: Any = None
    """What the closure returned beside the loss, where the last step went.

    None where the method did not look there, as those without a line search do not.
    """

    # So a GradScaler calls `step` itself, with `found_inf` beside it, instead of failing obscurely.
    _step_supports_amp_scaling = True
    _left: list[tuple[Tensor, int]]  # the `.grad` that a step left, and their versions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        *,
        method: AnyMethod | str | None = None,
        scaling: str = "CGMR",
        sigma: float = 1e-6,
        rho: float = 1e-4,
        theta: float = 0.5,
        s_lpc: float | Literal["1/sigma"] | None = None,
        s_nc: float = 1.0,
        max_trials: int = 60,
        product: Mode = "auto",
        reuse_value: bool = False,
        check: bool = True,
    ) -> None:
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
        search = Armijo(rho=rho, theta=theta, max_trials=max_trials)
        scaled = ScaledGradient(
            scaling=scaling, sigma=sigma, s_lpc=s_lpc, s_nc=s_nc, line_search=search
        )
        self.method: AnyMethod = scaled if method is None else _checked(method, scaled)
        ProductSelector(product, "ScaledGD")
        self._product: Mode = product
        self._check = check
        self._reuse = reuse_value
        self._objective: ClosureObjective | None = None
        self._kept: Point | None = None  # the accepted point, with `reuse_value`
        self._trusted = not check  # whether the promise of `reuse_value` was seen to be kept
        self._kind: type | None = None  # of the method's state
        self._left = []
        super().__init__(params, {"lr": lr})
        Layout(self._trainable(), "ScaledGD(params)")
        if self._first_step() < _LIKE_A_RATE:
            warnings.warn(
                f"`ScaledGD(lr={lr})` makes every step at most {lr} of the one that the curvature "
                "asks for: `lr` is the first trial step, not a learning rate. Leave it at 1.0.",
                stacklevel=2,
            )

    def step(self, closure: Closure | None = None) -> Tensor:  # type: ignore[override]
        """One iteration.

        Args:
            closure: returns the loss, or `(loss, aux)`; it need not call `backward()` or
                `zero_grad()`, but may. Once a step was taken, None instead of the loss skips the
                step, as in Lightning.

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
        with in_use(objective.parameters, _SHARED), alone():
            return self._step(objective, closure)

    def _step(self, objective: ClosureObjective, closure: Closure) -> Tensor:
        clock = Clock()
        memory = self._memory()
        before = objective.meter.copy()
        kept, left, outside = self._kept, self._left, RandomState.capture()
        point = self._begin(objective, closure, memory, outside)
        try:
            if point is kept and not self._trusted:
                objective.expect(kept)
                self._trusted = True
            point.require_finite(self._where(memory["iterations"]))
            if not (self._reuse and memory["iterations"]):  # then the last step accepted it
                point.accept()
            known = self._sum(memory, objective.meter.since(before), clock)
            state = self._state(memory, point)
            new, step, state = self._method().step(point, state)
            if step.failure is not None and point is kept and self._check:
                objective.expect(kept)  # a loss that has changed explains it better
            objective.keep(new.x)
            row = Entry(memory["iterations"], *known, point.value, point.grad_norm, step).row()
            self._finish(objective, point, new)
            spent = self._sum(memory, objective.meter.since(before), clock)
            learnt = {
                **dict(zip(_SPENT, spent, strict=True)),
                "method": {f.name: getattr(state, f.name) for f in fields(state)},
                "numbers": point.x.numel(),
                "iterations": memory["iterations"] + 1,
                "grad_scale": objective.product.grad_scale,
            }
            if self._reuse and "random" not in memory:
                learnt["random"] = objective.random.to_tensors()
            memory.update(learnt)  # at once and last: until here the step can be undone
        except BaseException as error:
            objective.undo()
            self._left = left
            outside.restore()
            if isinstance(error, Skipped):
                return self._skip(objective)
            raise
        self.last_step, self.last_aux = row, new.aux
        if self._reuse:
            self._kept = new
        objective.may_skip = True
        if step.failure in (Failure.LINE_SEARCH, Failure.ROUNDING):
            warnings.warn(
                f"ScaledGD did not move: {step.failure.value} ({step.trials} trials). "
                "`optimizer.last_step` has the numbers.",
                stacklevel=4,
            )
        return torch.tensor(point.value, dtype=objective.layout.dtype, device=point.x.device)

    @staticmethod
    def _sum(memory: dict[str, Any], spent: Meter, clock: Clock) -> tuple[float, float, float]:
        """Oracle calls, passes and seconds: those of earlier steps, and of this one so far."""
        now = (spent.oracle_calls, spent.passes, clock.seconds())
        calls, passes, seconds = (memory[k] + v for k, v in zip(_SPENT, now, strict=True))
        return calls, passes, seconds

    @staticmethod
    def _where(iterations: int) -> str:
        return "at the starting point" if iterations == 0 else f"at the start of step {iterations}"

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; settings of other optimizers are refused rather than ignored."""
        if param_group.get("weight_decay"):
            raise ValueError(
                f"`ScaledGD` has no weight_decay, got {param_group['weight_decay']} in a group. "
                "Add weight_decay/2 times the squares of its parameters to the loss in the "
                "closure, where the line search sees it."
            )
        others = [key for key in _OTHERS if key in param_group]
        if others:
            raise ValueError(
                f"`ScaledGD` has no {' or '.join(others)}, got in a group. Leave it out: the step "
                "is set by the curvature."
            )
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume: the next step takes the same bits as it would have."""
        held = [kept for kept in state_dict["state"].values() if kept]
        if held and not any("iterations" in kept for kept in held):
            raise ValueError(
                "`ScaledGD.load_state_dict(...)` got the state of another optimizer: it holds "
                f"{', '.join(map(str, held[0]))}. Begin with a new `ScaledGD`: the parameters are "
                "all that it needs."
            )
        super().load_state_dict(state_dict)
        self._objective = self._kept = None

    def __getstate__(self) -> dict[str, Any]:
        mine = {"method": self.method, "_product": self._product, "_check": self._check}
        return {**super().__getstate__(), **mine, "_reuse": self._reuse}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._objective = self._kept = self._kind = None
        self._left = []
        super().__setstate__(state)
        self._trusted = not self._check

    def _trainable(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

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

    def _method(self) -> AnyMethod:
        rate = self._first_step()
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

    def _state(self, memory: dict[str, Any], point: Point) -> Any:
        """The method's state as the last step left it; a new one for another set of numbers."""
        if self._kind is None or "method" not in memory:
            new = self.method.init(point)
            if not is_dataclass(new):
                raise TypeError(
                    f"The state of {type(self.method).__name__} is a {type(new).__name__}. It must "
                    "be a dataclass of tensors, numbers and tuples of them, so that a state dict "
                    "can carry it."
                )
            self._kind = type(new)
            if "method" not in memory:
                return new
        held = memory["method"]
        if memory["numbers"] != point.x.numel() and any(map(_holds_tensors, held.values())):
            return self.method.init(point)
        names = {f.name for f in fields(self._kind)}
        if set(held) != names:
            raise ValueError(
                "The state dict that was loaded is of another method than "
                f"{type(self.method).__name__}: its state has {', '.join(held)}, not "
                f"{', '.join(sorted(names))}. Make `ScaledGD(method=...)` the one that was saved, "
                "or begin with a new optimizer: the parameters are all that it needs."
            )
        return self._kind(**held)

    def _memory(self) -> dict[str, Any]:
        """What a state dict carries, kept with the first parameter as torch's L-BFGS does."""
        memory: dict[str, Any] = self.state[self.param_groups[0]["params"][0]]
        for name in ("iterations", "grad_scale", *_SPENT):
            memory.setdefault(name, 0)
        return memory

    def _engine(self) -> ClosureObjective:
        """The objective over the parameters that are trainable now."""
        parameters = self._trainable()
        old = self._objective
        if old is None or [id(p) for p in old.parameters] != [id(p) for p in parameters]:
            self._kept = None
            self._objective = ClosureObjective(
                parameters,
                trial_order=2 if self._reuse else 0,
                product=self._product,
                check=self._check,
            )
            self._objective.product.grad_scale = self._memory()["grad_scale"]
            self._objective.may_skip = self._memory()["iterations"] > 0
        assert self._objective is not None
        return self._objective

    def _begin(
        self,
        objective: ClosureObjective,
        closure: Closure,
        memory: dict[str, Any],
        random: RandomState,
    ) -> Point:
        """The point to step from: the kept one if it may be reused, else a new one."""
        if self._reuse and "random" in memory:  # one random state, so one loss, for the whole run
            random = RandomState.from_tensors(memory["random"])
        others = self._others_grads(objective.parameters)
        start = objective.begin(closure, random, self.method.order, others)
        kept, self._kept = self._kept, None
        return kept if kept is not None and objective.untouched(kept.x) else start

    def _finish(self, objective: ClosureObjective, point: Point, new: Point) -> None:
        """Leave buffers, `.grad` and the random state as one ordinary evaluation would."""
        if self._reuse:
            new.accept()
        else:
            new.release()
        objective.restore_buffers()  # those of the accepted point, or of the start if there is none
        self._move_on(objective)
        if objective.calls_backward:
            self._left = []
            grads = objective.layout.split(point.grad)
            for p, grad in zip(objective.parameters, grads, strict=True):
                p.grad = grad.clone()
                self._left.append((p.grad, p.grad._version))

    def _others_grads(self, parameters: Sequence[Tensor]) -> bool:
        """Whether `.grad` holds numbers that the last step did not leave: others' backward."""
        left = {id(grad): version for grad, version in self._left}
        found = [p.grad for p in parameters if p.grad is not None]
        return any(left.get(id(g)) != g._version and bool(g.any()) for g in found)

    def _move_on(self, objective: ClosureObjective) -> None:
        """Leave the random state where one evaluation does, so that the next mask is another."""
        if not self._reuse and objective.random_after is not None:
            objective.random_after.restore()

    def _skip(self, objective: ClosureObjective) -> Tensor:
        """Leave all as it was but the random state, which moves on as by one evaluation."""
        self._move_on(objective)
        layout = objective.layout
        return torch.full((), math.nan, dtype=layout.dtype, device=layout.device)

    def _refuse_scaler(self) -> None:
        """Refuse to be called by a GradScaler, which leaves its findings on the optimizer."""
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


def _checked(given: AnyMethod | str, settings: ScaledGradient) -> AnyMethod:
    """The method, if it is one and no other settings were given."""
    method = method_of(given, "ScaledGD")
    if settings != ScaledGradient():
        raise ValueError(
            "`ScaledGD(method=...)` has settings of its own. Leave out scaling, sigma, rho, theta, "
            f"s_lpc, s_nc and max_trials, and give them to {type(method).__name__}(...)."
        )
    return method


def _holds_tensors(value: object) -> bool:
    return isinstance(value, Tensor) or (
        isinstance(value, tuple) and any(map(_holds_tensors, value))
    )


def _number(rate: Any) -> float:
    if isinstance(rate, str) or not hasattr(rate, "__float__"):
        raise TypeError(f"`ScaledGD(lr=...)` must be a number, got {rate!r}.")
    return float(rate)

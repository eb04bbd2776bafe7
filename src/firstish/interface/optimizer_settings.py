"""Settings of other optimizers, in the call of `ScaledGD` or in a group: what to use instead."""

from __future__ import annotations

from typing import Any

from firstish.interface.keywords import closest, unknown_keyword

_FOREIGN = ("momentum", "dampening", "nesterov", "betas", "amsgrad")  # of other optimizers
_ARGUMENTS = ("params", "lr", "method", "product", "reuse_value", "check")
_INSTEAD = {
    "put it into a parameter group: `[{{'params': [p], 'bounds': (0, None)}}]`": "bounds",
    "it is a setting of the method. Use `method=ScaledGradient({name}=...)`": "scaling sigma s_lpc "
    "s_nc",
    "it is a constant of the line search. Use `method=LazyStep(line_search=Armijo({name}=...))`": (
        "rho theta max_trials"
    ),
    "it is a setting of the method. Use `method=LazyStep(memory=...)`": "memory history_size",
    "the line search is built in. Leave it out, or for other constants use "
    "`method=LazyStep(line_search=Armijo(...))`": "line_search line_search_fn",
    "the curvature sets the step. Leave it out; the first trial step is `lr`": (
        "learning_rate step_size alpha eta"
    ),
    "add weight decay to the loss, where the line search sees it": "weight_decay",
    "each call of `step` is one iteration. Call it as often as you like": "max_iter max_eval",
    "your loop decides when to stop. Use `optimizer.last_step.grad_norm`, which is |g|": (
        "tolerance_grad tolerance_change gtol ftol"
    ),
    "to maximise, return `-loss` from the closure instead": "maximize",
    "it has no effect on the steps. Leave it out": "foreach fused capturable differentiable eps",
}
_MEANT = {n: text.format(name=n) for text, names in _INSTEAD.items() for n in names.split()}


def refuse_settings(given: dict[str, Any]) -> None:
    """Raise for keywords that are not arguments of `ScaledGD`, with what to use instead."""
    foreign = _foreign(given)
    if foreign is not None:
        raise TypeError(foreign)
    for name in given:
        raise unknown_keyword("ScaledGD", name, _ARGUMENTS, _MEANT)


def refuse_in_group(group: dict[str, Any]) -> None:
    """Raise for keys of a parameter group that would have no effect."""
    foreign = _foreign(group)
    if foreign is not None:
        raise ValueError(f"{foreign} (In a parameter group.)")
    for name, value in group.items():
        meant = _in_group(name)
        if meant is not None and value:  # trainers write `weight_decay=0.0`
            raise ValueError(f"A parameter group of `ScaledGD` has {name!r}: {meant}.")


def _in_group(name: str) -> str | None:
    """What to do about a key of a parameter group; None if it may stay, as tags and `lr`."""
    if name in ("params", "lr", "bounds"):
        return None
    if closest(name, ["bounds"]):
        return "use 'bounds'"
    if name in _ARGUMENTS:
        return f"it is for all groups. Use `ScaledGD(..., {name}=...)`"
    return _MEANT.get(name)


def _foreign(settings: dict[str, Any]) -> str | None:
    """The sentence on settings of other optimizers, None if there are none."""
    if settings.get("weight_decay"):
        return (
            f"`ScaledGD` has no weight_decay, got {settings['weight_decay']}. Add weight_decay/2 "
            "times the squares of the parameters to the loss in the closure, where the line search "
            "sees it."
        )
    found = [name for name in _FOREIGN if name in settings]
    if found:
        return f"`ScaledGD` has no {' or '.join(found)}: the step is set by the curvature. Omit it."
    return None

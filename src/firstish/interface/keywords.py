"""Answers to unknown names: what was probably meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps

_INSTEAD = {
    "omit it: the step is set by the curvature": "lr learning_rate step_size alpha",
    "omit it, or use a method of `firstish.baselines`": "momentum betas nesterov beta",
    "use `max_iterations`": "max_iter maxiter maxit max_iters n_iter niter num_iterations "
    "iterations max_steps num_steps steps epochs n_epochs",
    "use `max_oracle_calls`": "maxfun maxfev max_eval max_evals max_fun budget",
    "use `max_seconds`": "max_time timeout time_limit seconds",
    "use `gtol`": "tolerance_grad atol grad_tol pgtol",
    "use `gtol_rel`, relative to |g(x0)|": "rtol reltol gtol_relative",
    "use `ftol`": "tolerance_change frtol factr",
    "there is no absolute tolerance on f: use `ftol`, relative to |f|": "fatol",
    "there is no tolerance on x: use `gtol`, `gtol_rel` or `ftol`": "xtol xatol xrtol",
    "pass the settings themselves, such as `max_iterations=100`": "options",
    "derivatives are computed by autograd. For NumPy functions pass "
    "`NumpyObjective(fun, jac, hessp=...)` as fun": "jac hess hessp grad gradient fprime",
    "use `method=LazyStep(memory=...)`": "history_size maxcor memory m",
    "the line search is built in. Omit it, or for other constants use "
    "`method=LazyStep(line_search=Armijo(...))`": "line_search line_search_fn rho theta max_trials",
    "use `method=ScaledGradient(...)`, which has it": "scaling sigma s_lpc s_nc",
    "use `progress=True`": "verbose disp iprint show",
    "use `path=True`": "return_all allvecs",
    "use `method`": "optimizer solver algorithm stepper",
    "use `ModuleObjective(..., weight_decay=...)` as fun": "weight_decay l2",
    "to maximise, return the negative of fun": "maximize maximise",
    "those of x0 are used: pass `x0.to(...)`": "device dtype",
    "constraints are not supported: add a penalty to fun": "constraints",
}
_OF_OBJECTIVES = {
    "use `weight_decay`": "l2 wd decay alpha lam lamda lambda_ penalty reg regularization",
    "use `inputs`": "input x X data features",
    "use `targets`": "target y labels",
    "use `FiniteSum(model, loss_fn, data)`, which has it": "hessian_sample process_group",
    "use `FiniteSum(model, loss_fn, data, chunk_size=...)`": "chunk_size batch_size",
    "omit it: the step is set by the curvature": "lr learning_rate",
    "call `model.to(...)` before": "device dtype",
    "pass it to `minimize`": "method gtol gtol_rel ftol tol max_oracle_calls callback "
    "max_iterations max_seconds progress path bounds",
}


_OF_BASELINES = {
    "use `step_size`": "lr learning_rate alpha eta",
    "use `betas`": "beta1 beta2",
    "use `memory`": "history_size maxcor m",
    "use `HeavyBall(step_size=..., momentum=...)`": "momentum beta",
    "use `Adam(step_size=..., betas=...)`": "betas",
    "use `Nesterov(step_size=..., momentum=...)`": "nesterov",
    "add it to f: `ModuleObjective(..., weight_decay=...)`": "weight_decay",
    "pass it to `minimize`": "gtol gtol_rel ftol max_oracle_calls max_iterations max_seconds",
    "pass `max_iterations` to `minimize`": "max_iter maxiter",
    "it is always strong Wolfe": "line_search_fn",
}


def _by_name(advice: Mapping[str, str]) -> dict[str, str]:
    return {name: text for text, names in advice.items() for name in names.split()}


MEANT = _by_name(_INSTEAD)
"""What to use in `minimize` instead of the arguments that other libraries have."""

OF_OBJECTIVES = _by_name(_OF_OBJECTIVES)
"""What to use in `ModuleObjective` instead."""


_OF_BASELINES_BY_NAME = _by_name(_OF_BASELINES)


def answer_keywords(kind: type) -> None:
    """Make a class of `firstish.baselines` answer unknown keywords with the one meant."""
    plain, known = kind.__init__, arguments_of(kind)  # type: ignore[misc]
    meant = {name: _if_known(text, known) for name, text in _OF_BASELINES_BY_NAME.items()}

    @wraps(plain)
    def init(self: object, *given: object, **settings: object) -> None:
        for name in settings:
            if name not in known:
                raise unknown_keyword(kind.__name__, name, known, meant)
        plain(self, *given, **settings)

    kind.__init__ = init  # type: ignore[misc]


def _if_known(advice: str, known: list[str]) -> str:
    """The advice, unless it names an argument that the class does not have."""
    argument = advice.removeprefix("use `").removesuffix("`")
    if argument not in ("step_size", "betas", "memory") or argument in known:
        return advice
    return f"it has no {argument}. Omit it"


def arguments_of(call: Callable[..., object]) -> list[str]:
    """The names of its arguments, without those of `*` and `**`.

    >>> arguments_of(lambda x, y=1, **unknown: x)
    ['x', 'y']
    """
    named = inspect.signature(call).parameters.values()
    return [p.name for p in named if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one, if there is one.

    >>> closest("digit_mlp", ["digits_mlp", "mushrooms"])
    'digits_mlp'
    """
    lower = {other.lower(): other for other in known}
    found = get_close_matches(name.lower(), lower, n=1)
    return lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to append to an error, or the empty string.

    >>> did_you_mean("mushroms", ["digits_mlp", "mushrooms"])
    " Did you mean 'mushrooms'?"
    """
    found = closest(name, known)
    return f" Did you mean {found!r}?" if found else ""


def unknown_keyword(
    call: str, name: str, arguments: Iterable[str], meant: Mapping[str, str] = MEANT
) -> TypeError:
    """The error for a keyword that a call does not have.

    >>> str(unknown_keyword("minimize", "maxiter", ["max_iterations"]))
    '`minimize(maxiter=...)` is not an argument: use `max_iterations`.'
    """
    arguments = list(arguments)
    found = closest(name, arguments)
    if name in meant:
        advice = f": {meant[name]}."
    elif found:
        advice = f": use `{found}`."
    else:
        advice = f". It has {', '.join(arguments)}."
    return TypeError(f"`{call}({name}=...)` is not an argument{advice}")

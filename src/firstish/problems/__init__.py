"""The paper's problems and two small ones. To add one, add a file here and a line in `PROBLEMS`."""

from firstish.interface.keywords import did_you_mean
from firstish.problems.base import Instance, Options, Problem
from firstish.problems.cifar10_logistic import CIFAR10_LOGISTIC
from firstish.problems.digits_logistic import DIGITS_LOGISTIC
from firstish.problems.digits_mlp import DIGITS_MLP
from firstish.problems.fashion_mlp import FASHION_MLP
from firstish.problems.imagenette_resnet import IMAGENETTE_RESNET
from firstish.problems.mushrooms import MUSHROOMS

PROBLEMS: dict[str, Problem] = {
    problem.name: problem
    for problem in (
        DIGITS_LOGISTIC,
        DIGITS_MLP,
        MUSHROOMS,
        CIFAR10_LOGISTIC,
        FASHION_MLP,
        IMAGENETTE_RESNET,
    )
}
"""The problems by name, as on the command line."""


def get(name: str) -> Problem:
    """The problem of that name.

    >>> get("digits-mlp").title
    'MLP on digits'
    """
    if name not in PROBLEMS:
        meant = did_you_mean(name, PROBLEMS)
        raise ValueError(f"Unknown problem {name!r}.{meant} Use one of: {', '.join(PROBLEMS)}.")
    return PROBLEMS[name]


__all__ = ["PROBLEMS", "Instance", "Options", "Problem", "get"]

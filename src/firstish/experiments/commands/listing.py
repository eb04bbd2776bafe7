"""`firstish list`: the problems and the methods."""

from __future__ import annotations

from firstish.experiments.commands.output import console, table
from firstish.experiments.methods import METHODS
from firstish.problems import PROBLEMS


def list_all() -> None:
    """The command `firstish list`."""
    problems = table("problem", "title", "budget", "gtol", title="Problems")
    for p in PROBLEMS.values():
        problems.add_row(p.name, p.title, f"{p.budget:g}", f"{p.gtol:g}")
    methods = table("method", "label", "step size", "in", title="Methods")
    for name, spec in METHODS.items():
        rate = "theory or grid" if spec.theory else "grid" if spec.rated else "sets its own"
        methods.add_row(name, spec.label, rate, "" if spec.panel is None else "standard panel")
    console.print(problems)
    console.print(methods)
    console.print(
        "Without --method, `firstish run` compares the standard panel, or the problem's own. "
        'The default of `minimize` is lazy. Its "lbfgs" is LazyStep(memory=10, '
        "self_scaled=False); the lbfgs here is torch.optim.LBFGS.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )

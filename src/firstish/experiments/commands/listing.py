"""`firstish list`: the problems and the methods."""

from __future__ import annotations

from firstish.experiments.commands.output import console, table
from firstish.experiments.methods import METHODS
from firstish.problems import PROBLEMS

ABOUT = {
    "cgmr": "the paper's: CG, MR in turn",
    "mrcg": "the paper's: MR, CG in turn",
    "cg": "CG scale: minimum along -g",
    "mr": "MR scale: least |g| along -g",
    "gm": "GM scale: sqrt(CG * MR)",
    "plane": "minimum over g and last steps",
    "lazy": "self-scaled BFGS; the default",
    "lazy-50": "the default with 50 pairs",
    "asd": "CG or MR scale, by their ratio",
    "dy": "CG scale and Yuan's, in pairs",
    "sdc": "CG scale, then a constant one",
    "scaled-adam": "Adam's direction, scaled",
    "scaled-heavy-ball": "heavy ball's direction, scaled",
    "fixed": "gradient descent, constant step",
    "heavy-ball": "gradient descent with momentum",
    "nesterov": "Nesterov's accelerated gradient",
    "adam": "torch's Adam, full batch",
    "line-search": "search from twice the last step",
    "line-search-full": "search from the same first step",
    "line-search-no": "search from the last step",
    "pono": "Polyak step, nonmonotone search",
    "pono-uncapped": "PoNo, steps of up to 1e10",
    "lbfgs": "torch's L-BFGS, 100 pairs",
    "lbfgs-10": "torch's L-BFGS, 10 pairs",
    "adgd": "adaptive gradient descent",
    "adgd2": "adaptive gradient descent, 2",
    "abbmin": "Barzilai-Borwein steps",
    "cdat": "step from the curvature along g",
}
"""What each method is, in a few words: a line of 80 columns has room for 31 characters."""


def list_all() -> None:
    """The command `firstish list`."""
    problems = table("problem", "title", "budget", "gtol", title="Problems")
    for p in PROBLEMS.values():
        problems.add_row(p.name, p.title, f"{p.budget:g}", f"{p.gtol:g}")
    methods = table("method", "what it is", "step size", "panel", title="Methods")
    for name, spec in METHODS.items():
        rate = "theory or grid" if spec.theory else "grid" if spec.rated else "its own"
        about = ABOUT.get(name, spec.label)
        methods.add_row(name, about, rate, "" if spec.panel is None else "yes")
    console.print(problems)
    console.print(methods)
    console.print(
        "Without --method, `firstish run` compares the standard panel (yes), or the problem's own. "
        'The default of `minimize` is lazy. Its "lbfgs" is LazyStep(memory=10, '
        "self_scaled=False); the lbfgs here is torch.optim.LBFGS.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )

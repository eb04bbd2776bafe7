"""A problem and a method of your own on the command line: tables, figures, --resume.

    python examples/own_problem.py run valley --method cautious --method lazy --method lbfgs
    python examples/own_problem.py report runs/valley

The command looks names up in two tables, PROBLEMS and METHODS. This script adds an entry to each
and then calls the command. The tables are not part of the public API: they may change.
"""

from dataclasses import dataclass

import torch

import firstish
from firstish.experiments.methods import METHODS, MethodSpec
from firstish.problems import PROBLEMS, Instance, Options, Problem
from firstish_command import main


def valley(x: torch.Tensor) -> torch.Tensor:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def build(options: Options) -> Instance:
    """f and where it starts. `rows` is the number of data rows that f averages over, here none."""
    x0 = torch.zeros(20, dtype=options.dtype or torch.float64, device=options.device)
    return Instance(objective=firstish.FunctionObjective(valley, x0), x0=x0, rows=1)


@dataclass(frozen=True)
class NoState:
    pass


@dataclass(frozen=True, kw_only=True)
class Cautious:
    """Gradient descent that halves its step until f falls."""

    order = 1  # values and gradients

    def init(self, point: firstish.Point) -> NoState:
        return NoState()

    def step(
        self, point: firstish.Point, state: NoState
    ) -> tuple[firstish.Point, firstish.Step, NoState]:
        for trials in range(1, 61):
            alpha = 0.5 ** (trials - 1)
            new = point.along(-point.grad, alpha, self.order)
            if new.value < point.value:
                return new, firstish.Step(step_size=alpha, trials=trials), state
        return point, firstish.Step(failure=firstish.Failure.LINE_SEARCH), state


PROBLEMS["valley"] = Problem(
    name="valley",
    title="Rosenbrock's valley",
    formula=r"\sum_i 100 (x_{i+1} - x_i^2)^2 + (1 - x_i)^2",
    choices=("20 variables; the start is 0.",),
    build=build,
    panel=("lazy", "cgmr", "lbfgs"),  # without --method
)
METHODS["cautious"] = MethodSpec("Cautious", lambda problem, instance, rate: Cautious())

if __name__ == "__main__":
    main()

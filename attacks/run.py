"""Run the attacks and print a table; the exit code is 1 if anything was lost.

    python -m attacks.run                      every attack, seed 0
    python -m attacks.run --seed 3 archives    one attack with another seed
    python -m attacks.run --effort 0.01        a hundredth of the trials, to see that all run

An attack is a module of this folder with a function `attack(seed, effort) -> list[Tally]`.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from importlib import import_module

from attacks.tally import Tally

ATTACKS: tuple[str, ...] = (
    "line_searches",
    "interrupts",
    "archives",
    "kills",
    "damage",
    "full_disk",
    "two_runs",
    "matrices",
    "threads",
    "forks",
)

HEAD = ("attack", "tried", "refused", "survived", "lost")
SHOWN = 20  # of what was lost, so many sentences per attack


def table(tallies: list[Tally]) -> str:
    """The counts, one line per attack and one for the sum."""
    rows = [(t.name, t.tried, t.refused, t.survived, len(t.lost)) for t in tallies]
    total = ("in all", *(sum(row[k] for row in rows) for k in range(1, 5)))
    width = max(len(row[0]) for row in (HEAD, *rows, total))
    lines = [f"{HEAD[0]:{width}}" + "".join(f"{name:>10}" for name in HEAD[1:])]
    lines += [f"{name:{width}}" + "".join(f"{n:>10,}" for n in counts) for name, *counts in rows]
    lines += [f"{total[0]:{width}}" + "".join(f"{n:>10,}" for n in total[1:])]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description="Try to break firstish.")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"of {', '.join(ATTACKS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--effort", type=float, default=1.0, help="share of the trials to make")
    asked = parser.parse_args(arguments)
    unknown = sorted(set(asked.attacks) - set(ATTACKS))
    if unknown:
        parser.error(f"no attack named {', '.join(unknown)}; there are {', '.join(ATTACKS)}")
    warnings.filterwarnings("ignore", ".*draws random numbers")  # one dropout mask is meant here
    tallies: list[Tally] = []
    for name in asked.attacks or ATTACKS:
        begun = time.perf_counter()
        found = import_module(f"attacks.{name}").attack(asked.seed, asked.effort)
        seconds = time.perf_counter() - begun
        print(f"{name}: {sum(t.tried for t in found):,} trials in {seconds:.0f} s", flush=True)
        for tally in found:
            for sentence in tally.lost[:SHOWN]:
                print(f"  LOST, {tally.name}: {sentence}", flush=True)
        tallies += found
    print()
    print(table(tallies))
    return 1 if any(t.lost for t in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())

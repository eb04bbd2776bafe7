"""What the paper saw, judged on a run by words fixed beforehand: `WORDS`.

The common target of two methods is the hardest one that at least one of them met: |g| <= gtol, or
f within 1e-6, 1e-4, 1e-2 of the way from the start to the lowest value of the run. A method that
did not meet it is charged what it spent, a lower bound: its ratio is shown with "more than". Where
neither met any, as in a short run in which a third method is far ahead, it is the lowest f that
both reached.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from firstish.experiments.curves import best_so_far
from firstish.experiments.methods import METHODS
from firstish.experiments.summary import GAPS, Line, Summary
from firstish.problems import get

LEVEL, WIDE, NEXT_TO_NONE = 1.25, 2.0, 0.05
NEARLY_EVERY, RARE, ABOUT = 0.95, 0.1, 2.0

WORDS = {
    "level": f"calls to the common target within {LEVEL} times of each other",
    "ahead, behind, clearly": f"at least {LEVEL} times",
    "a wide margin, handily, far larger": f"at least {WIDE:g} times",
    "next to no backtracking": f"under {NEXT_TO_NONE} per iteration",
    "nearly every": f"at least {100 * NEARLY_EVERY:g} % of them",
    "rare": f"at most {100 * RARE:g} % of them",
    "about, agree": f"within {ABOUT:g} times",
}

SEARCHES = ("line-search", "line-search-full", "line-search-no")  # limited, full, no reset
SCALINGS = ("cgmr", "mrcg", "cg", "mr", "gm")
TUNED = ("adam", "heavy-ball", "nesterov", "fixed")
PAPERS = (*SCALINGS, *TUNED, *SEARCHES, "pono")  # the paper's own methods

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One claim on one run.

    Args:
        claim: its number in the list of the paper's claims.
        text: what the paper says.
        holds: None where the run cannot tell.
        detail: by how much.
    """

    claim: int
    text: str
    holds: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class Ratio:
    """Another method's calls over ours, to the target named."""

    other: str
    value: float
    target: str
    sure: bool  # False if the larger side did not meet the target: then it is a bound

    def __str__(self) -> str:
        times = f"{self.value:.2f}" if self.value < 10 else f"{self.value:.0f}"
        bound = "" if self.sure else "more than " if self.value >= 1 else "less than "
        return f"{self.other} {bound}{times}× ({self.target})"


def compare(ours: Line, other: Line, rows: dict[str, Rows]) -> Ratio | None:
    """The calls of `other` over those of `ours`, to their common target."""
    a, b = _targets(ours), _targets(other)
    for name in a:
        if a[name] is None and b[name] is None:
            continue
        spent_a, spent_b = (line.outcome.get("oracle_calls") for line in (ours, other))
        x, y = a[name] or spent_a, b[name] or spent_b
        if not x or not y:
            return None
        sure = a[name] is not None and b[name] is not None
        return Ratio(other.label, y / x, name, sure)
    if ours.best is None or other.best is None:
        return None
    both = max(ours.best, other.best)
    x, y = (_calls_to(both, rows.get(line.key, [])) for line in (ours, other))
    return Ratio(other.label, y / x, f"f ≤ {both:.6g}", sure=True) if x and y else None


def _calls_to(value: float, rows: Rows) -> float | None:
    """Oracle calls until f was at most that."""
    low = (r["oracle_calls"] for r in rows if r["value"] is not None and r["value"] <= value)
    return next(low, None)


def _targets(line: Line) -> dict[str, float | None]:
    """Calls to each target, the hardest first."""
    found: dict[str, float | None] = {"tolerance": line.to_gtol.oracle_calls}
    for gap, reached in sorted(zip(GAPS, line.to_gap, strict=True)):
        found[f"gap {gap:g}"] = reached.oracle_calls
    return found


def judge(summary: Summary) -> list[Verdict]:
    """Every claim that this run has something to say on."""
    name = summary.run["problem"]
    kind = {"mushrooms": "mushrooms", "imagenette-resnet": "resnet"}.get(name)
    kind = kind or ("mlp" if name.endswith("mlp") else "logistic")
    judged = _Judge(summary)
    claims = {
        "logistic": judged.logistic,
        "mlp": judged.mlp,
        "resnet": judged.resnet,
        "mushrooms": judged.mushrooms,
    }[kind]
    common = () if kind == "mushrooms" else judged.common(kind)
    return [*claims(), *common]


class _Judge:
    def __init__(self, summary: Summary) -> None:
        self.lines = {line.key: line for line in summary.lines}
        self.rows = summary.rows
        self.run = summary.run
        self.problem = get(summary.run["problem"])

    def ratios(self, ours: str, others: Sequence[str]) -> list[Ratio]:
        """Those that can be formed."""
        if ours not in self.lines:
            return []
        pairs = (
            compare(self.lines[ours], self.lines[o], self.rows) for o in others if o in self.lines
        )
        return [ratio for ratio in pairs if ratio is not None]

    def _against(
        self, claim: int, text: str, ours: str, others: Sequence[str], least: float, most: float
    ) -> Verdict:
        """Whether every ratio lies between `least` and `most`; open while a method is missing."""
        ratios = self.ratios(ours, others)
        if not ratios:
            return Verdict(claim, text, None, "the methods were not run")
        failed = [r for r in ratios if not least <= r.value <= most]
        unsure = [r for r in ratios if not r.sure and r not in failed and most < math.inf]
        missing = [METHODS[o].label for o in others if o not in self.lines]
        holds = None if (unsure or missing) and not failed else not failed
        calls = ", ".join(map(str, ratios))
        detail = f"calls over {self.lines[ours].label}'s: {calls}"
        detail += f"; not run: {', '.join(missing)}" if missing else ""
        return Verdict(claim, text, holds, detail)

    def steps(self, key: str) -> Rows:
        """Rows that took a step."""
        return [r for r in self.rows.get(key, []) if r["step_size"] is not None]

    def logistic(self) -> Iterator[Verdict]:
        yield self._against(
            1, "CGMR is level with tuned Adam and the accelerated methods.",
            "cgmr", TUNED[:3], 1 / LEVEL, LEVEL,
        )  # fmt: skip
        yield self._against(
            1, "CGMR is ahead of line search, PoNo and fixed step by a wide margin.",
            "cgmr", (*SEARCHES, "pono", "fixed"), WIDE, math.inf,
        )  # fmt: skip
        yield self._units(1, "α = 1 at every iteration of CGMR.", "cgmr", 1.0)
        yield self._reach()
        yield self._swing()

    def _reach(self) -> Verdict:
        text = "CGMR's scales swing between about 1/μ and small."
        scales, mu = [r["scale"] for r in self.steps("cgmr")][10:], self.problem.mu
        if not scales or mu is None:
            return Verdict(1, text, None, "CGMR took too few steps" if mu else "μ is not known")
        largest, smallest = mu * max(scales), mu * min(scales)
        holds = 1 / ABOUT <= largest <= ABOUT and smallest <= largest / 100
        detail = f"after ten steps {smallest:.2g}/μ to {largest:.2g}/μ in {len(scales)} steps"
        return Verdict(1, text, holds, detail)

    def _swing(self) -> Verdict:
        text = "The scales of CG and MR alone swing less than CGMR's."
        swings, told = {}, []
        for key in ("cgmr", "cg", "mr"):
            scales = [r["scale"] for r in self.steps(key)][10:]
            if not scales:
                return Verdict(1, text, None, f"{key.upper()} took too few steps")
            swings[key] = max(scales) / min(scales)
            told.append(f"{key.upper()} {min(scales):.3g} to {max(scales):.3g}")
        holds = swings["cgmr"] > max(swings["cg"], swings["mr"])
        return Verdict(1, text, holds, f"after ten steps {'; '.join(told)}")

    def mlp(self) -> Iterator[Verdict]:
        yield self._against(
            2, "CGMR is level with tuned Adam.", "cgmr", ("adam",), 1 / LEVEL, LEVEL
        )
        others = ("heavy-ball", "nesterov", "fixed", *SEARCHES, "pono")
        yield self._against(
            2, "CGMR is ahead of all others, heavy ball and Nesterov included.",
            "cgmr", others, LEVEL, math.inf,
        )  # fmt: skip
        yield self._units(2, "α = 1 at nearly every SPC step of CGMR.", "cgmr", NEARLY_EVERY)
        yield self._negative()

    def _negative(self) -> Verdict:
        text = "NC is rare and exploited by forward tracking, LPC never happens."
        steps = self.steps("cgmr")
        if not steps:
            return Verdict(2, text, None, "CGMR was not run")
        negative = [r for r in steps if r["curvature"] == "NC"]
        limited = sum(r["curvature"] == "LPC" for r in steps)
        grown = sum(r["step_size"] > 1 for r in negative)
        holds = len(negative) <= RARE * len(steps) and limited == 0 and 2 * grown >= len(negative)
        detail = (
            f"{len(negative)} of {len(steps)} steps are NC, {grown} of them with α > 1; "
            f"{limited} are LPC"
        )
        return Verdict(2, text, holds, detail)

    def resnet(self) -> Iterator[Verdict]:
        yield self._units(3, "α = 1 at every step of MRCG, no NC or LPC.", "mrcg", 1.0, pure=True)
        yield self._against(
            3, "MRCG is ahead of line search and PoNo.",
            "mrcg", (*SEARCHES, "pono"), LEVEL, math.inf,
        )  # fmt: skip
        yield self._against(3, "MRCG is behind the tuned methods.", "mrcg", TUNED, 0.0, 1 / LEVEL)
        yield self._unstable(TUNED)

    def _unstable(self, keys: Sequence[str]) -> Verdict:
        text = "The tuned methods are unstable early: f rises."
        told = {}
        for key in keys:
            values = [r["value"] for r in self.rows.get(key, [])]
            early = values[: max(2, len(values) // 4)]
            if len(early) > 1:
                told[self.lines[key].label] = max(early) / values[0]
        if not told:
            return Verdict(3, text, None, "no tuned method was run")
        peaks = ", ".join(f"{name} {peak:.2f}" for name, peak in told.items())
        detail = f"highest f of the first quarter over f at the start: {peaks}"
        holds = all(peak > 1.0 for peak in told.values())
        return Verdict(3, text, holds, detail)

    def mushrooms(self) -> Iterator[Verdict]:
        text = "A fixed α⁰ either backtracks a lot or creeps; the scaled gradient next to never."
        ours = self.lines.get("cgmr")
        fixed = [line for key, line in self.lines.items() if key.startswith("line-search-full")]
        if ours is None or ours.backtracks is None or not fixed:
            return
        told, bad = [], []
        for line in fixed:
            ratio = compare(ours, line, self.rows)
            creeps = ratio is not None and ratio.value >= WIDE
            backs = line.backtracks or 0.0
            bad.append(creeps or backs >= 1)
            slow = "" if ratio is None else f", {ratio.value:.1f}× the calls"
            told.append(f"{line.label}: {backs:.2f} backtracks{slow}")
        holds = all(bad) and ours.backtracks < NEXT_TO_NONE
        detail = f"CGMR: {ours.backtracks:.3f} backtracks per iteration; {'; '.join(told)}"
        yield Verdict(6, text, holds, detail)

    def common(self, kind: str) -> Iterator[Verdict]:
        lead = "mrcg" if kind == "resnet" else "cgmr"
        name = lead.upper()
        least = {"logistic": WIDE, "mlp": 1.0, "resnet": LEVEL}[kind]
        how = {"logistic": ", handily", "mlp": "", "resnet": ", clearly"}[kind]
        yield self._against(
            4,
            f"{name} beats CG, MR and GM alone{how}.",
            lead,
            ("cg", "mr", "gm"),
            least,
            math.inf,
        )
        yield self._larger(lead)
        yield self._monotone()
        yield from self._resets(lead)
        yield from self._time(kind, lead)

    def _larger(self, lead: str) -> Verdict:
        text = "The alternation's scales are far larger than those of CG, MR or GM alone."
        scales = {
            key: [r["scale"] for r in self.steps(key) if r["curvature"] == "SPC"]
            for key in (lead, "cg", "mr", "gm")
        }
        if not all(scales.values()):
            return Verdict(4, text, None, "the methods were not run")
        largest = {key: max(s) for key, s in scales.items()}
        middle = {key: median(s) for key, s in scales.items()}
        holds = largest[lead] >= WIDE * max(largest[key] for key in ("cg", "mr", "gm"))
        detail = ", ".join(
            f"{key.upper()} at most {largest[key]:.3g} (median {middle[key]:.3g})" for key in scales
        )
        return Verdict(4, text, holds, detail)

    def _monotone(self) -> Verdict:
        text = "MR with α = 1 lowers the gradient norm at every step (but for NC)."
        rows = self.rows.get("mr", [])
        pairs = [
            (a["grad_norm"], b["grad_norm"])
            for a, b in pairwise(rows)
            if a["step_size"] == 1 and a["curvature"] != "NC"
        ]
        if not pairs:
            return Verdict(5, text, None, "MR was not run")
        risen = sum(b >= a for a, b in pairs)
        worst = max(b / a for a, b in pairs)
        detail = f"it rose in {risen} of {len(pairs)} such steps"
        detail += f", at most by a factor of {worst:.3g}" if risen else ""
        return Verdict(5, text, risen == 0, detail)

    def _resets(self, lead: str) -> Iterator[Verdict]:
        ratios = self.ratios("line-search", SEARCHES[1:])
        text = "Limited reset is the best of the three resets."
        if len(ratios) == 2:
            detail = "calls over the limited reset's: " + ", ".join(map(str, ratios))
            yield Verdict(7, text, all(r.value >= 1 for r in ratios), detail)
        final = {k: best_so_far(self.rows[k])[-1] for k in self.rows if self.rows[k]}
        if "pono" in final and "line-search" in final and lead in final:
            text = "PoNo's best iterate beats line search, and ours beats PoNo's best."
            names = {"line-search": "line search", "pono": "PoNo", lead: lead.upper()}
            ratio, best = self.ratios("pono", ("line-search", lead)), "; f reached: "
            best += ", ".join(f"{names[k]} {final[k]:.8g}" for k in names)
            calls = "calls over PoNo's: " + ", ".join(map(str, ratio))
            holds = len(ratio) == 2 and ratio[0].value > 1 and ratio[1].value < 1
            yield Verdict(7, text, holds, calls + best)

    def _time(self, kind: str, lead: str) -> Iterator[Verdict]:
        mine = self.lines.get(lead)
        paces = {
            line.label: line.outcome["seconds"] / line.outcome["oracle_calls"]
            for key, line in self.lines.items()
            if key in PAPERS and line.outcome.get("oracle_calls") and line.outcome.get("seconds")
        }
        if len(paces) > 1:
            expected = "Seconds agree with calls" if kind != "resnet" else (
                "Seconds agree less with calls"
            )  # fmt: skip
            least, most = min(paces, key=paces.__getitem__), max(paces, key=paces.__getitem__)
            spread = paces[most] / paces[least]
            holds = (spread <= ABOUT) == (kind != "resnet")
            detail = f"a call of {most} took {spread:.2f}× one of {least}"
            yield Verdict(8, f"{expected}.", holds, detail)
        adam = self.lines.get("adam")
        if kind == "logistic" and mine and adam and adam.tuning:
            text = "Tuning Adam took about 20 CGMR runs, in time."
            if mine.to_gtol.seconds is None:
                yield Verdict(8, text, None, "CGMR did not reach its tolerance within the budget")
                return
            times = adam.tuning["seconds"] / mine.to_gtol.seconds
            calls = adam.tuning["oracle_calls"] / (mine.to_gtol.oracle_calls or 1)
            detail = f"{times:.0f} in seconds of one core each, {calls:.0f} in calls"
            yield Verdict(8, text, 20 / ABOUT <= times <= 20 * ABOUT, detail)

    def _units(self, claim: int, text: str, key: str, least: float, pure: bool = False) -> Verdict:
        steps = self.steps(key)
        if not steps:
            return Verdict(claim, text, None, f"{key.upper()} was not run")
        strong = [r for r in steps if r["curvature"] == "SPC"]
        units = sum(r["step_size"] == 1 for r in strong)
        other = len(steps) - len(strong)
        holds = units >= least * len(strong) and (other == 0 or not (pure or least == 1))
        detail = f"{units} of {len(strong)} SPC steps took α = 1"
        detail += f"; {other} steps of {len(steps)} were NC or LPC"
        return Verdict(claim, text, holds, detail)

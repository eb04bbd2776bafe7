"""What the paper saw, judged on a run by words with a threshold each: `WORDS`.

The common target of two methods is the tolerance, |g| <= gtol, where at least one of them met it. A
method that did not is charged what it spent, a lower bound: its ratio is shown with "more than", or
"less than" where it is ours. Where neither met it, or the bound does not decide, the target is the
lowest f that both reached. So no third method has a say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from firstish.experiments.methods import METHODS
from firstish.experiments.report.curves import best_so_far
from firstish.experiments.report.summary import Line, Summary
from firstish.problems import get
from firstish.result import Status

LEVEL, WIDE, NEXT_TO_NONE = 1.25, 2.0, 0.05
NEARLY_EVERY, RARE, ABOUT = 0.95, 0.1, 2.0
SMALL = 100

WORDS = {
    "level": f"calls to the common target differ by a factor of at most {LEVEL}",
    "ahead, behind, clearly": f"at least {LEVEL} times",
    "a wide margin, handily, far larger": f"at least {WIDE:g} times",
    "next to no backtracking": f"under {NEXT_TO_NONE} per iteration",
    "nearly every": f"at least {100 * NEARLY_EVERY:g} % of them",
    "rare": f"at most {100 * RARE:g} % of them",
    "about": f"within {ABOUT:g} times",
    "seconds agree with calls": "the seconds of a call of the slowest of the paper's methods are "
    f"at most {ABOUT:g} times those of the fastest",
    "backtracks a lot": "at least once per iteration",
    "creeps": f"needs at least {WIDE:g} times the calls of CGMR",
    "beats, best": "fewer calls",
    "small": f"at most 1/{SMALL} of the largest",
    "swing less": "a smaller ratio of the largest to the smallest scale after ten steps",
    "exploited": "at least half of the NC steps have α > 1",
    "unstable early": "f above its start within the first quarter of the run, for each of them",
}

BETTER = "better than claimed"
"""Said of a claim that fails only because our method is further ahead than the paper says."""

READINGS = {
    "competitive with": "level",
    "significantly outperforms": "ahead by a wide margin on logistic regression, ahead on networks",
    "handily outperform": "handily",
    "performs significantly better": "clearly",
    "significantly larger": "far larger",
    "close to 1/μ": "about 1/μ",
    "almost every": "nearly every",
    "roughly 20 times longer": "about 20",
    "largely conform": "seconds agree with calls",
    "slightly worse": "seconds do not agree with calls",
}
"""The paper's own words, and how they are read here."""

CLAIMS = {
    1: (
        "Logistic regression: CGMR is level with tuned Adam and the accelerated methods and far "
        "ahead of line search, PoNo and fixed step; α = 1 at every iteration; its scales swing "
        "between about 1/μ and small, those of CG and MR swing less.",
        "section 4 and appendix D.3, figures 2, 5, 7 and 8",
    ),
    2: (
        "MLP: CGMR is level with tuned Adam and ahead of all others; α = 1 at nearly every SPC "
        "step, NC is rare and exploited by forward tracking, LPC never happens.",
        "section 4 and appendix D.4, figures 3 and 10",
    ),
    3: (
        "ResNet: MRCG takes α = 1 at every step and meets no NC or LPC; it is ahead of line search "
        "and PoNo and behind the tuned methods, which are unstable early.",
        "section 4 and appendix D.5, figures 4 and 15",
    ),
    4: (
        "Alternation beats CG, MR and GM alone, and its scales are far larger. (Of the scales the "
        "paper says so on logistic regression and the ResNet, against CG and MR; here they are "
        "compared on every problem, and with GM too.)",
        "appendices D.3 to D.5, figures 6, 11 and 16, scales in figures 2, 4, 7, 8, 17 and 18",
    ),
    5: (
        "MR with α = 1 lowers the gradient norm at every step, but for NC steps.",
        "section 4 and appendices D.3 to D.5, figures 8, 13 and 18",
    ),
    6: (
        "A fixed first step either backtracks a lot or creeps; the scaled gradient needs next to "
        "no backtracking.",
        "section 1, figure 1",
    ),
    7: (
        "Limited reset is the best of the resets; PoNo's best iterates beat line search (not said "
        "of the ResNet), and ours beat PoNo's.",
        "appendices D.2 to D.5, figures 5, 10 and 15",
    ),
    8: (
        "Seconds agree with calls on logistic regression and MLP, less so on the ResNet; tuning "
        "Adam on logistic regression took about 20 CGMR runs.",
        "section 4 and appendices D.3 to D.5, figures 9, 14 and 19",
    ),
}
"""What the paper says, and where."""

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
        holds: None where the run does not decide it.
        detail: by how much.
    """

    claim: int
    text: str
    holds: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class Ratio:
    """Another method's calls over ours, to the target named: from `least` to `most`.

    The two differ where one of the methods did not meet the target: then one is a bound, and the
    other 0 or infinite.
    """

    other: str
    least: float
    most: float
    target: str

    def __str__(self) -> str:
        return f"{self.other} {self.times()}"

    def times(self) -> str:
        """How many times, and to which target."""
        value = self.most if self.least == 0 else self.least
        bound = "less than " if self.least == 0 else "more than " if self.most == math.inf else ""
        return f"{bound}{value:.{2 if value < 10 else 0}f}× ({self.target})"

    def within(self, least: float, most: float) -> bool | None:
        """Whether it lies between those; None if the bound does not decide it."""
        if least <= self.least and self.most <= most:
            return True
        return False if self.most < least or self.least > most else None


def compare(
    ours: Line, other: Line, rows: dict[str, Rows], least: float = 0.0, most: float = math.inf
) -> Ratio | None:
    """The calls of `other` over those of `ours`, to their common target.

    The question is whether they lie between `least` and `most`.
    """
    found = _to_tolerance(ours, other)
    if found is not None and found.within(least, most) is not None:
        return found
    return _to_value(ours, other, rows) or found


def _to_tolerance(ours: Line, other: Line) -> Ratio | None:
    """To the tolerance, where at least one of them met it."""
    x, y = ours.to_gtol.oracle_calls, other.to_gtol.oracle_calls
    if x is None and y is None:
        return None
    ratio = _calls(other) / _calls(ours)
    return Ratio(
        other.label, 0.0 if x is None else ratio, math.inf if y is None else ratio, "tolerance"
    )


def _calls(line: Line) -> float:
    """To the tolerance, or all that were spent."""
    return float(line.to_gtol.oracle_calls or line.outcome.get("oracle_calls") or math.nan)


def _to_value(ours: Line, other: Line, rows: dict[str, Rows]) -> Ratio | None:
    """To the lowest f that both reached."""
    if ours.best is None or other.best is None:
        return None
    both = max(ours.best, other.best)
    x, y = (calls_to(both, rows.get(line.key, [])) for line in (ours, other))
    return Ratio(other.label, y / x, y / x, f"f ≤ {both:.6g}") if x and y else None


def calls_to(value: float, rows: Rows) -> float | None:
    """Oracle calls until f was at most that."""
    low = (r["oracle_calls"] for r in rows if r["value"] is not None and r["value"] <= value)
    return next(low, None)


def _every(answers: Iterable[bool | None]) -> bool | None:
    """False if one is, else None if one is open."""
    told = list(answers)
    return False if False in told else None if None in told else True


KINDS = {
    "mushrooms": "mushrooms",
    "cifar10-logistic": "logistic",
    "digits-logistic": "logistic",
    "fashion-mlp": "mlp",
    "digits-mlp": "mlp",
    "imagenette-resnet": "resnet",
}


def judge(summary: Summary) -> list[Verdict]:
    """Every claim that this run has something to say on; none on a problem of one's own."""
    kind = KINDS.get(summary.run["problem"])
    if kind is None:
        return []
    judged = _Judge(summary)
    claims = {
        "logistic": judged.logistic,
        "mlp": judged.mlp,
        "resnet": judged.resnet,
        "mushrooms": judged.mushrooms,
    }[kind]
    common = () if kind == "mushrooms" else judged.common(kind)
    return [*claims(), *common]


def _judged(lines: Iterable[Line]) -> dict[str, str]:
    """The keys of the lines that are judged, and the name under which each is.

    Of a tuned method that was run with several step sizes (`adam`, the winner of a grid, and
    `adam@1e-05`) the best one stands for the method, by the rule of a grid: fewest calls to the
    tolerance, or else the lowest final objective. So does a single one that was given, as
    `adam@paper` where no grid was run.
    """
    names: dict[str, list[Line]] = {}
    for line in lines:
        names.setdefault(_name(line), []).append(line)
    judged: dict[str, str] = {}
    for name, same in names.items():
        if len(same) == 1 or name in TUNED:
            judged[min(same, key=_rank).key] = name
        else:  # as line searches with several first steps
            judged |= {line.key: line.key for line in same}
    return judged


def _name(line: Line) -> str:
    """Of the method, without a step size that was given."""
    return line.key.split("@")[0]


def _rank(line: Line) -> tuple[float, float]:
    """Those that met the tolerance first, by calls; then by the final objective."""
    if line.to_gtol.oracle_calls is not None:
        return line.to_gtol.oracle_calls, 0.0
    value = line.outcome.get("value")
    return math.inf, value if value is not None and math.isfinite(value) else math.inf


class _Judge:
    def __init__(self, summary: Summary) -> None:
        names = _judged(summary.lines)
        lines = {line.key: line for line in summary.lines}
        self.lines = {name: replace(lines[key], key=name) for key, name in names.items()}
        others = lines.keys() - names.keys()
        self.rows = {names.get(k, k): rows for k, rows in summary.rows.items() if k not in others}
        self.adams = [line for line in summary.lines if _name(line) == "adam"]
        self.run = summary.run
        self.problem = get(summary.run["problem"])

    def ratios(
        self, ours: str, others: Sequence[str], least: float = 0.0, most: float = math.inf
    ) -> list[Ratio]:
        """Those that can be formed."""
        if ours not in self.lines:
            return []
        pairs = (
            compare(self.lines[ours], self.lines[o], self.rows, least, most)
            for o in others
            if o in self.lines
        )
        return [ratio for ratio in pairs if ratio is not None]

    def _against(
        self, claim: int, text: str, ours: str, others: Sequence[str], least: float, most: float
    ) -> Verdict:
        """Whether every ratio lies between `least` and `most`; open while a method is missing."""
        ratios = self.ratios(ours, others, least, most)
        if not ratios:
            return Verdict(claim, text, None, "the methods were not run")
        missing = [METHODS[o].label for o in others if o not in self.lines]
        holds = _every(r.within(least, most) for r in ratios)
        holds = None if missing and holds else holds
        calls = ", ".join(map(str, ratios))
        label = self.lines[ours].label
        detail = f"calls relative to {label}: {calls}"
        failing = [r for r in ratios if r.within(least, most) is False]
        if least > 0 and most < math.inf:  # of those that are not level
            ahead = [r.other for r in ratios if r.least > most]
            behind = [r.other for r in ratios if r.most < least]
            detail += f"; {label} is ahead of {', '.join(ahead)}" if ahead else ""
            detail += f"; {label} is behind {', '.join(behind)}" if behind else ""
        elif holds is False:
            detail += f"; not so for {', '.join(r.other for r in failing)}"
        if failing and all(r.least > most for r in failing):
            detail += f"; {label} is {BETTER}"
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
        holds = 1 / ABOUT <= largest <= ABOUT and smallest <= largest / SMALL
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
        calm = [name for name, peak in told.items() if peak <= 1.0]
        detail += f"; not so for {', '.join(calm)}" if calm else ""
        missing = [METHODS[key].label for key in keys if key not in self.lines]
        detail += f"; not run: {', '.join(missing)}" if missing else ""
        rose = [*(peak > 1.0 for peak in told.values()), *(None for _ in missing)]
        return Verdict(3, text, _every(rose), detail)

    def mushrooms(self) -> Iterator[Verdict]:
        text = "A fixed α⁰ either backtracks a lot or creeps; the scaled gradient next to never."
        ours = self.lines.get("cgmr")
        fixed = [line for key, line in self.lines.items() if key.startswith("line-search-full")]
        if ours is None or ours.backtracks is None or not fixed:
            return
        told, bad = [], []
        for line in fixed:
            ratio = compare(ours, line, self.rows, WIDE)
            creeps = ratio is not None and ratio.least >= WIDE
            backs = line.backtracks or 0.0
            bad.append(creeps or backs >= 1)
            calls = "" if ratio is None else f", calls {ratio.times()}"
            told.append(f"{line.label}: {backs:.2f} backtracks{calls}")
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
        yield from self._time(kind)

    def _larger(self, lead: str) -> Verdict:
        text = "The alternation's scales are far larger than those of CG, MR or GM alone."
        keys = (lead, "cg", "mr", "gm")
        found = {k: [r["scale"] for r in self.steps(k) if r["curvature"] == "SPC"] for k in keys}
        scales = {key: values for key, values in found.items() if values}
        missing = [key.upper() for key in keys if key not in scales]
        if lead not in scales or len(scales) == 1:
            return Verdict(4, text, None, f"not run: {', '.join(missing)}")
        largest = {key: max(values) for key, values in scales.items()}
        below = [largest[lead] >= WIDE * largest[key] for key in scales if key != lead]
        holds = _every([*below, *(None for _ in missing)])
        detail = ", ".join(
            f"{key.upper()} at most {largest[key]:.3g} (median {median(values):.3g})"
            for key, values in scales.items()
        )
        detail += f"; not run: {', '.join(missing)}" if missing else ""
        return Verdict(4, text, holds, detail)

    def _monotone(self) -> Verdict:
        text = "MR with α = 1 lowers the gradient norm at every step (but for NC)."
        rows = self.rows.get("mr", [])
        pairs = [
            (a["grad_norm"], b["grad_norm"], b["oracle_calls"])
            for a, b in pairwise(rows)
            if a["step_size"] == 1 and a["curvature"] != "NC"
        ]
        if not pairs:
            return Verdict(5, text, None, "MR was not run")
        risen = [(b / a, calls) for a, b, calls in pairs if b >= a]
        detail = f"it rose in {len(risen)} of {len(pairs)} such steps"
        if risen:
            worst, calls = max(risen)
            most = ", by a factor of" if len(risen) == 1 else ", at most by a factor of"
            detail += f"{most} {worst:.3g} at call {calls:,.0f}"
        return Verdict(5, text, not risen, detail)

    def _resets(self, lead: str) -> Iterator[Verdict]:
        text = "Limited reset is the best of the three resets."
        yield self._against(7, text, SEARCHES[0], SEARCHES[1:], 1.0, math.inf)
        final = {k: best_so_far(self.rows[k])[-1] for k in self.rows if self.rows[k]}
        if "pono" in final and "line-search" in final and lead in final:
            text = "PoNo's best iterate beats line search, and ours beats PoNo's best."
            names = {"line-search": "line search", "pono": "PoNo", lead: lead.upper()}
            more = self.ratios("pono", ("line-search",), 1.0)
            less = self.ratios("pono", (lead,), 0.0, 1.0)
            calls = "calls relative to PoNo: " + ", ".join(map(str, more + less))
            best = ", ".join(f"{names[k]} {final[k]:.8g}" for k in names)
            told = [*(r.within(1.0, math.inf) for r in more), *(r.within(0.0, 1.0) for r in less)]
            holds = _every(told) if len(told) == 2 else None
            yield Verdict(7, text, holds, f"{calls}; f reached: {best}")

    def _time(self, kind: str) -> Iterator[Verdict]:
        together = self.run.get("paces")
        paces = {
            self.lines[key].label: pace
            for key, pace in self._paces(together).items()
            if key in PAPERS and key in self.lines
        }
        waiting = [key for key in PAPERS if key not in self.lines]
        if len(paces) > 1:
            expected = "Seconds agree with calls" if kind != "resnet" else (
                "Seconds agree less with calls"
            )  # fmt: skip
            least, most = min(paces, key=paces.__getitem__), max(paces, key=paces.__getitem__)
            spread = paces[most] / paces[least]
            agree = spread <= ABOUT
            holds = None if agree and waiting else agree == (kind != "resnet")  # it can only grow
            detail = f"a call of {most} took {spread:.2f}× one of {least}"
            if together:
                detail += f" (all methods one after another, {together['calls']:,} calls each)"
            kept = "; A·x is kept, so that trials make no pass over the data"
            detail += kept if kind == "logistic" and not agree else ""
            yield Verdict(8, f"{expected}.", holds, detail)
        if kind == "logistic":
            yield from self._grid()

    def _paces(self, together: dict[str, Any] | None) -> dict[str, float]:
        """The seconds per call of each method, from a run in one session if there is one."""
        if together:
            return {key.split("@")[0]: pace for key, pace in together["seconds"].items()}
        return {
            key: line.outcome["seconds"] / line.outcome["oracle_calls"]
            for key, line in self.lines.items()
            if line.outcome.get("oracle_calls") and line.outcome.get("seconds")
        }

    def _grid(self) -> Iterator[Verdict]:
        text = "Tuning Adam took about 20 CGMR runs, in time."
        ours = self.lines.get("cgmr")
        tuning = next((line.tuning for line in self.adams if line.tuning), None)
        if ours is None or tuning is None:
            return
        if ours.to_gtol.seconds is None:
            yield Verdict(8, text, None, "CGMR did not reach its tolerance within the budget")
            return
        longer = {line.rate: line.outcome for line in self.adams}
        trials = [
            max(trial, longer.get(trial["rate"], trial), key=lambda run: run["oracle_calls"])
            for trial in tuning["trials"]
        ]
        times = sum(trial["seconds"] for trial in trials) / ours.to_gtol.seconds
        spent = sum(trial["oracle_calls"] for trial in trials)
        calls = spent / (ours.to_gtol.oracle_calls or 1)
        detail = f"{times:.1f} in seconds of one core each, {calls:.1f} in calls ({spent:,.0f})"
        holds: bool | None = 20 / ABOUT <= times <= 20 * ABOUT
        short = (t for t in trials if t["status"] == Status.MAX_ORACLE_CALLS.name)
        cut = [t["oracle_calls"] for t in short if t["oracle_calls"] < self.run["budget"]]
        if cut:  # the whole grid would have cost more
            holds = False if times > 20 * ABOUT else None
            detail = f"more than {detail}; {len(cut)} of {len(trials)} step sizes were given up "
            detail += f"after {max(cut):,.0f} calls"
        if holds is False and times > 20:
            detail += f"; CGMR is {BETTER}"
        yield Verdict(8, text, holds, detail)

    def _units(self, claim: int, text: str, key: str, least: float, pure: bool = False) -> Verdict:
        steps = self.steps(key)
        if not steps:
            return Verdict(claim, text, None, f"{key.upper()} was not run")
        strong = [r for r in steps if r["curvature"] == "SPC"]
        units = sum(r["step_size"] == 1 for r in strong)
        other = len(steps) - len(strong)
        holds = units >= least * len(strong) and (other == 0 or not (pure or least == 1))
        detail = f"{units} of {len(strong)} SPC steps took α = 1"
        cut = next((r["oracle_calls"] for r in strong if r["step_size"] != 1), None)
        detail += "" if cut is None else f", the first exception at call {cut:,.0f}"
        detail += f"; {other} of {len(steps)} steps were NC or LPC"
        return Verdict(claim, text, holds, detail)

"""Pages of docs/results from run folders: the command, the table, the figures, the verdicts.

    .venv/bin/python benchmarks/results.py RUN_FOLDER... [--out results]

One page for each folder, named after its problem, and `verdicts.json`, from which the index is
made. A run at the paper's whole budget has a page of its own beside that of a shorter one. The
records themselves stay where they are.
"""

from __future__ import annotations

import argparse
import math
import shutil
from collections.abc import Iterable
from pathlib import Path

from budgets import crossing, cut
from claims import BETTER, PAPERS, Verdict, calls_to, judge
from results_index import CROSSINGS, WHOLE, index, is_whole, read, write

from firstish.experiments.methods import parse_choice
from firstish.experiments.report.command import words
from firstish.experiments.report.figures import draw_all
from firstish.experiments.report.summary import GAPS, Line, Reached, Summary, summarise
from firstish.experiments.storage.sessions import every
from firstish.experiments.winners import HEADERS, cells, grids
from firstish.problems import get
from firstish.problems.datasets.readers.imagenette import CLASSES
from firstish.problems.imagenette_resnet import WEIGHT_DECAY
from firstish.problems.resnet import ResNet18
from firstish.problems.seeded import seeded
from firstish.result import Status

ANSWERS = {True: "holds", False: "**does not hold**", None: "cannot be judged"}
CAPTIONS = {
    "main": "Objective and scale; step sizes unless all are 1; crosses mark negative curvature",
    "pono": "The same with PoNo and its best iterate so far",
    "scalings": "All scalings",
    "cg": "CG alone, beside the default",
    "mr": "MR alone, with the gradient norm, beside the default",
    "time": "Objective against seconds",
    "gap": "Distance from the lowest value seen",
    "backtracking": "Line search from several first steps",
}


SMALL = "A small problem of ours: the paper's claims are about its larger siblings."


LINEAR = (
    "The objective of this problem keeps A·x, so that a trial of a line search makes no pass over "
    "the data: methods with many trials spend fewer seconds per call."
)

MEMORY = {
    "imagenette-resnet": " `MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000` was set, so "
    "that freed memory is reused at once; this affects only the seconds."
}

ROWS = {"cifar10-logistic": 50_000, "fashion-mlp": 60_000, "imagenette-resnet": 9_469}

FITTED = 1.1
"""The images of the ResNet are fitted where f is at most so many times the penalty at the start."""

SESSIONS = (
    " The methods were run in several sessions on a shared machine, so their seconds compare only "
    "roughly; the verdict on seconds is by a short run of all of them in one session."
)

LINEARS = ("digits-logistic", "cifar10-logistic", "mushrooms")


def number(value: float | None, digits: int = 6) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def percent(value: float | None) -> str:
    if value is None:
        return "-"
    text = f"{100 * value:.1f} %"
    return "over 99.9 %" if text == "100.0 %" and value < 1 else text


def command(run: dict) -> str:
    """What to type for the same run, in lines of 90 characters."""
    lines, line = [], ""
    for word in words(run):
        if len(line) + len(word) > 90:
            lines.append(line)
            line = "   "
        line += f"{' ' if line else ''}{word}"
    return " \\\n".join([*lines, line])


def rank(line: Line) -> tuple[float, float]:
    """Those that met the tolerance first, by calls; then by the lowest value."""
    calls, best = line.to_gtol.oracle_calls, line.best
    return (calls, 0.0) if calls is not None else (math.inf, math.inf if best is None else best)


def last(line: Line) -> str:
    """The value at the end of a method."""
    return number(line.outcome.get("value"), 8)


def table(summary: Summary) -> list[str]:
    def cell(reached: Reached) -> str:
        return number(reached.oracle_calls)

    def row(line: Line) -> str:
        cost = "-" if line.tuning is None else number(line.tuning["oracle_calls"])
        cases = " / ".join(str(line.cases[c]) for c in ("SPC", "LPC", "NC")) if line.cases else "-"
        cells = [
            line.label,
            *map(cell, line.to_gap),
            cell(line.to_gtol),
            number(line.best, 8),
            "-" if last(line) == number(line.best, 8) else last(line),
            cost,
            percent(line.unit_steps),
            percent(line.curvature_condition),
            "-" if line.backtracks is None else f"{line.backtracks:.3f}",
            cases,
            number(line.outcome.get("seconds"), 4),
        ]
        return "| " + " | ".join(cells) + " |"

    heads = [
        "method",
        *(f"gap {gap:g}" for gap in GAPS),
        f"norm g ≤ {summary.run['gtol']:g}",
        "lowest f",
        "last f, if higher",
        "calls of the grid",
        "unit steps",
        "unit steps with curvature condition",
        "backtracks",
        "SPC / LPC / NC",
        "seconds",
    ]
    ordered = sorted(summary.lines, key=rank)
    return [
        "| " + " | ".join(heads) + " |",
        "| --- |" + " --: |" * (len(heads) - 1),
        *map(row, ordered),
    ]


def caution(summary: Summary) -> list[str]:
    """What a run far shorter than the paper's cannot say."""
    run, problem = summary.run, get(summary.run["problem"])
    if is_whole(run):
        return []
    times = problem.budget / run["budget"]
    return [
        f"The paper spent up to {problem.budget:,} calls a method, {times:.3g} times as many: the "
        "verdicts are about the calls that were spent here, and a step size tuned for those need "
        "not be the one that wins in the end.",
        "",
    ]


def penalty(summary: Summary) -> list[str]:
    """On the ResNet: the share of f that weight decay has at the start, and who came down to it."""
    if summary.run["problem"] != "imagenette-resnet":
        return []
    with seeded(summary.run["seed"]):
        squares = sum(float(p.detach().square().sum()) for p in ResNet18(len(CLASSES)).parameters())
    decay = WEIGHT_DECAY / 2 * squares
    calls = {line.label: calls_to(FITTED * decay, summary.rows[line.key]) for line in summary.lines}
    met = sorted((count, label) for label, count in calls.items() if count is not None)
    told = f"{listed(f'{label} after {count:,.0f} calls' for count, label in met)}"
    never = [label for label, count in calls.items() if count is None]
    return [
        f"At the start the penalty λ/2·‖x‖² is {decay:.4f}. A method whose f has come down to "
        "about that has fitted the images, and then shrinks the weights. "
        f"f ≤ {FITTED * decay:.4f} is reached by {told}"
        + (f"; not by {listed(never)}." if never else "."),
        "",
    ]


def listed(names: Iterable[str]) -> str:
    """Names of methods, which may have commas in them."""
    return "; ".join(names)


def unfinished(summary: Summary) -> str:
    if summary.lowest_is_final:
        return ""
    return (
        " No method met the tolerance near it, so the lowest value comes from an unfinished run, "
        "and that method's gaps are relative to its own best value."
    )


def winners(summary: Summary) -> list[str]:
    found = grids(summary)
    if not found:
        return []
    lines = ["", "## Step sizes tuned", "", "| " + " | ".join(HEADERS) + " |"]
    lines.append("| --- | --- |" + " --: |" * (len(HEADERS) - 2))
    lines += ["| " + " | ".join(cells(summary.run["problem"], grid)) + " |" for grid in found]
    return lines


def verdicts(found: list[Verdict]) -> list[str]:
    lines = ["| claim | verdict | by how much |", "| --- | --- | --- |"]
    better = {v.text: " (better)" for v in found if v.holds is False and BETTER in v.detail}
    return lines + [
        f"| {v.claim}. {v.text} | {ANSWERS[v.holds]}{better.get(v.text, '')} | {v.detail} |"
        for v in found
    ]


def beside(problem: str, title: str) -> list[str]:
    """Where this run is judged together with the other one of its problem."""
    if problem not in WHOLE:
        return ["The words are defined in [the index](index.md#how-a-claim-is-judged)."]
    other = f"[the short run]({problem}.md)"
    if title == problem:
        other = f"[the whole budget]({problem}-whole.md)"
    return [
        f"On this run alone; [the index](index.md) judges it together with {other}, and defines "
        "the words."
    ]


def size_of(run: dict) -> str:
    """How many rows."""
    every = ROWS.get(run["problem"])
    if run["subset"] is None:
        return "all rows"
    return f"{run['subset']:,} rows" + (f" of {every:,}" if every else "")


def name_of(run: dict) -> str:
    """The page of a run: that at the paper's whole budget stands beside that of a short one."""
    return run["problem"] + ("-whole" if run["problem"] in WHOLE and is_whole(run) else "")


def hours(summary: Summary) -> float:
    """Of one core, for all methods and their grids."""
    grids = sum(line.tuning["seconds"] for line in summary.lines if line.tuning)
    own = sum(line.outcome.get("seconds") or 0 for line in summary.lines)
    return (grids + own) / 3600


def spent(hours: float) -> str:
    """Hours of one core in words; minutes where they are few."""
    return f"{hours:.1f} core-hours" if hours >= 0.1 else f"{60 * hours:.1f} core-minutes"


def missing(summary: Summary) -> list[str]:
    """The labels of methods that are still to come: of the run, or of the paper's at its budget."""
    run, ended = summary.run, {line.key for line in summary.lines}
    wanted = list(run["methods"])
    if run["problem"] in WHOLE and is_whole(run):
        wanted += [key for key in PAPERS if key not in wanted]
    return [parse_choice(key).label for key in wanted if key not in ended]


def ended_early(summary: Summary) -> list[str]:
    """The methods that came to an end for another reason than the tolerance or the budget."""
    usual = (Status.CONVERGED.name, Status.MAX_ORACLE_CALLS.name)
    found = [
        f"{line.label} ended after {line.outcome['oracle_calls']:,.0f} calls: "
        f"{line.outcome['message']}"
        for line in summary.lines
        if line.outcome["status"] not in usual
    ]
    return [" ".join(found), ""] if found else []


def commands(run: dict) -> list[str]:
    """What to type for the same run and its page.

    At the whole budget the step sizes of a grid have a tenth of it, and the winner goes on.
    """
    problem, title = run["problem"], name_of(run)
    page = f"python benchmarks/results.py runs/{title} --out docs/results"
    told = ["```sh", command(run), page, "```"]
    if title != problem:
        threads = f"OMP_NUM_THREADS={run['threads']} " if "threads" in run else ""
        folder = f"--out runs/{title}"
        told = [
            "```sh",
            command({**run, "budget": run["budget"] // 10}) + f" \\\n    {folder}",
            f"{threads}firstish run {problem} --resume --budget {run['budget']} {folder}",
            page,
            "```",
            "",
            "The second command continues the winners of the grids and all other methods. We ran "
            f"each method in its own folder.{MEMORY.get(problem, '')}",
        ]
    if not is_whole(run):
        return told
    return [
        *told,
        "",
        "To rebuild this page from the published records:",
        "",
        "```sh",
        f"python benchmarks/records.py unpack benchmarks/records/{problem} runs/{title}",
        page,
        "```",
    ]


def budgets(summary: Summary) -> str:
    """What each method and each step size of a grid was allowed to spend."""
    budget = summary.run["budget"]
    trials = [t for line in summary.lines if line.tuning for t in line.tuning["trials"]]
    spent = max((t["oracle_calls"] for t in trials), default=budget)
    own = f"up to {budget:,} oracle calls per method (the last iteration may overrun slightly)"
    if not trials:
        return own
    if spent > budget / 2:
        return f"{own} and per step size of a grid"
    return (
        f"{own}, up to {spent:,.0f} per step size of a grid, whose winner was then run to the end"
    )


def crossings(summary: Summary) -> list[str]:
    """Where the lead of the paper's method over each other one changed for the last time."""
    lead = "mrcg" if summary.run["problem"] == "imagenette-resnet" else "cgmr"
    lines = {line.key: line for line in summary.lines if summary.rows.get(line.key)}
    if lead not in lines:
        return []
    ours, default, pairs = lines.pop(lead), lines.get("lazy"), lines.get("lbfgs")
    told = [crossing(ours, line, summary.rows).sentence(ours.label) for line in lines.values()]
    if default and pairs:
        told.append(crossing(default, pairs, summary.rows).sentence(default.label))
    return told


def record(summary: Summary, kept: dict) -> dict:
    """What the index tells of a run."""
    run = summary.run
    rows = "all rows" if run["subset"] is None else f"{run['subset']:,} rows"
    found = {
        "page": name_of(run),
        "rows": rows,
        "budget": run["budget"],
        "core_hours": round(hours(summary), 4),
        "verdicts": [[v.claim, v.text, v.holds, v.detail] for v in judge(summary)],
    }
    if not is_whole(run):
        return {**kept, "short": found}
    found["crossings"] = crossings(summary)
    if "short" in kept:
        early = judge(cut(summary, kept["short"]["budget"]))
        found["early"] = {v.text: [v.holds, v.detail] for v in early}
    return {**kept, "whole": found}


def page(folder: Path, out: Path, note: str) -> Summary:
    summary = summarise(folder)
    run, problem = summary.run, get(summary.run["problem"])
    found, title = judge(summary), name_of(run)
    figures = out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    shown = []
    for path in draw_all(summary, folder):
        name, caption = f"{title}-{path.name}", CAPTIONS.get(path.stem, path.stem)
        shutil.copy(path, figures / name)
        shown += [f"![{caption}](figures/{name})", "", f"*{caption}.*", ""]
    waiting = missing(summary)
    text = [
        f"# {problem.title}" + (", the whole budget" if title != problem.name else ""),
        "",
        f"[The problem](../problems.md#{problem.name}) on {size_of(run)}, {run['dtype']}, "
        f"seed {run['seed']}, {budgets(summary)}, firstish {every(run, 'firstish')}, "
        f"torch {every(run, 'torch')}, threads: {every(run, 'threads')}. "
        + (
            "Seconds are processor time."
            if run.get("processor_time")
            else "Seconds are wall-clock time."
        )
        + (SESSIONS if len(run["sessions"]) > 1 else ""),
        "",
        *([f"Not run yet: {listed(waiting)}.", ""] if waiting else []),
        *ended_early(summary),
        *caution(summary),
        *penalty(summary),
        *([SMALL, ""] if problem.name.startswith("digits") else []),
        *([note, ""] if note else []),
        *commands(run),
        "",
        f"All methods and grids together took {spent(hours(summary))}.",
        "",
        "## Verdicts",
        "",
        *beside(problem.name, title),
        "",
        *verdicts(found),
        "",
        "## Table",
        "",
        *table(summary),
        "",
        f"The lowest value seen is {number(summary.lowest, 10)}. Gap d: oracle calls until f is at "
        "most lowest + d (f0 − lowest). Unit steps: share of the steps with step size 1; with "
        "curvature condition: share that also satisfies it, at η = 0.9. "
        "Backtracks: per iteration. Calls of the grid: of all its step sizes, the "
        "winner's among them. A dash among the gaps: not reached, or the method met the tolerance "
        "first and stopped. [What the methods do](../which-method.md), "
        "[what the words mean](../glossary.md)." + unfinished(summary),
        *(["", LINEAR] if problem.name in LINEARS else []),
        *winners(summary),
        "",
        *crossed(summary),
        "## Figures",
        "",
        *shown,
    ]
    (out / f"{title}.md").write_text("\n".join(text).rstrip() + "\n")
    return summary


def crossed(summary: Summary) -> list[str]:
    told = crossings(summary)
    if not told:
        return []
    lead = f"{CROSSINGS}:"
    return ["## Crossing points", "", lead, "", *(f"- {sentence}" for sentence in told), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--note", default="", help="a sentence for the pages, such as on the load")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    known = read(args.out)
    for folder in args.folders:
        summary = page(folder, args.out, args.note)
        problem = summary.run["problem"]
        known[problem] = record(summary, known.get(problem, {}))
        print(f"{name_of(summary.run)}: {spent(hours(summary))}")
    write(known, args.out)
    index(known, args.out)
    total = sum(run["core_hours"] for runs in known.values() for run in runs.values())
    print(f"wrote {len(args.folders)} pages and the index to {args.out}; {spent(total)}")


if __name__ == "__main__":
    main()

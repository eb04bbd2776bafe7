"""Runs into a folder: whatever interrupts them, the records end up the same."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from firstish.experiments import methods, runner, tuning
from firstish.experiments.methods import METHODS, Choice, MethodSpec, parse_choice
from firstish.experiments.report.figures import draw_all
from firstish.experiments.report.page import write_report
from firstish.experiments.report.summary import summarise
from firstish.experiments.settings import Settings
from firstish.experiments.storage import checkpoints, files
from firstish.experiments.storage.rows import Mark, read_rows
from firstish.loop import Limits, Run
from firstish.problems import PROBLEMS, get
from firstish.problems.base import Options
from firstish.result import Status

pytest.importorskip("sklearn", reason="scikit-learn carries the digits")
SMALL = Options(subset=150)
COMMAND = [sys.executable, "-m", "firstish", "run", "digits-logistic", "--subset", "150"]


class Silent:
    """An observer that keeps quiet, and may act after a number of steps."""

    def __init__(self, act=None, after=None):
        self.act, self.left = act, after

    def tuning(self, choice, rates, jobs): ...

    def tuned(self, choice, tuning): ...

    def started(self, choice, limits): ...

    def ended(self, choice, outcome): ...

    def note(self, sentence): ...

    def advanced(self, choice, row):
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                self.act()


def settings(*methods, budget=200, **more):
    choices = tuple(parse_choice(m) for m in methods)
    return Settings(
        problem="digits-logistic", methods=choices, budget=budget, options=SMALL, **more
    )


def records(folder):
    """All rows but for the time they took."""
    rows = {p.stem: read_rows(p) for p in folder.glob("*.jsonl")}
    return {
        name: [{k: v for k, v in row.items() if k != "seconds"} for row in rs]
        for name, rs in rows.items()
    }


def outcomes(folder):
    return files.read_json(folder / "summary.json")["methods"]


def test_a_run_leaves_rows_and_a_summary(tmp_path):
    runner.run(settings("cgmr", "lbfgs"), tmp_path / "r", Silent(), resume=False)
    rows = records(tmp_path / "r")
    assert set(rows) == {"cgmr", "lbfgs"} == set(outcomes(tmp_path / "r"))
    for name, rs in rows.items():
        end = outcomes(tmp_path / "r")[name]
        assert [r["iteration"] for r in rs] == list(range(end["iterations"] + 1))
        assert rs[0]["oracle_calls"] == 2
        assert rs[-1]["oracle_calls"] == end["oracle_calls"]
        assert end["status"] == "CONVERGED" or end["oracle_calls"] >= 200
        assert rs[-1]["value"] == end["value"] < rs[0]["value"]
        assert rs[-1]["step_size"] is None
    assert not list((tmp_path / "r" / "checkpoints").glob("*"))


@pytest.mark.parametrize("after", [1, 17, 61])
def test_ctrl_c_and_resume_give_the_records_of_an_uninterrupted_run(tmp_path, after):
    chosen = settings("cgmr", "adam@0.1", checkpoint_seconds=1e9)
    runner.run(chosen, tmp_path / "whole", Silent(), resume=False)

    def press():
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        runner.run(chosen, tmp_path / "cut", Silent(press, after), resume=False)
    assert len(list((tmp_path / "cut" / "checkpoints").glob("*.npz"))) == 1
    runner.run(chosen, tmp_path / "cut", Silent(), resume=True)
    assert records(tmp_path / "cut") == records(tmp_path / "whole")


@pytest.mark.parametrize(("pause", "saves"), [(0.0, 50), (1.0, 5), (15.0, 3), (100.0, 0)])
def test_a_checkpoint_that_takes_long_is_made_less_often(tmp_path, monkeypatch, pause, saves):
    """Iterations of a second each, and checkpoints of half a second: at most every 10 seconds."""
    clock = SimpleNamespace(now=0.0, saved=[])

    def save(path, snapshot, mark):
        clock.now += 0.5
        clock.saved.append(path)

    class Slow(Silent):
        def advanced(self, choice, row):
            clock.now += 1.0

    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(checkpoints, "save", save)
    chosen = settings("cgmr", budget=200, gtol=0.0, checkpoint_seconds=pause)
    runner.run(chosen, tmp_path / "r", Slow(), resume=False)
    assert outcomes(tmp_path / "r")["cgmr"]["iterations"] == 50
    kept = [path for path in clock.saved if path.parent.name == "checkpoints"]
    assert len(kept) == saves


BEYOND = ("plane", "lazy", "asd", "dy", "sdc", "scaled-adam", "scaled-heavy-ball")


@pytest.mark.parametrize("name", BEYOND)
def test_the_methods_beyond_the_paper_resume_to_the_same_records(tmp_path, name):
    chosen = settings(name, budget=60, checkpoint_seconds=1e9)
    runner.run(chosen, tmp_path / "whole", Silent(), resume=False)

    def press():
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        runner.run(chosen, tmp_path / "cut", Silent(press, 7), resume=False)
    runner.run(chosen, tmp_path / "cut", Silent(), resume=True)
    assert records(tmp_path / "cut") == records(tmp_path / "whole")
    rows = records(tmp_path / "cut")[name]
    assert all(row["product"] is None for row in rows)
    if name == "lazy":
        assert [row["pairs"] for row in rows[:-1]] == list(range(len(rows) - 1))
    line = summarise(tmp_path / "cut").lines[0]
    assert line.unit_steps > 0.8
    assert sum(line.cases.values()) == (0 if name == "lazy" else len(rows) - 1)


# `firstish` that ends itself with SIGKILL before it writes so many rows.
KILLED = """
import os, signal, sys
from firstish.experiments import runner
from firstish_command import main

left, advance = int(sys.argv.pop(1)), runner.Run.advance

def counted(self, limits):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return advance(self, limits)

runner.Run.advance = counted
main()
"""


def test_sigkill_loses_and_tears_no_line(tmp_path):
    """Between iterations here; `make attack` kills at any time."""
    words = [*COMMAND[3:], "--method", "cgmr", "--method", "mr", "--budget", "600", "--gtol", "0"]
    quick = ["--checkpoint-seconds", "0.01"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run([*COMMAND[:3], *words, "--out", whole], check=True, capture_output=True)
    for rows in (1, 40, 170, 10**9):
        resume = ["--resume"] if (cut / "run.json").exists() else []
        process = subprocess.run(
            [sys.executable, "-c", KILLED, str(rows), *words, *quick, "--out", cut, *resume],
            capture_output=True,
            check=False,
        )
        assert process.returncode == (-signal.SIGKILL if rows < 10**9 else 0), process.stderr
    assert records(cut) == records(whole)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_goes_on_from_a_checkpoint_to_the_same_bits(tmp_path, name):
    problem = get("digits-logistic")
    instance = problem.load(SMALL)
    runner._warm_up(instance)  # as the runner does, so that first-time checks fall on no one
    rate = 1e-2 if METHODS[name].rated else None
    method = METHODS[name].make(problem, instance, rate)
    limits = Limits()
    whole = Run(instance.objective, instance.x0, method)
    for _ in range(12):
        assert not isinstance(whole.advance(limits), Status)
    end = whole.here()  # read before the others use the same meter

    begun = Run(instance.objective, instance.x0, method)
    for _ in range(5):
        begun.advance(limits)
    checkpoints.save(tmp_path / "c.npz", begun.snapshot(), Mark())
    snapshot, _ = checkpoints.load(tmp_path / "c.npz", method.init(whole.point), instance.x0)
    resumed = Run(instance.objective, instance.x0, method, resume=snapshot)
    for _ in range(7):
        resumed.advance(limits)
    assert torch.equal(resumed.point.x, whole.point.x)
    assert resumed.here()._replace(seconds=0) == end._replace(seconds=0)


def test_a_torn_last_line_is_left_out(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n{"a"')
    assert read_rows(path) == [{"a": 1}, {"a": 2}]


def test_a_folder_of_something_else_or_of_another_run_is_refused(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("...")
    with pytest.raises(FileExistsError, match="holds no run"):
        runner.run(settings("cgmr"), tmp_path / "other", Silent(), resume=False)
    runner.run(settings("cgmr", budget=10), tmp_path / "r", Silent(), resume=False)
    with pytest.raises(FileExistsError, match="--resume"):
        runner.run(settings("cgmr", budget=10), tmp_path / "r", Silent(), resume=False)
    with pytest.raises(ValueError, match="budget was 10, is 5"):
        runner.run(settings("cgmr", budget=5), tmp_path / "r", Silent(), resume=True)


def test_a_method_that_diverges_or_fails_is_a_row_and_not_the_end(tmp_path, monkeypatch):
    def broken(problem, instance, rate):
        raise RuntimeError("out of luck")

    monkeypatch.setitem(METHODS, "gm", MethodSpec("GM", broken))
    runner.run(settings("fixed@1e9", "gm", "cgmr"), tmp_path / "r", Silent(), resume=False)
    ends = outcomes(tmp_path / "r")
    assert ends["gm"]["message"] == "RuntimeError: out of luck"
    assert ends["cgmr"]["status"] == "MAX_ORACLE_CALLS"
    assert ends["fixed@1000000000.0"]["status"] in ("NON_FINITE", "MAX_ORACLE_CALLS")
    assert [line.key for line in summarise(tmp_path / "r").lines] == list(ends)


def test_a_step_size_that_theory_gives_is_told(tmp_path):
    runner.run(settings("fixed", "cgmr", budget=10), tmp_path / "r", Silent(), resume=False)
    lipschitz = get("digits-logistic").load(settings("fixed").options).lipschitz
    assert outcomes(tmp_path / "r")["fixed"]["rate"] == 1 / lipschitz
    assert outcomes(tmp_path / "r")["cgmr"]["rate"] is None


def test_the_grid_is_tuned_and_its_price_kept(tmp_path):
    runner.run(settings("adam", budget=60), tmp_path / "r", Silent(), resume=False)
    grid = json.loads((tmp_path / "r" / "tuning" / "adam.json").read_text(encoding="utf-8"))
    assert [t["rate"] for t in grid["trials"]] == [1e-1, 1e-2, 1e-3, 1e-4, 1e-5]
    best = min(grid["trials"], key=lambda t: t["value"])
    assert outcomes(tmp_path / "r")["adam"]["rate"] == grid["winner"] == best["rate"]
    assert outcomes(tmp_path / "r")["adam"]["value"] == pytest.approx(best["value"], rel=1e-12)
    assert grid["oracle_calls"] == sum(t["oracle_calls"] for t in grid["trials"]) >= 5 * 60


def test_an_interrupted_grid_goes_on_with_what_is_left(tmp_path, monkeypatch):
    made, real = [], tuning._trial

    def trial(settings, choice, rate):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(rate)
        return real(settings, choice, rate)

    monkeypatch.setattr(tuning, "_jobs", lambda wanted: 1)
    monkeypatch.setattr(tuning, "_trial", trial)
    asked = settings("adam", budget=20)
    with pytest.raises(KeyboardInterrupt):
        runner.run(asked, tmp_path / "run", Silent(), resume=False)
    rates = get("digits-logistic").grids["adam"]
    assert made == list(rates[:2])
    monkeypatch.setattr(tuning, "_trial", lambda *args: made.append(args[2]) or real(*args))
    runner.run(asked, tmp_path / "run", Silent(), resume=True)
    assert made == list(rates)  # none twice
    monkeypatch.setattr(tuning, "_trial", real)
    runner.run(asked, tmp_path / "whole", Silent(), resume=False)
    whole, gone_on = (
        files.read_json(tmp_path / name / "tuning" / "adam.json") for name in ("whole", "run")
    )
    for found in (whole, gone_on):
        del found["seconds"]
        for one in found["trials"]:
            del one["seconds"]
    assert gone_on == whole


# Two workers on any number of cores. They import the library anew, and so know nothing of this.
TWO_WORKERS = """
from firstish.experiments import tuning
from firstish_command import main

tuning._jobs = lambda wanted: 2
main()
"""


def members(group):
    """The processes of a process group, and the files each has mapped."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            state, _, its = (
                (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
            )
            if int(its) == group and state != "Z":
                found[int(entry.name)] = (entry / "maps").read_text(encoding="utf-8")
        except (OSError, ValueError):  # not a process, or no longer
            continue
    return found


def wait_for(condition):
    deadline = time.monotonic() + 1000  # for a machine that has much else to do
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


STAGES = {
    "importing": lambda found: len(found) >= 4,  # itself, a tracker, two workers
    # To load the problem they import scikit-learn; their parent has done so before.
    "working": lambda found: sum("sklearn" in maps for maps in found.values()) >= 3,
}


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the workers by /proc")
@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c_ends_a_grid_in_processes_at_once(tmp_path, stage):
    """In a group of its own, as a terminal would send it: to the parent and to the workers."""
    words = ["run", "digits-mlp", "--method", "adam", "--budget", "1000000000", "--gtol", "0"]
    # A shell's background job ignores SIGINT, and so would the child.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-c", TWO_WORKERS, *words, "--out", tmp_path / "r"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    signal.signal(signal.SIGINT, before)
    try:
        wait_for(lambda: STAGES[stage](members(process.pid)))
        os.killpg(process.pid, signal.SIGINT)
        told, _ = process.communicate(timeout=1000)
        wait_for(lambda: not members(process.pid))
    finally:
        if members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == 130
    assert "interrupted; go on with: firstish run digits-mlp" in told.replace("\n", " ")
    assert "Traceback" not in told


def test_names_of_methods():
    assert parse_choice("CGMR") == Choice("cgmr")
    assert parse_choice("adam@paper").rate == "paper"
    with pytest.raises(ValueError, match=r"Unknown method 'sgd'.*cgmr"):
        parse_choice("sgd")
    with pytest.raises(ValueError, match="no step size to set"):
        parse_choice("cgmr@0.1")
    with pytest.raises(ValueError, match="'fast' is not a step size"):
        parse_choice("adam@fast")


def test_the_method_of_contributing_joins_by_one_entry_of_the_table(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block, _ = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    (entry,) = re.findall(r'`("plain": .*?),`', text, flags=re.S)
    scope = dict(vars(methods))
    exec(block, scope)
    for name, spec in eval(f"{{{entry}}}", scope).items():
        monkeypatch.setitem(METHODS, name, spec)
    runner.run(settings("plain", "cgmr"), tmp_path / "r", Silent(), resume=False)
    assert outcomes(tmp_path / "r")["plain"]["oracle_calls"] == 200
    assert [line.label for line in summarise(tmp_path / "r").lines] == ["Plain", "CGMR"]
    assert draw_all(summarise(tmp_path / "r"), tmp_path)


def test_the_problem_of_contributing_joins_by_one_line_of_the_table(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, block = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    scope = {}
    exec(block, scope)
    problem = scope["VALLEY"]
    monkeypatch.setitem(PROBLEMS, problem.name, problem)
    monkeypatch.setattr(tuning, "_jobs", lambda wanted: 1)  # other processes do not know of it
    chosen = Settings(problem=problem.name, methods=tuple(map(parse_choice, problem.panel)))
    runner.run(chosen, tmp_path / "r", Silent(), resume=False)
    ends = outcomes(tmp_path / "r")
    assert ends["lazy"]["status"] == ends["lbfgs"]["status"] == "CONVERGED"
    assert ends["adam"]["rate"] in problem.grids["adam"]
    assert draw_all(summarise(tmp_path / "r"), tmp_path)
    assert write_report(summarise(tmp_path / "r"), [], tmp_path).exists()


ALL_KINDS = ("cgmr", "lazy", "adam@0.1", "heavy-ball@0.01", "lbfgs", "plane")


@pytest.mark.parametrize("name", ALL_KINDS)
def test_a_larger_budget_on_resume_goes_on_to_the_same_records(tmp_path, name):
    runner.run(settings(name, budget=90), tmp_path / "whole", Silent(), resume=False)
    runner.run(settings(name, budget=40), tmp_path / "raised", Silent(), resume=False)
    assert outcomes(tmp_path / "raised")[name]["status"] == "MAX_ORACLE_CALLS"
    steps = []
    seen = Silent()
    seen.advanced = lambda choice, row: steps.append(row.iteration)
    runner.run(settings(name, budget=90), tmp_path / "raised", seen, resume=True)
    assert records(tmp_path / "raised") == records(tmp_path / "whole")
    assert steps[0] > 1  # it went on, and did not begin again
    assert files.read_json(tmp_path / "raised" / "run.json")["budget"] == 90
    ends = [outcomes(tmp_path / folder)[name] for folder in ("raised", "whole")]
    assert ends[0] | {"seconds": 0} == ends[1] | {"seconds": 0}


def test_a_method_that_met_its_tolerance_keeps_nothing_to_go_on_with(tmp_path):
    runner.run(settings("lazy", budget=5_000), tmp_path / "r", Silent(), resume=False)
    assert outcomes(tmp_path / "r")["lazy"]["status"] == "CONVERGED"
    assert not list((tmp_path / "r").rglob("*.npz"))


def test_without_the_kept_point_a_larger_budget_begins_the_method_again(tmp_path):
    runner.run(settings("cgmr", budget=90), tmp_path / "whole", Silent(), resume=False)
    runner.run(settings("cgmr", budget=40), tmp_path / "raised", Silent(), resume=False)
    shutil.rmtree(tmp_path / "raised" / "final")
    runner.run(settings("cgmr", budget=90), tmp_path / "raised", Silent(), resume=True)
    assert records(tmp_path / "raised") == records(tmp_path / "whole")


def test_ctrl_c_in_a_run_with_a_raised_budget_loses_nothing(tmp_path):
    runner.run(settings("cgmr", "mr", budget=90), tmp_path / "whole", Silent(), resume=False)
    folder = tmp_path / "raised"
    runner.run(settings("cgmr", "mr", budget=40), folder, Silent(), resume=False)

    def press():
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        runner.run(settings("cgmr", "mr", budget=90), folder, Silent(press, 3), resume=True)
    runner.run(settings("cgmr", "mr", budget=90), folder, Silent(), resume=True)
    assert records(folder) == records(tmp_path / "whole")


def test_a_smaller_budget_is_refused(tmp_path):
    runner.run(settings("cgmr", budget=60), tmp_path / "r", Silent(), resume=False)
    with pytest.raises(ValueError, match="budget was 60, is 40"):
        runner.run(settings("cgmr", budget=40), tmp_path / "r", Silent(), resume=True)


def test_a_step_size_that_has_diverged_is_stopped_and_recorded():
    """Steps 100 times too long on least squares: f stays finite for thousands of calls."""
    trial = tuning._trial(settings("heavy-ball", budget=3_000), parse_choice("heavy-ball"), 1e3)
    assert trial.status == "DIVERGED"
    assert trial.value is None
    assert trial.oracle_calls < 1_000


def test_a_run_is_diverged_only_after_many_steps_far_above_its_start():
    seen = tuning.Divergence()

    def step(value):
        return seen(SimpleNamespace(row=SimpleNamespace(value=2.0), value=value))

    assert not any(step(250.0) for _ in range(99))
    assert not step(150.0)  # back within 100 times the start
    assert not any(step(250.0) for _ in range(99))
    assert step(250.0)

"""TensorBoard's own reader finds the records in the events, whatever interrupted the run."""

import os
import signal
import subprocess
import time
from datetime import datetime

import numpy as np
import pytest
from smallrun import RUN

from firstish.experiments import runner
from firstish.experiments.methods import parse_choice
from firstish.experiments.observers import Several, Silent
from firstish.experiments.settings import Settings
from firstish.experiments.storage import files
from firstish.experiments.storage.rows import read_rows
from firstish.experiments.tensorboard import CASES, TAGS, TensorBoard
from firstish.problems.base import Options

reader = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator",
    reason="make test-all installs tensorboard",
)


def events(folder, key):
    """Tag -> (step, value, wall time) of each event."""
    found = reader.EventAccumulator(
        str(folder / "tensorboard" / key), size_guidance={reader.SCALARS: 0}
    )
    found.Reload()
    return {
        tag: [(e.step, e.value, e.wall_time) for e in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def expected(folder, key):
    """The same from the records; TensorBoard keeps single precision."""
    began = files.read_json(folder / "run.json")["started"]
    start = datetime.strptime(began, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    out = {}
    for row in read_rows(folder / f"{key}.jsonl"):
        for field, tag in TAGS.items():
            value = row[field]
            if value is not None:
                number = CASES[value] if field == "curvature" else value
                wall = pytest.approx(start + row["seconds"], abs=1e-5)
                event = (row["oracle_calls"], float(np.float32(number)), wall)
                out.setdefault(tag, []).append(event)
    return out


def settings(*methods, problem="digits-logistic", budget=200):
    choices = tuple(parse_choice(m) for m in methods)
    options = Options(subset=150)
    return Settings(
        problem=problem, methods=choices, budget=budget, options=options, checkpoint_seconds=1e9
    )


class After(Silent):
    """Acts once, after a number of steps."""

    def __init__(self, steps, act):
        self.left, self.act = steps, act

    def advanced(self, choice, row):
        self.left -= 1
        if self.left == 0:
            self.act()


def press():
    os.kill(os.getpid(), signal.SIGINT)


def test_the_command_writes_the_records_as_events(tmp_path):
    methods = ["--method", "cgmr", "--method", "adam@0.1"]
    words = [*RUN, *methods, "--budget", "80", "--out", tmp_path / "r", "--tensorboard"]
    subprocess.run(words, check=True)
    for key in ("cgmr", "adam@0.1"):
        assert events(tmp_path / "r", key) == expected(tmp_path / "r", key)
    assert set(events(tmp_path / "r", "cgmr")) == set(TAGS.values())
    assert set(events(tmp_path / "r", "adam@0.1")) >= {"objective", "gradient_norm", "step_size"}


def test_negative_curvature_is_minus_one(tmp_path):
    """The start of a network has some."""
    with TensorBoard(tmp_path / "r") as board:
        chosen = settings("cgmr", problem="digits-mlp", budget=400)
        runner.run(chosen, tmp_path / "r", board, resume=False)
    rows = read_rows(tmp_path / "r" / "cgmr.jsonl")
    cases = [r["curvature"] for r in rows[:-1]]
    assert "NC" in cases
    shown = [value for _, value, _ in events(tmp_path / "r", "cgmr")["curvature"]]
    assert shown == [{"SPC": 1, "LPC": 0, "NC": -1}[case] for case in cases]


@pytest.mark.parametrize("after", [1, 17, 61])
def test_a_resumed_run_has_each_point_once(tmp_path, after):
    chosen, folder = settings("cgmr", "adam@0.1"), tmp_path / "r"
    with pytest.raises(KeyboardInterrupt), TensorBoard(folder) as board:
        runner.run(chosen, folder, Several(board, After(after, press)), resume=False)
    with TensorBoard(folder) as board:
        runner.run(chosen, folder, board, resume=True)
    for key in ("cgmr", "adam@0.1"):
        found = events(folder, key)
        assert found == expected(folder, key)
        steps = [step for step, _, _ in found["objective"]]
        assert steps == sorted(set(steps))
        assert len(list((folder / "tensorboard" / key).iterdir())) == 1


def test_steps_past_the_checkpoint_are_forgotten(tmp_path):
    """A crash: rows and events of steps that the last checkpoint does not know of."""
    chosen, folder = settings("cgmr"), tmp_path / "r"

    def crash():
        raise MemoryError

    saved = []

    def save():
        saved.append(True)
        press()

    with pytest.raises(KeyboardInterrupt), TensorBoard(folder) as board:
        runner.run(chosen, folder, Several(board, After(9, save)), resume=False)
    with TensorBoard(folder) as board:
        watcher = Several(board, After(12, crash))
        runner.run(chosen, folder, watcher, resume=True)  # a failed method is a row
    (folder / "summary.json").unlink()
    with TensorBoard(folder) as board:
        runner.run(chosen, folder, board, resume=True)
    assert saved
    assert events(folder, "cgmr") == expected(folder, "cgmr")


def test_a_run_that_began_without_gets_its_events_on_resume(tmp_path):
    chosen, folder = settings("cgmr", "lbfgs"), tmp_path / "r"
    with pytest.raises(KeyboardInterrupt):
        runner.run(chosen, folder, After(51, press), resume=False)
    with TensorBoard(folder) as board:
        runner.run(chosen, folder, board, resume=True)
    for key in ("cgmr", "lbfgs"):
        assert events(folder, key) == expected(folder, key)


def test_points_are_visible_while_the_run_goes_on(tmp_path):
    chosen, folder, seen = settings("cgmr"), tmp_path / "r", []

    def look():
        until = time.monotonic() + 60
        while time.monotonic() < until and not seen:
            if points := events(folder, "cgmr").get("objective"):
                seen.extend(points)
            time.sleep(0.1)

    with TensorBoard(folder, flush_seconds=1) as board:
        runner.run(chosen, folder, Several(board, After(20, look)), resume=False)
    assert seen
    assert seen == events(folder, "cgmr")["objective"][: len(seen)]

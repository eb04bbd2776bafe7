"""Every byte of a checkpoint, of records and of the other files of a run changed, one at a time.

Each change must be noticed, with the file and the line named, or be harmless: what is read is what
was written. A sample is gone on with to the end, and its records compared.
"""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from attacks import small_runs
from attacks.tally import Tally
from firstish.experiments import runner
from firstish.experiments.methods import Choice
from firstish.experiments.observers import Silent
from firstish.experiments.storage import checkpoints, files
from firstish.experiments.storage.files import DamagedError
from firstish.experiments.storage.rows import Mark, read_rows
from firstish.result import Row

ONE = replace(small_runs.SMALL, methods=(Choice("mr"),))
RESUMED = 60  # damaged checkpoints that are gone on from to the end


class Stop(Silent):
    """Interrupts after some steps, as a second Ctrl-C does."""

    def advanced(self, choice: Choice, row: Row) -> None:
        """A method has taken a step."""
        if row.iteration == 4:
            raise KeyboardInterrupt


def attack(seed: int, effort: float) -> list[Tally]:
    """Change the files of a run that was interrupted, and of one that has ended."""
    draw, step = random.Random(seed), max(1, round(1 / effort))
    with tempfile.TemporaryDirectory() as name, small_runs.prepared():
        place = Path(name)
        small_runs.run(place / "whole")
        small_runs.run(place / "one", ONE)
        with suppress(KeyboardInterrupt):
            runner.run(ONE, place / "cut", Stop(), resume=False)
        return [
            _checkpoint(place, draw, step),
            _unfinished(place, draw, step),
            _finished(place, draw, step),
            _others(place, draw, step),
            _resumed(place, draw, max(1, round(RESUMED * effort))),
        ]


def changed(path: Path, draw: random.Random, step: int) -> Iterator[int]:
    """The places in a file, each with its byte changed for the time of the loop's body."""
    right = path.read_bytes()
    for k in range(draw.randrange(step), len(right), step):
        wrong = bytearray(right)
        wrong[k] ^= draw.randrange(1, 256)
        path.write_bytes(wrong)
        yield k
    path.write_bytes(right)


def _judge(tally: Tally, path: Path, k: int, line: int | None, use: Callable[[], object]) -> None:
    """Noticed, with the file and the line; if not, `use` says whether it is harmless."""
    try:
        harmless = use()
    except DamagedError as error:
        named = str(path) if line is None else f"{path}, line "
        found = re.search(re.escape(named) + r"(\d*)", str(error))
        if found is None or (line is not None and int(found.group(1)) != line):
            tally.lost.append(f"byte {k}: not named: {error}")
        else:
            tally.refused += 1
    except Exception as error:
        tally.lost.append(f"byte {k}: {type(error).__name__}: {error}")
    else:
        tally.expect(bool(harmless), f"byte {k} of {path.name}: not noticed")


def _checkpoint(place: Path, draw: random.Random, step: int) -> Tally:
    tally, folder = Tally("a byte of a checkpoint"), place / "alone"
    shutil.copytree(place / "cut", folder)
    path, records = folder / "checkpoints" / "mr.npz", folder / "mr.jsonl"
    path.with_name("mr.npz.before").unlink()
    for k in changed(path, draw, step):
        _judge(tally, path, k, None, lambda: checkpoints.usable(path, records) and False)
    return tally


def _unfinished(place: Path, draw: random.Random, step: int) -> Tally:
    """A line that only the last checkpoint needs leads to the one before; earlier ones are named.

    The last line is past the last checkpoint: it is made again, whatever stands there.
    """
    tally, folder = Tally("a byte of an unfinished record"), place / "rows"
    shutil.copytree(place / "cut", folder)
    path, records = folder / "checkpoints" / "mr.npz", folder / "mr.jsonl"
    right = records.read_bytes()
    last = right.count(b"\n")
    for k in changed(records, draw, step):
        line = right[:k].count(b"\n") + 1

        def harmless(line: int = line) -> bool:
            taken, said = checkpoints.usable(path, records)
            if taken == path:
                return line == last and not said
            path.with_name("mr.npz.damaged").replace(path)
            return line == last - 1 and f"{records}, line {line}" in said

        _judge(tally, records, k, line, harmless)
    return tally


def _finished(place: Path, draw: random.Random, step: int) -> Tally:
    tally, path = Tally("a byte of a finished record"), place / "whole" / "cgmr.jsonl"
    right = path.read_bytes()
    written = files.read_json(path.with_name("summary.json"))["records"]["cgmr"]
    for k in changed(path, draw, step):
        line = right[:k].count(b"\n") + 1
        _judge(tally, path, k, line, lambda: read_rows(path, Mark(*written)) and False)
    return tally


def _others(place: Path, draw: random.Random, step: int) -> Tally:
    """A change in the word `check` itself hides it, and what was written is still read."""
    tally = Tally("a byte of run, summary or tuning")
    for name in ("run.json", "summary.json", "tuning/adam.json"):
        path = place / "whole" / name
        right = files.read_json(path)
        for k in changed(path, draw, step):

            def same(path: Path = path, right: dict[str, object] = right) -> bool:
                return files.read_json(path).items() >= right.items()

            _judge(tally, path, k, None, same)
    return tally


def _resumed(place: Path, draw: random.Random, count: int) -> Tally:
    """Any byte of the last checkpoint, with the one before beside it: the same records."""
    tally, whole = Tally("runs gone on with from the one before"), small_runs.records(place / "one")
    for k in range(count):
        folder = place / f"resumed-{k}"
        shutil.copytree(place / "cut", folder)
        path = folder / "checkpoints" / "mr.npz"
        wrong = bytearray(path.read_bytes())
        wrong[draw.randrange(len(wrong))] ^= draw.randrange(1, 256)
        path.write_bytes(wrong)
        small_runs.run(folder, ONE)
        found = small_runs.faults(folder, whole)
        tally.expect(not found, f"trial {k}: {found}")
    return tally

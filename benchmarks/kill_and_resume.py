"""Kill a run with SIGKILL ten times, resume each time, and compare its records with a whole run's.

    .venv/bin/python benchmarks/kill_and_resume.py [--kills 10]

The kills fall uniformly over the time the whole run took, counted from its first record on. Wall
times aside, every row must be equal, and none may be missing or torn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = [
    *(sys.executable, "-m", "firstish", "run", "digits-logistic"),
    *("--method", "cgmr", "--method", "gm", "--method", "adam@0.01", "--method", "lbfgs"),
    *("--gtol", "0", "--budget", "6000", "--checkpoint-seconds", "0.2"),
]


def start(folder: Path, resume: bool) -> subprocess.Popen[bytes]:
    """The run, in a process of its own."""
    words = [*RUN, "--out", str(folder), *(["--resume"] if resume else [])]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def size(folder: Path) -> int:
    """Bytes of all records."""
    return sum(path.stat().st_size for path in folder.glob("*.jsonl"))


def records(folder: Path) -> dict[str, list[dict[str, object]]]:
    """Every line of every file; a torn one would not parse."""
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found[path.stem] = [{k: v for k, v in row.items() if k != "seconds"} for row in rows]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory() as name:
        whole, cut = Path(name) / "whole", Path(name) / "cut"
        assert start(whole, resume=False).wait() == 0
        total = size(whole)
        after_checkpoint = 0
        for k in range(kills):
            process = start(cut, resume=(cut / "run.json").exists())
            goal = total * (k + 1) / (kills + 1)
            while process.poll() is None and size(cut) < goal:
                time.sleep(0.005)
            saved = any((cut / "checkpoints").glob("*.npz"))
            after_checkpoint += saved
            print(f"kill {k + 1}: at {size(cut) / total:.0%} of the records, checkpoint: {saved}")
            process.kill()
            process.wait()
        assert start(cut, resume=True).wait() == 0
        one, two = records(whole), records(cut)
        rows = sum(map(len, one.values()))
        same = one == two
        print(f"{kills} kills, {after_checkpoint} with a checkpoint on disk; {rows} rows: ", end="")
        print("equal" if same else "DIFFERENT")
        sys.exit(0 if same and after_checkpoint >= 3 else 1)


if __name__ == "__main__":
    main()

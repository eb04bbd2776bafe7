"""Published records: the rows of finished methods in little space, and run folders made of them.

    .venv/bin/python benchmarks/records.py pack RUN_FOLDER... [--into benchmarks/records]
    .venv/bin/python benchmarks/records.py paces RUN_FOLDER [--into benchmarks/records]
    .venv/bin/python benchmarks/records.py unpack benchmarks/records/fashion-mlp RUN_FOLDER

A run at the paper's whole budget takes hours, and its rows hundreds of megabytes. `pack` keeps each
method that has ended as RECORDS/PROBLEM/METHOD.json.xz: what the tables, the figures and the
verdicts read of its rows, f and |g| with nine digits, other numbers with five, seconds to the
millisecond. Methods may come from several folders, also of several sessions, if all other settings
agree. Their seconds cannot be compared then, so `paces` keeps the seconds per call of a short run
of all methods in one session.
`unpack` makes a run folder of all this, for `firstish report` and `benchmarks/results.py`.
"""

from __future__ import annotations

import argparse
import json
import lzma
from dataclasses import fields
from pathlib import Path
from typing import Any

from firstish.experiments.storage import files
from firstish.experiments.storage.ends import Ends, read_ends, write_ends
from firstish.experiments.storage.rows import Mark, RowWriter, read_rows
from firstish.result import Row

RECORDS = Path(__file__).with_name("records")
DIGITS = {"value": 9, "grad_norm": 9, "scale": 5, "step_size": 5, "slope_ratio": 5}
EXACT = ("oracle_calls", "passes", "trials", "pairs", "curvature", "scaling", "product")
PACES = "paces.json"
SETTINGS = ("problem", "budget", "gtol", "seed", "subset", "dtype", "device", "processor_time")

Method = dict[str, Any]


def pack(folder: Path, into: Path) -> list[Path]:
    """Keep the methods of a run folder that have ended; the files written."""
    run, ends = files.read_json(folder / "run.json"), read_ends(folder)
    place = into / run["problem"]
    place.mkdir(parents=True, exist_ok=True)
    written = []
    for key, outcome in ends.methods.items():
        tuning = folder / "tuning" / f"{key}.json"
        kept = {
            "run": {k: v for k, v in run.items() if k not in ("methods", "check")},
            "outcome": outcome,
            "tuning": files.read_json(tuning) if tuning.exists() else None,
            "columns": _columns(read_rows(folder / f"{key}.jsonl", ends.records[key])),
        }
        path = place / f"{key}.json.xz"
        for other in _packed(place).values():
            _check(kept["run"], other["run"], folder)
        path.write_bytes(lzma.compress(json.dumps(kept, separators=(",", ":")).encode(), preset=9))
        written.append(path)
    return written


def paces(folder: Path, into: Path) -> Path:
    """Keep the seconds per call of each method of a run made in one session; the file written."""
    run, ends = files.read_json(folder / "run.json"), read_ends(folder)
    if len(run["sessions"]) != 1:
        raise SystemExit(f"{folder} was made in several sessions: their seconds do not compare.")
    place = into / run["problem"]
    for other in _packed(place).values():
        _check({**run, "budget": other["run"]["budget"]}, other["run"], folder)
    seconds = {k: end["seconds"] / end["oracle_calls"] for k, end in ends.methods.items()}
    path = place / PACES
    files.write_json(path, {"calls": run["budget"], "seconds": seconds})
    return path


def unpack(place: Path, folder: Path) -> None:
    """Make a run folder of packed methods."""
    found = _packed(place)
    if not found:
        raise SystemExit(f"{place} has no packed methods.")
    if folder.exists():
        raise SystemExit(f"{folder} exists already.")
    (folder / "tuning").mkdir(parents=True)
    runs = [method["run"] for method in found.values()]
    every = [session for run in runs for session in run["sessions"]]
    unique = [session for k, session in enumerate(every) if session not in every[:k]]
    sessions = sorted(unique, key=lambda session: session["started"])
    joined = {"sessions": sessions}
    if (place / PACES).exists():
        joined["paces"] = files.read_json(place / PACES)
    files.write_json(folder / "run.json", {**runs[0], **joined, "methods": list(found)})
    ends = Ends({}, {})
    for key, method in found.items():
        if method["tuning"] is not None:
            files.write_json(folder / "tuning" / f"{key}.json", method["tuning"])
        writer = RowWriter(folder / f"{key}.jsonl", Mark())
        for row in _rows(method["columns"]):
            writer.write(row)
        ends.methods[key], ends.records[key] = method["outcome"], writer.close()
    write_ends(folder, ends, list(found))


def _packed(place: Path) -> dict[str, Method]:
    """The packed methods of a problem by key."""
    return {
        path.name.removesuffix(".json.xz"): json.loads(lzma.decompress(path.read_bytes()))
        for path in sorted(place.glob("*.json.xz"))
    }


def _check(run: Method, other: Method, folder: Path) -> None:
    differ = [name for name in SETTINGS if run.get(name) != other.get(name)]
    if differ:
        told = "; ".join(f"{name} {run.get(name)}, packed {other.get(name)}" for name in differ)
        raise SystemExit(f"{folder} has other settings than the methods packed before: {told}.")


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in EXACT}
    for name, digits in DIGITS.items():
        columns[name] = [_short(row[name], digits) for row in rows]
    columns["seconds"] = [round(row["seconds"], 3) for row in rows]
    return columns


def _short(number: float | None, digits: int) -> float | None:
    return None if number is None else float(f"{number:.{digits}g}")


def _rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    names = [field.name for field in fields(Row)]
    count = len(columns["value"])
    return [
        dict.fromkeys(names) | {name: column[k] for name, column in columns.items()}
        | {"iteration": k}
        for k in range(count)
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="keep the methods that have ended")
    packing.add_argument("folders", type=Path, nargs="+")
    packing.add_argument("--into", type=Path, default=RECORDS)
    pacing = commands.add_parser("paces", help="keep the seconds per call of a run in one session")
    pacing.add_argument("folders", type=Path, nargs="+")
    pacing.add_argument("--into", type=Path, default=RECORDS)
    unpacking = commands.add_parser("unpack", help="make a run folder of packed methods")
    unpacking.add_argument("records", type=Path)
    unpacking.add_argument("folder", type=Path)
    args = parser.parse_args()
    if args.command == "unpack":
        unpack(args.records, args.folder)
        print(f"made {args.folder}")
        return
    for folder in args.folders:
        written = [paces(folder, args.into)] if args.command == "paces" else pack(folder, args.into)
        for path in written:
            print(f"wrote {path}, {path.stat().st_size / 1000:,.0f} kB")


if __name__ == "__main__":
    main()

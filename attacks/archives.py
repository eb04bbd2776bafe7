"""Hostile files for every reader of data.

Every one must be refused by an error of ours that names the file, or give the arrays that its bytes
say. Nothing may be written, unpickled, started or connected to, within a bound on memory and time.
The trials are made in another process, which has that bound.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from attacks.hostile import damaged, made
from attacks.readers import Reader, readers
from attacks.tally import Tally
from firstish.problems.datasets import DataError

DAMAGED = 400  # damaged files for each reader, at full effort
ROUNDS = 2  # times through the files that are made, at full effort
MEMORY = 256 << 20  # bytes more than the process has when it begins
SECONDS = 60  # a trial takes milliseconds; this is for one that would never end
_WATCHED = (
    *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"),
    *("os.system", "os.exec", "os.fork", "os.posix_spawn", "shutil.", "subprocess.", "socket."),
    *("pickle.find_class", "ctypes."),
)


def attack(seed: int, effort: float) -> list[Tally]:
    """Hostile and damaged files for each reader."""
    command = [sys.executable, "-m", "attacks.archives", str(seed), str(effort)]
    ended = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=3600
    )
    if ended.returncode:
        reason = f"exit code {ended.returncode}: {ended.stderr[-2000:]}"
        return [Tally("archives", lost=[reason])]
    return [Tally(**tally) for tally in json.loads(ended.stdout)]


class _Watch:
    """What a reader does besides reading, by Python's audit events."""

    def __init__(self) -> None:
        self.seen: list[str] | None = None
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.seen is None:
            return
        writes = event == "open" and bool(int(str(arguments[2])) & (os.O_WRONLY | os.O_RDWR))
        if writes or event.startswith(_WATCHED):
            self.seen.append(f"{event} {arguments}"[:200])

    def __enter__(self) -> list[str]:
        self.seen = []
        return self.seen

    def __exit__(self, *_: object) -> None:
        self.seen = None


def _files(
    reader: Reader, others: list[Reader], seed: int, effort: float
) -> Iterator[tuple[str, bytes]]:
    rng = random.Random(f"{reader.name} {seed}")
    for other in others:
        yield f"the file of {other.name}", other.valid
    for _ in range(max(1, round(ROUNDS * effort))):
        yield from made(reader.name, reader.valid, rng)
    for k in range(max(5, round(DAMAGED * effort))):
        yield f"damage {k}", damaged(reader.valid, rng.choice(others).valid, rng)


def _judge(reader: Reader, what: str, data: bytes, watch: _Watch, tally: Tally) -> None:
    """Read the bytes and count how it ended."""
    signal.alarm(SECONDS)
    found, error = None, None
    with watch as seen:
        try:
            found = reader.read(data)
        except BaseException as caught:
            error = caught
    signal.alarm(0)
    if seen:
        tally.lost.append(f"{what}: {seen[0]}")
    elif found is not None:
        tally.expect(reader.right(data, found), f"{what}: other arrays than the bytes say")
    elif not isinstance(error, DataError) or isinstance(error.__cause__, MemoryError):
        tally.lost.append(f"{what}: {error!r}")
    elif "file" not in str(error) or len(str(error)) > 2000:
        tally.lost.append(f"{what}: an error that is not clear: {str(error)[:200]}")
    else:
        tally.refused += 1


def _house(reader: Reader, folder: Path) -> Path:
    """A data folder with a front door for that reader."""
    house = folder / f"data of {reader.name}"
    (house / reader.path).parent.mkdir(parents=True)
    for other in reader.beside:
        (house / other).touch()
    return house


def _knock(reader: Reader, what: str, data: bytes, house: Path, tally: Tally) -> None:
    """Lay the file where the front door looks for it: it is none of the published ones."""
    (house / reader.path).write_bytes(data)
    try:
        reader.load(house)
        tally.lost.append(f"{what}: the front door let it in")
    except DataError as error:
        if str(house) in str(error):
            tally.refused += 1
        else:
            tally.lost.append(f"{what}: no file named: {error}")
    except Exception as error:
        tally.lost.append(f"{what}: {error!r}")


def _try(
    reader: Reader, files: Iterator[tuple[str, bytes]], watch: _Watch, folder: Path
) -> list[Tally]:
    """All trials of one reader: behind its front door, and at it."""
    behind, door = Tally(reader.name), Tally(f"{reader.name}, front door")
    house = _house(reader, folder)
    for what, data in files:
        packed = reader.pack(data)
        _judge(reader, what, packed, watch, behind)
        if not what.startswith("damage"):
            _knock(reader, what, packed, house, door)
    return [behind, door]


def _alone(seed: int, effort: float) -> list[Tally]:
    """The trials, in this process."""
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")  # Pillow's, of files that are then refused or read
    os.environ["FIRSTISH_OFFLINE"] = "1"
    signal.signal(signal.SIGALRM, _too_long)
    watch, tallies = _Watch(), []
    with tempfile.TemporaryDirectory() as name:
        every = readers(Path(name))
        for reader in every:  # whatever is imported only now is imported before anyone watches
            assert reader.right(reader.pack(reader.valid), reader.read(reader.pack(reader.valid)))
        _bound_memory()
        for reader in every:
            others = [other for other in every if other is not reader]
            files = _files(reader, others, seed, effort)
            tallies += _try(reader, files, watch, Path(name))
    return tallies


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def _bound_memory() -> None:
    if sys.platform != "linux":
        return
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    print(json.dumps([asdict(tally) for tally in _alone(int(sys.argv[1]), float(sys.argv[2]))]))

"""Run folders: which one to use, and a lock that lets only one process write into it.

The lock is the kernel's, on DIR/.lock: it ends with the process that holds it, however that ends.
The file stays, and names the last process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from firstish.experiments.storage import files
from firstish.experiments.storage.ends import read_ends
from firstish.experiments.storage.files import StorageError, named

LOCK = ".lock"
_LEFTOVERS = {LOCK, "run.json.part"}
# The errors of a file system without locks; a run there is not locked.
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}

_PATIENCE = 1.0  # seconds: `in_use` of another process holds the lock for an instant


class OccupiedError(StorageError):
    """A folder into which another process writes."""


@contextmanager
def occupied(folder: Path) -> Iterator[None]:
    """Create the folder if necessary and lock it; raises if another process has the lock.

    A folder in which no run was begun is left as it was.
    """
    made = not folder.exists()
    with named(folder, "make"):
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = _locked(folder)
    try:
        yield
    finally:
        if not (folder / "run.json").exists():
            _clear(folder, made)
        os.close(descriptor)


def _locked(folder: Path) -> int:
    """The descriptor of the lock file, locked."""
    path = folder / LOCK
    while True:
        with named(path, "write"):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(descriptor, folder)
            if _is_there(descriptor, path):  # and not deleted by its last holder
                with named(path, "write"):
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode())
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    """Lock, or raise with the name of the holder."""
    patience = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > patience:
                break
            time.sleep(0.02)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return None
            raise
    holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
    raise OccupiedError(
        f"{folder} is in use by {holder or 'another process'}. Wait until it has ended, or "
        "use another --out."
    )


def _is_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _clear(folder: Path, made: bool) -> None:
    """Delete what a run that did not begin has left; the folder too if we made it."""
    with suppress(OSError):
        for name in _LEFTOVERS:
            (folder / name).unlink(missing_ok=True)
        if made:
            folder.rmdir()


def is_free(folder: Path) -> bool:
    """True if nothing is there but what a run leaves that was killed as it began."""
    return not folder.exists() or {p.name for p in folder.iterdir()} <= _LEFTOVERS


def fresh(folder: Path) -> Path:
    """The first of DIR, DIR-2, DIR-3, ... that does not exist, created to reserve it."""
    with named(folder, "make"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        for k in count(1):
            name = folder if k == 1 else folder.with_name(f"{folder.name}-{k}")
            try:
                name.mkdir()
            except FileExistsError:
                continue
            return name
    raise AssertionError  # there is always another number


def remove_empty(folder: Path) -> None:
    """Delete what `fresh` created if no run was begun in it."""
    with suppress(OSError):
        folder.rmdir()


def to_resume(folder: Path, problem: str) -> Path:
    """The run of a problem to resume, among DIR, DIR-2, DIR-3, ...

    The only one that is not finished; if all are, the last that was begun. Copies by other names
    and other problems do not count, nor do runs in progress.
    """
    runs = {p: run for p, run in _begun(folder).items() if run.get("problem") == problem}
    unfinished = [p for p, run in runs.items() if set(run["methods"]) - _ended(p)]
    waiting = [p for p in unfinished if not in_use(p)] or unfinished
    if len(waiting) > 1:
        raise ValueError(
            f"--resume: there are several unfinished runs of {problem}: "
            f"{', '.join(map(str, waiting))}. Name one by --out."
        )
    return (waiting or [max(runs, key=lambda p: _age(runs[p]), default=folder)])[0]


def in_use(folder: Path) -> bool:
    """True if a process is writing into the folder."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _begun(folder: Path) -> dict[Path, dict[str, Any]]:
    """The runs begun in the folder and its numbered siblings, by number."""
    numbered = re.compile(re.escape(folder.name) + r"(-[1-9][0-9]*)?")
    named_so = [p for p in folder.parent.glob("*") if numbered.fullmatch(p.name)]
    by_number = sorted(named_so, key=lambda p: (len(p.name), p.name))
    return {p: files.read_json(m) for p in by_number if (m := p / "run.json").exists()}


def _ended(folder: Path) -> set[str]:
    return set(read_ends(folder, rebuild=False).methods)


def _age(run: dict[str, Any]) -> datetime:
    return datetime.strptime(run["started"], "%Y-%m-%dT%H:%M:%S%z")

"""A disk that is full at every stage of a run, its figures and its page; then one with room.

In a tmpfs of every size up to what a run needs, where this process may mount one; and with an
`fsync` that says so from the k-th call on, for every k.
"""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from pathlib import Path
from unittest import mock

from attacks import small_runs
from attacks.tally import Tally
from firstish.experiments.storage.files import StorageError

PAGE = 4096  # bytes: what a tmpfs counts in


def attack(seed: int, effort: float) -> list[Tally]:
    """Let the disk be full in two ways."""
    with tempfile.TemporaryDirectory() as name, small_runs.prepared():
        place = Path(name)
        small_runs.run(place / "whole")
        whole = small_runs.records(place / "whole")
        step = max(1, round(0.6 / effort))
        return [_from_a_write_on(place, whole, step), _small_disks(place, whole, step)]


def _from_a_write_on(place: Path, whole: small_runs.Records, step: int) -> Tally:
    tally, real = Tally("full from every write on"), os.fsync
    for k in range(1, 10_000, step):
        left = k

        def fsync(descriptor: int) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(descriptor)

        with mock.patch.object(os, "fsync", fsync):
            refused = _refused(place / f"write-{k}")
        if refused == "done":  # there are fewer writes
            break
        found = refused or _gone_on_with(place / f"write-{k}", whole)
        tally.expect(not found, f"write {k}: {found}")
    return tally


def _refused(folder: Path) -> str:
    """Run on a full disk: the empty string for an error that names a file, as it must be."""
    try:
        small_runs.run(folder)
    except StorageError as error:
        named = str(folder) in str(error) and "No space left on device" in str(error)
        return "" if named else f"not named: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def _gone_on_with(folder: Path, whole: small_runs.Records) -> str:
    try:
        small_runs.run(folder)
    except Exception as error:
        return f"not gone on with: {type(error).__name__}: {error}"
    return small_runs.faults(folder, whole)


def _small_disks(place: Path, whole: small_runs.Records, step: int) -> Tally:
    """Sizes by the page for the run, by the fifth for its figures and page, which are larger."""
    tally, disk = Tally("disks of every small size"), place / "disk"
    disk.mkdir()
    if not _mount(disk, 100 * PAGE):
        tally.name += " (not tried: mounting needs root)"
        return tally
    subprocess.run(["umount", disk], check=True)
    size = 2.0 if step == 1 else 2.0 + step % 7
    while True:
        _mount(disk, int(size) * PAGE)
        try:
            refused = _refused(disk / "r")
            _mount(disk, 10_000 * PAGE, "remount,")
            found = "" if refused == "done" else refused or _gone_on_with(disk / "r", whole)
        finally:
            subprocess.run(["umount", disk], check=True)
        if refused == "done":
            return tally
        tally.expect(not found, f"{int(size)} pages: {found}")
        size = max(size + step, size * 1.1 if step == 1 else size * 4)


def _mount(place: Path, size: int, more: str = "") -> bool:
    words = ["mount", "-t", "tmpfs", "-o", f"{more}size={size}", "tmpfs", str(place)]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False

"""The folders in which data are searched for."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "FIRSTISH_DATA"


def cache() -> Path:
    """The folder downloads go to: firstish in XDG_CACHE_HOME, or in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "firstish"


def folders(data: Path | None = None) -> list[Path]:
    """The folders to search, in order: the one named; or else FIRSTISH_DATA's, then the cache.

    A folder named by the caller is the only one: what is found does not depend on the machine.
    """
    if data is not None:
        return [_existing(Path(data), "`Options(data=...)` (`--data`)")]
    named = os.environ.get(VARIABLE)
    return [*([_existing(Path(named), VARIABLE)] if named else []), cache()]


def _existing(folder: Path, owner: str) -> Path:
    folder = folder.expanduser()
    if not folder.is_dir():
        raise NotADirectoryError(
            f"{owner} names {str(folder)!r}, which is not a folder. Create it, or name another."
        )
    return folder

"""Fetching a file from its publisher: https, checked before it is used, in place all at once."""

from __future__ import annotations

import os
import secrets
import urllib.request
from collections.abc import Callable
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError

from firstish.problems.data.errors import refused
from firstish.problems.data.files import File, verify

TIMEOUT = 30.0  # seconds without an answer
LIMIT = 1 << 30  # bytes, where the size is not known
OFFLINE = "FIRSTISH_OFFLINE"

Progress = Callable[[int, int | None], None]


class _HttpsOnly(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not newurl.startswith("https://"):
            raise URLError(f"{req.full_url} leads to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(url: str) -> Any:
    return urllib.request.build_opener(_HttpsOnly).open(url, timeout=TIMEOUT)


def fetch(
    file: File,
    target: Path,
    *,
    check: Callable[[Path], object] | None = None,
    progress: Progress | None = None,
) -> None:
    """Download a file to `target`.

    It is written beside the target under another name, checked, and renamed: a file at `target` is
    whole or not there.

    Args:
        file: what to fetch, and what its bytes must be.
        target: where to put it.
        check: called with the unnamed file, to raise if its structure is wrong.
        progress: called with the bytes so far and in all (None if unknown).

    Raises:
        OSError: there is no network, no such page, no room, or no permission.
        DataError: what came is not what it should be.
    """
    if file.url is None:
        raise ValueError(f"`fetch` got {file.path}, which nobody offers for download.")
    if os.environ.get(OFFLINE):
        raise URLError(f"{OFFLINE} is set")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with _open(file.url) as answer, part.open("xb") as stream:
            _copy(answer, stream, file, progress)
        verify(part, file, file.url)
        if check is not None:
            check(part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _copy(answer: Any, stream: IO[bytes], file: File, progress: Progress | None) -> None:
    """Copy the answer, and stop as soon as it is longer than it may be."""
    stated = answer.headers.get("Content-Length")
    total = int(stated) if stated and stated.isdigit() else None
    wanted = file.size if file.exact else None
    if wanted is not None and total is not None and total != wanted:
        raise refused(file.url or "", expected=f"{wanted:,} bytes", found=f"{total:,}")
    limit = LIMIT if wanted is None else wanted
    done = 0
    while block := answer.read(1 << 16):
        done += len(block)
        if done > limit:
            raise refused(file.url or "", expected=f"at most {limit:,} bytes", found="more")
        stream.write(block)
        if progress is not None:
            progress(done, total)
    if total is not None and done != total:
        raise refused(file.url or "", expected=f"{total:,} bytes", found=f"{done:,}")

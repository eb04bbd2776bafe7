"""Download of a file from its publisher: by https, verified before use, written atomically."""

from __future__ import annotations

import os
import re
import secrets
import urllib.request
from collections.abc import Callable
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError

from firstish.problems.datasets.errors import refused
from firstish.problems.datasets.files import File
from firstish.problems.datasets.readers.limits import Content, check_bytes

TIMEOUT = 30.0  # seconds without an answer
OFFLINE = "FIRSTISH_OFFLINE"

Check = Callable[[Content], object]
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
    check: Check | None = None,
    progress: Progress | None = None,
) -> None:
    """Download a file to `target`.

    The response is verified, written beside the target under another name, and renamed: a file at
    `target` is complete and right, or not there.

    Args:
        file: what to fetch, and what its bytes must be.
        target: where to put it.
        check: called with the response; raises if its structure is wrong.
        progress: called with the bytes so far and in all (None if unknown).

    Raises:
        OSError: there is no network, no such page, no room, or no permission.
        DataError: the response is not what it should be.
    """
    if file.url is None:
        raise ValueError(
            f"`fetch` got {file.path}, which has no URL. Put the file in place by hand."
        )
    if os.environ.get(OFFLINE):
        raise URLError(f"{OFFLINE} is set")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _open(file.url) as answer:
        content = Content(file.url, _receive(answer, file, file.url, progress))
    check_bytes(content, file)
    if check is not None:
        check(content)
    _put(content.data, target)


def _put(data: bytes | memoryview, target: Path) -> None:
    """Write a file atomically."""
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())  # or the name could outlive a crash, and the bytes not
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _receive(answer: Any, file: File, url: str, progress: Progress | None) -> bytes:
    """The response; refused as soon as it is, or announces itself, too long."""
    stated = answer.headers.get("Content-Length") or ""
    total = int(stated) if re.fullmatch("[0-9]{1,18}", stated) else None
    if total is not None and total > file.most:
        raise refused(url, expected=f"at most {file.most:,} bytes", found=f"{total:,}")
    blocks, done = [], 0
    while block := answer.read(1 << 16):
        blocks.append(block)
        done += len(block)
        if done > file.most:
            raise refused(url, expected=f"at most {file.most:,} bytes", found="more")
        if progress is not None:
            progress(done, total)
    if total is not None and done != total:
        raise refused(url, expected=f"{total:,} bytes", found=f"{done:,}")
    return b"".join(blocks)

"""A pool of processes of one thread each, which end with their parent or when it is interrupted."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def deaf() -> Iterator[None]:
    """Processes started in the block never hear Ctrl-C; this one hears it after the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool; an exception inside the block ends its processes at once.

    The executor itself would wait for tasks that have begun, and a worker that Ctrl-C interrupts
    would take the next.
    """
    spawn = multiprocessing.get_context("spawn")  # forked torch threads may hang
    before = set(multiprocessing.active_children())
    with ProcessPoolExecutor(count, mp_context=spawn, initializer=_begin) as executor:
        try:
            yield executor
        except BaseException:
            for worker in set(multiprocessing.active_children()) - before:
                worker.kill()
            raise


def _begin() -> None:
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would go on with its task for hours."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

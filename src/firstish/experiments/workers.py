"""A pool of single-threaded processes, which end with their parent or when it is interrupted."""

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
def sigint_blocked() -> Iterator[None]:
    """Processes started in the block ignore Ctrl-C; this one receives it after the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes; an exception in the block kills them.

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
    """Exit when the parent does; if it was killed, the task could take hours more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

"""How a worker process begins: one thread, and an end with its parent."""

from __future__ import annotations

import multiprocessing
import os
import threading

import torch


def begin() -> None:
    """The initializer of a pool of processes."""
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would go on with its task for hours."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

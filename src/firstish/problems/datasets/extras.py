"""Packages that only the data need."""

from __future__ import annotations

import importlib
from typing import Any

from firstish.interface.extras import install

_PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn"}


def need(module: str, purpose: str) -> Any:
    """Import a module, or say what to install.

    Args:
        module: its full name.
        purpose: what it is wanted for, the subject of the error.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        raise ImportError(
            f"{purpose} needs {_PACKAGES.get(top, top)}, which cannot be imported ({error}). "
            f"Run: {install('data')}."
        ) from error

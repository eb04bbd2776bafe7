"""JSON as browsers and other programs read it: without NaN and Infinity."""

from __future__ import annotations

import json
import math
from typing import Any


def dumps(content: object, indent: int | None = None) -> str:
    """The content as JSON, with null for every float that is not finite.

    >>> dumps({"value": float("inf"), "steps": [1.0, float("nan")]})
    '{"value": null, "steps": [1.0, null]}'
    """
    return json.dumps(_finite(content), indent=indent, allow_nan=False)


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content

"""Zhang and Hager's reference value: a weighted mean of the objective so far.

    Q' = eta Q + 1,    C' = (eta Q C + f) / Q'

From Q = 0 the first C is f itself. eta = 0 makes the search monotone, eta = 1 compares with the
plain mean of all values.
"""

from __future__ import annotations

import math


def updated(weight: float, mean: float, value: float, eta: float) -> tuple[float, float]:
    """Q' and C' from Q, C and f.

    >>> updated(2.0, 5.0, 2.0, eta=1.0)
    (3.0, 4.0)
    """
    new_weight = eta * weight + 1
    total = eta * weight * mean + value
    if math.isinf(total):  # the sum overflows, the mean does not
        return new_weight, eta * weight / new_weight * mean + value / new_weight
    return new_weight, total / new_weight

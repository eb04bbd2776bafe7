"""Imported once by the server of `small_runs`: what takes a process long the first time.

No derivative is computed here: torch's threads would not live on in a child.
"""

from __future__ import annotations

from io import BytesIO

import torch._dynamo  # noqa: F401  (which torch.optim imports when it is first used)
from matplotlib import pyplot as plt
from plotly.offline import get_plotlyjs

import attacks.small_runs  # noqa: F401
from firstish.problems.datasets.readers.digits import load_digits

load_digits()
get_plotlyjs()
figure, axis = plt.subplots()
axis.plot([1.0, 2.0], label="found, so that fonts are")
for kind in ("png", "pdf"):
    figure.savefig(BytesIO(), format=kind)
plt.close(figure)

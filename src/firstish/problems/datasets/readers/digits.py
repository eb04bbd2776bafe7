"""The digits that come with scikit-learn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from firstish.problems.datasets.errors import refused
from firstish.problems.datasets.extras import need
from firstish.problems.datasets.readers.images import LabelledImages

ROWS = 1_797
CLASSES = tuple(str(digit) for digit in range(10))


def load_digits() -> LabelledImages:
    """1,797 images of 8x8, entries 0 to 16, in scikit-learn's order."""
    found = need("sklearn.datasets", "The digits data set").load_digits()
    images: NDArray[np.uint8] = found.images.astype(np.uint8)
    if images.shape != (ROWS, 8, 8) or images.max() != 16:
        raise refused(
            "sklearn.datasets.load_digits()",
            expected=f"{ROWS} images of 8x8, entries up to 16",
            found=f"shape {images.shape}, entries up to {images.max()}",
            remedy="Install another version of scikit-learn.",
        )
    return LabelledImages(images, found.target.astype(np.int64), CLASSES)

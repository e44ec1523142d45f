"""Labels, and predictions that are often right."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def drawn(classes: int, count: int = 200) -> tuple[Ints, Ints]:
    rng = np.random.default_rng(classes)
    labels = rng.integers(classes, size=count)
    noise = rng.integers(classes, size=count)
    return labels, np.where(rng.random(count) < 0.6, labels, noise)

"""Values of tensors that follow from a configuration, for ``Constant``."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def sinusoidal_positions(
    count: int, width: int, *, interleaved: bool = False
) -> "NDArray[np.float32]":
    """Return sinusoidal position embeddings, (count, width), float32.

    Position ``p`` has the sines and cosines of ``p / 10000 ** (2 * k / width)`` for ``k`` from 0
    (Vaswani et al. 2017, arXiv:1706.03762, section 3.5), computed in float64.
    """
    import numpy as np

    pairs = np.arange(width) // 2
    angles = np.arange(count)[:, None] / np.power(10000, 2 * pairs / width)
    sines = np.sin(angles[:, 0::2])
    cosines = np.cos(angles[:, 1::2])
    table = np.concatenate((sines, cosines), axis=1)
    if interleaved:
        table[:, 0::2] = sines
        table[:, 1::2] = cosines
    return table.astype(np.float32)

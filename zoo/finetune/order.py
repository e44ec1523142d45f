"""Order of rows of different lengths, so that the rows of a batch are of similar length."""

import numpy as np
from numpy.typing import NDArray

from zoo.data.rng import generator

WINDOW = 50  # batches that are sorted together, as in transformers' LengthGroupedSampler


class LengthGroupedOrder:
    """Endless sequence of row indices: every epoch has each row once, in a new order.

    An epoch is shuffled and cut into windows of ``WINDOW`` batches. The rows of a window are sorted
    by length and cut into batches, and the batches of the epoch are shuffled. If a batch does not
    divide an epoch, the first batch of the next one is filled with random rows.

    Args:
        lengths: number of tokens of each row, (rows,).
        batch_size: number of rows of a step.
        seed: seed of the run.
    """

    def __init__(self, lengths: NDArray[np.int64], batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed = lengths, batch_size, seed
        self._epoch, self._order = -1, np.zeros(0, dtype=np.int64)

    def __getitem__(self, number: int) -> int:
        """Return the row at a position of the sequence."""
        epoch, place = divmod(number, len(self.lengths))
        if epoch != self._epoch:
            self._order, self._epoch = self.epoch(epoch), epoch
        return int(self._order[place])

    def epoch(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows of an epoch in order, (rows,)."""
        rows, size = len(self.lengths), self.batch_size
        rng = generator(self.seed, "order", epoch)
        shuffled = rng.permutation(rows)
        first = min(-epoch * rows % size, rows)  # rows that complete the batch before
        whole = (rows - first) // size * size
        middle = [
            window[np.argsort(self.lengths[window], kind="stable")]
            for window in _split(shuffled[first : first + whole], size * WINDOW)
        ]
        batches = np.concatenate([*middle, np.zeros(0, np.int64)]).reshape(-1, size)
        mixed = batches[rng.permutation(len(batches))].ravel()
        return np.concatenate([shuffled[:first], mixed, shuffled[first + whole :]])


def _split(rows: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]

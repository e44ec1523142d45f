"""Random selection of the held-out documents."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from zoo.data.rng import generator
from zoo.errors import UsageError

BLOCK = 1 << 16


class ValidationSplit:
    """Selects a fraction of the documents, and at least one."""

    # Each document is drawn independently, so that documents appended later do not change the
    # selection.

    def __init__(self, documents: Iterable[str], fraction: float, seed: int) -> None:
        self.fraction = fraction
        self.seed = seed
        self._number = -1
        self._draws = np.zeros(0)
        self._sure = self._lowest(documents) if fraction else -1

    def _lowest(self, documents: Iterable[str]) -> int:
        """Return the index of the document to hold out if none is drawn, or -1."""
        number = -1
        lowest = -1
        least = 1.0
        for number, _ in enumerate(documents):
            draw = self._draw(number, 1)[0]
            if draw < self.fraction:
                return -1
            if draw < least:
                lowest = number
                least = draw
        if number == 0:
            raise UsageError(
                "one document cannot be split into training and validation",
                "separate documents by blank lines, or take each line as one by "
                "document_separator=line of data.reader, or give other files to evaluate on",
            )
        return lowest

    def is_held_out(self, first: int, count: int) -> NDArray[np.bool_]:
        """Return the mask of held-out documents among ``count`` ones from index ``first``, bool."""
        chosen = self._draw(first, count) < self.fraction
        if first <= self._sure < first + count:
            chosen[self._sure - first] = True
        return chosen

    def _draw(self, first: int, count: int) -> NDArray[np.float64]:
        # in blocks with generators of their own, so that any range can be drawn
        parts = []
        while count > 0:
            block, start = divmod(first, BLOCK)
            if block != self._number:
                self._draws = generator(self.seed, "held out", block).random(BLOCK)
                self._number = block
            parts.append(self._draws[start : start + count])
            first = first + len(parts[-1])
            count = count - len(parts[-1])
        return np.concatenate(parts)

"""Random selection of the held-out documents."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from zoo.data.rng import generator
from zoo.errors import UsageError

BLOCK = 1 << 16


class ValidationSplit:
    """Selects a fraction of the documents, and at least one.

    Each document is drawn independently, so that documents appended later do not change the
    selection.
    """

    def __init__(self, documents: Iterable[str], fraction: float, seed: int) -> None:
        self.fraction = fraction
        self.seed = seed
        self._block = -1  # Number of the block of ``_draws``.
        self._draws = np.zeros(0)
        # Index of the document that is held out if none is drawn, or -1.
        self._substitute = -1
        if fraction:
            self._substitute = self._find_substitute(documents)

    def _find_substitute(self, documents: Iterable[str]) -> int:
        """Return the index of the document to hold out if none is drawn, or -1."""
        number = -1
        substitute = -1
        lowest_draw = 1.0
        for number, _ in enumerate(documents):
            draw = self._draw(number, 1)[0]
            if draw < self.fraction:
                return -1
            if draw < lowest_draw:
                substitute = number
                lowest_draw = draw
        if number == 0:
            raise UsageError(
                "one document cannot be split into training and validation",
                "separate documents by blank lines, or take each line as one by "
                "document_separator=line of data.reader, or give other files to evaluate on",
            )
        return substitute

    def is_held_out(self, first: int, count: int) -> NDArray[np.bool_]:
        """Return the mask of held-out documents among ``count`` ones from index ``first``, bool."""
        mask = self._draw(first, count) < self.fraction
        if first <= self._substitute < first + count:
            mask[self._substitute - first] = True
        return mask

    def _draw(self, first: int, count: int) -> NDArray[np.float64]:
        # Each block has a generator of its own, so that any range can be drawn.
        parts = []
        while count > 0:
            block, start = divmod(first, BLOCK)
            if block != self._block:
                self._draws = generator(self.seed, "held out", block).random(BLOCK)
                self._block = block
            parts.append(self._draws[start : start + count])
            first = first + len(parts[-1])
            count = count - len(parts[-1])
        return np.concatenate(parts)

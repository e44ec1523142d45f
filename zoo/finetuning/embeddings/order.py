"""Order of rows in which no text occurs twice in a batch."""

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from zoo.finetuning.embeddings.data import TextGroup
from zoo.finetuning.order import ProportionalMixture, Rows
from zoo.overrides import override

EXCHANGED = 100  # batches in which a place for the last rows of an epoch is sought


class NoDuplicatesOrder(ProportionalMixture):
    """Order in which no batch has a text twice, as far as the data allows."""

    # A row with a text of the batch waits for the next one (``NoDuplicatesBatchSampler`` of
    # sentence-transformers). Epochs consist of whole batches: rows that remain begin the next one.
    # Equal texts have equal numbers in ``texts``, (rows, columns).

    def __init__(self, texts: NDArray[np.int64], batch_size: int, seed: int) -> None:
        whole = len(texts) // batch_size * batch_size
        super().__init__(np.zeros(len(texts), np.int64), whole, seed)
        self.batch_size = batch_size
        self.texts = [frozenset(row) for row in texts.tolist()]

    def duplicates(self, epoch: int) -> int:
        """Return the number of rows of an epoch with a text of another row of their batch."""
        count = 0
        for batch in self.epoch(epoch).reshape(-1, self.batch_size).tolist():
            times = Counter(text for row in batch for text in self.texts[row])
            count += sum(any(times[text] > 1 for text in self.texts[row]) for row in batch)
        return count

    @override
    def epoch(self, epoch: int) -> Rows:
        waiting = deque(super().epoch(epoch).tolist())
        batches = list[list[int]]()
        while waiting:
            batch = list[int]()
            passed = list[int]()
            texts = set[int]()
            while waiting and len(batch) < self.batch_size:
                row = waiting.popleft()
                if texts.isdisjoint(self.texts[row]):
                    batch.append(row)
                    texts |= self.texts[row]
                else:
                    passed.append(row)
            missing = self.batch_size - len(batch)
            batches.append(batch)
            for row in passed[:missing]:  # no later row fits
                batch.append(self._exchange(row, batch, batches[-EXCHANGED:-1]))
            waiting.extendleft(reversed(passed[missing:]))
        return np.array(batches, np.int64).ravel()

    def _fits(self, row: int, batch: Sequence[int]) -> bool:
        return all(self.texts[row].isdisjoint(self.texts[other]) for other in batch)

    def _exchange(self, row: int, batch: list[int], earlier: list[list[int]]) -> int:
        """Swap a row with one of an earlier batch so that both fit; return the row if none does."""
        for other in reversed(earlier):
            if self._fits(row, other):
                for place, candidate in enumerate(other):
                    if self._fits(candidate, batch):
                        other[place] = row
                        return candidate
        return row


def text_numbers(samples: Sequence[TextGroup]) -> Rows:
    """Number the texts, equal texts alike, (rows, columns)."""
    numbers: dict[str, int] = {}
    return np.array(
        [[numbers.setdefault(text, len(numbers)) for text in s.texts] for s in samples], np.int64
    )

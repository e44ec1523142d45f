"""Order of rows in which no text occurs twice in a batch."""

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from zoo.finetuning.embeddings.data import TextGroup
from zoo.finetuning.order import ProportionalMixture, Rows
from zoo.overrides import override

EXCHANGED_BATCHES = 100  # batches in which a place for the last rows of an epoch is sought


class NoDuplicatesOrder(ProportionalMixture):
    """Order in which no batch has a text twice, as far as the data allows.

    A row with a text of the batch waits for the next one (``NoDuplicatesBatchSampler`` of
    sentence-transformers). Epochs consist of full batches: rows that remain begin the next one.

    Args:
        texts: numbers of the texts, (rows, columns); equal texts have equal numbers.
        batch_size: rows of a batch.
        seed: the seed of the order.
    """

    def __init__(self, texts: NDArray[np.int64], batch_size: int, seed: int) -> None:
        epoch_rows = len(texts) // batch_size * batch_size
        super().__init__(np.zeros(len(texts), np.int64), epoch_rows, seed)
        self.batch_size = batch_size
        self.texts = [frozenset(row) for row in texts.tolist()]

    def duplicates(self, epoch: int) -> int:
        """Return the number of rows of an epoch with a text of another row of their batch."""
        count = 0
        for batch in self.epoch(epoch).reshape(-1, self.batch_size).tolist():
            text_counts = Counter[int]()
            for row in batch:
                text_counts.update(self.texts[row])
            for row in batch:
                if any(text_counts[text] > 1 for text in self.texts[row]):
                    count += 1
        return count

    @override
    def epoch(self, epoch: int) -> Rows:
        waiting = deque(super().epoch(epoch).tolist())
        batches = list[list[int]]()
        while waiting:
            batch = list[int]()
            skipped_rows = list[int]()
            texts = set[int]()
            while waiting and len(batch) < self.batch_size:
                row = waiting.popleft()
                if texts.isdisjoint(self.texts[row]):
                    batch.append(row)
                    texts |= self.texts[row]
                else:
                    skipped_rows.append(row)
            missing_count = self.batch_size - len(batch)
            batches.append(batch)
            # The batch is only incomplete if no later row fits.
            for row in skipped_rows[:missing_count]:
                batch.append(self._exchange(row, batch, batches[-EXCHANGED_BATCHES:-1]))
            waiting.extendleft(reversed(skipped_rows[missing_count:]))
        return np.array(batches, np.int64).ravel()

    def _fits(self, row: int, batch: Sequence[int]) -> bool:
        return all(self.texts[row].isdisjoint(self.texts[other]) for other in batch)

    def _exchange(self, row: int, batch: list[int], earlier: list[list[int]]) -> int:
        """Swap a row with one of an earlier batch so that both fit; return the row if none does."""
        for earlier_batch in reversed(earlier):
            if self._fits(row, earlier_batch):
                for place, candidate in enumerate(earlier_batch):
                    if self._fits(candidate, batch):
                        earlier_batch[place] = row
                        return candidate
        return row


def text_numbers(samples: Sequence[TextGroup]) -> Rows:
    """Number the texts, equal texts alike, (rows, columns)."""
    numbers: dict[str, int] = {}
    rows = []
    for sample in samples:
        rows.append([numbers.setdefault(text, len(numbers)) for text in sample.texts])
    return np.array(rows, np.int64)

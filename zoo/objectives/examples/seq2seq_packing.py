"""Packing of texts into the encoder's and the decoder's row at once, by known lengths."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from zoo.data.packing import BudgetFactory, Documents
from zoo.errors import UsageError

Lengths = Callable[[int], tuple[int, int] | None]


class Seq2SeqRowBudget:
    """Free tokens of an encoder's and a decoder's row; a text needs room in both.

    Args:
        length: number of tokens of the encoder's row.
        decoder_length: number of tokens of the decoder's row.
        sources: length of the source of a text of 1, 2, ... tokens.
        targets: length of its target.
    """

    def __init__(
        self, length: int, decoder_length: int, sources: Sequence[int], targets: Sequence[int]
    ) -> None:
        self.free, self.decoder_free = length, decoder_length
        self.sources, self.targets = sources, targets

    def capacity(self) -> int:
        """See ``zoo.data.packing.RowBudget``."""
        return min(
            bisect_right(self.sources, self.free), bisect_right(self.targets, self.decoder_free)
        )

    def add(self, tokens: int) -> None:
        """See ``zoo.data.packing.RowBudget``."""
        self.free -= self.sources[tokens - 1]
        self.decoder_free -= self.targets[tokens - 1]


def plan_decoder_length(
    lengths: Lengths, documents: Documents, length: int
) -> tuple[BudgetFactory, int]:
    """Choose the length of decoder rows for which both rows are full.

    It depends on the lengths of documents: for short texts, sentinels and end-of-text tokens make
    targets longer in relation to their sources.

    Args:
        lengths: number of tokens of a text -> largest lengths of its source and target, without
            end-of-text tokens; both must not decrease. ``None`` for a text that is too long for
            any row.
        documents: the documents.
        length: number of tokens of the encoder's row.

    Returns:
        Factory of the budgets of empty rows, and number of tokens of the decoder's row.

    Raises:
        UsageError: a row has no room for text.
    """
    pairs: list[tuple[int, int]] = []
    while (pair := lengths(len(pairs) + 1)) is not None and pair[0] < length:
        pairs.append((pair[0] + 1, pair[1] + 1))
    if not pairs:
        raise UsageError(f"rows of {length} tokens have no place for text", "make them longer")
    whole, rest = np.divmod(np.diff(documents.document_starts()), len(pairs))
    texts = np.bincount(rest, minlength=len(pairs) + 1)
    texts[-1] = whole.sum()
    source, target = texts[1:] @ np.array(pairs)
    decoder_length = max(round(length * target / source), pairs[-1][1])
    sources, targets = zip(*pairs, strict=True)
    return partial(Seq2SeqRowBudget, length, decoder_length, sources, targets), decoder_length

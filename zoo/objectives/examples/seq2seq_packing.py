"""Packing of texts into the encoder's and the decoder's row at once, by known lengths."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from zoo.data.packing import BudgetFactory, Documents, RowBudget
from zoo.errors import UsageError
from zoo.overrides import override

Lengths = Callable[[int], tuple[int, int] | None]


class Seq2SeqRowBudget(RowBudget):
    """Free tokens of an encoder's and a decoder's row; a text needs room in both."""

    def __init__(
        self, length: int, decoder_length: int, sources: Sequence[int], targets: Sequence[int]
    ) -> None:
        self.free = length
        self.decoder_free = decoder_length
        # by number of tokens of a text, from 1: lengths of its source and target, not decreasing
        self.sources = sources
        self.targets = targets

    @override
    def capacity(self) -> int:
        return min(
            bisect_right(self.sources, self.free), bisect_right(self.targets, self.decoder_free)
        )

    @override
    def add(self, tokens: int) -> None:
        self.free -= self.sources[tokens - 1]
        self.decoder_free -= self.targets[tokens - 1]


def plan_decoder_length(
    lengths: Lengths, documents: Documents, length: int, special_tokens: int = 1
) -> tuple[BudgetFactory, int]:
    """Choose the length of decoder rows for which both rows are full."""
    # It depends on the lengths of documents: for short texts, sentinels and special tokens make
    # targets longer in relation to their sources.
    pairs: list[tuple[int, int]] = []
    while (pair := lengths(len(pairs) + 1)) is not None and pair[0] + special_tokens <= length:
        pairs.append((pair[0] + special_tokens, pair[1] + special_tokens))
    if not pairs:
        raise UsageError(f"rows of {length} tokens have no place for text", "make them longer")
    whole, rest = np.divmod(np.diff(documents.document_starts()), len(pairs))
    texts = np.bincount(rest, minlength=len(pairs) + 1)
    texts[-1] = whole.sum()
    source, target = texts[1:] @ np.array(pairs)
    decoder_length = max(round(length * target / source), pairs[-1][1])
    sources, targets = zip(*pairs, strict=True)
    return partial(Seq2SeqRowBudget, length, decoder_length, sources, targets), decoder_length

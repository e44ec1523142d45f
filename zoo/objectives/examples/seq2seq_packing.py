"""Packing of texts into the encoder's and the decoder's row at once, by known lengths."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from zoo.data.document_stream import BLOCK_DOCUMENTS, Documents
from zoo.data.packing import BudgetFactory, RowBudget, TemplateBudget
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
        # Lengths of source and target by the number of tokens of a text, from 1; not decreasing.
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
    """Choose the length of decoder rows for which both rows are full.

    It depends on the lengths of documents: for short texts, sentinels and special tokens make
    targets longer in relation to their sources.
    """
    sources: list[int] = []
    targets: list[int] = []
    while True:
        pair = lengths(len(sources) + 1)
        if pair is None or pair[0] + special_tokens > length:
            break
        sources.append(pair[0] + special_tokens)
        targets.append(pair[1] + special_tokens)
    if not sources:
        raise UsageError(f"rows of {length} tokens have no place for text", "make them longer")
    # Documents are cut into texts of the largest number of tokens, and a remainder.
    texts = np.zeros(len(sources) + 1, dtype=np.int64)
    for first in range(0, documents.num_documents, BLOCK_DOCUMENTS):
        last = min(first + BLOCK_DOCUMENTS, documents.num_documents)
        spans = documents.document_spans(first, last)
        full_texts, remainders = np.divmod(spans[:, 1] - spans[:, 0], len(sources))
        texts += np.bincount(remainders, minlength=len(texts))
        texts[-1] += full_texts.sum()
    source_tokens = texts[1:] @ np.array(sources)
    target_tokens = texts[1:] @ np.array(targets)
    decoder_length = max(round(length * target_tokens / source_tokens), targets[-1])
    if sources == targets == [special_tokens + size for size in range(1, len(sources) + 1)]:
        # Sources and targets fill their rows alike.
        return partial(TemplateBudget, length, special_tokens), length
    new_row = partial(Seq2SeqRowBudget, length, decoder_length, tuple(sources), tuple(targets))
    return new_row, decoder_length

"""Rows of the encoder and of the decoder that are filled at once, by texts of known lengths."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from zoo.data.packing import BudgetFactory
from zoo.errors import UsageError

if TYPE_CHECKING:
    from zoo.data.corpus import Split

Lengths = Callable[[int], tuple[int, int] | None]


class Seq2SeqRowBudget:
    """A row of the encoder and one of the decoder; a text takes room in both.

    Args:
        length: places in the encoder's row.
        decoder_length: places in the decoder's row.
        sources: places that the source of a text takes; the first entry is for one token.
        targets: places that its target takes.
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


def plan_decoder_length(lengths: Lengths, split: "Split", length: int) -> tuple[BudgetFactory, int]:
    """Fit the rows of the decoder to those of the encoder.

    They are as long as the corpus needs it for both to be full: short texts have long targets
    for their sources, where marks and ends count for more.

    Args:
        lengths: tokens of a text -> places that its source and its target take at most, without
            the token that ends each; neither less for more tokens. ``None`` for a text that is
            too long whatever the row is.
        split: the corpus.
        length: places in the encoder's row.

    Returns:
        what makes an empty row, and places in the decoder's.

    Raises:
        UsageError: a row has no place for text.
    """
    found: list[tuple[int, int]] = []
    while (each := lengths(len(found) + 1)) is not None and each[0] < length:
        found.append((each[0] + 1, each[1] + 1))
    if not found:
        raise UsageError(f"rows of {length} tokens have no place for text", "make them longer")
    whole, rest = np.divmod(np.diff(split.document_starts()), len(found))
    texts = np.bincount(rest, minlength=len(found) + 1)
    texts[-1] = whole.sum()
    source, target = texts[1:] @ np.array(found)
    decoder_length = max(round(length * target / source), found[-1][1])
    sources, targets = zip(*found, strict=True)
    return partial(Seq2SeqRowBudget, length, decoder_length, sources, targets), decoder_length

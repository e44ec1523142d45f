"""Reading the first part of a text, and writing the rest (arXiv:1910.10683, section 3.2.2).

The parts meet at any place, each as likely (``random_prefix_noise_mask`` of the released code).
Drawn for each text alone, that would leave rows half empty: a row would have to hold whole texts
on either side. So the texts of a row are of two sorts. What the first sort reads of a text is as
large a part of it as what the second sort writes. Both rows are then full where each sort alone
would fill one of them.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from zoo.data.packing import BudgetFactory
from zoo.objectives.examples.vocabulary import Ids
from zoo.objectives.seq2seq import Seq2SeqObjective

if TYPE_CHECKING:
    from zoo.data.corpus import Split

MIN_TOKENS = 2  # places of either row that a text takes at least: a token, and one that ends it
RESERVE_DIVISOR = 16  # tokens of a text that the room left for others counts on


class PrefixRowBudget:
    """A row of the encoder and one of the decoder, equally long, for texts of two sorts.

    A text takes ``LEAST`` places of one row, and of the other one as many as it has tokens, at
    the two ends of what can be drawn: the room of the first sort is that where it reads most,
    the room of the second that where it writes most.

    Args:
        length: places in each row.
    """

    def __init__(self, length: int) -> None:
        self.free = [length, length]  # for either sort

    @property
    def kind(self) -> int:
        """Which sort the next text is of: 0 for the first, 1 for the second."""
        return int(self.free[1] > self.free[0])

    def capacity(self) -> int:
        """See ``zoo.data.packing.RowBudget``; leaves room for texts of the other sort."""
        own, other = self.free[self.kind], self.free[1 - self.kind]
        return own - MIN_TOKENS - other // RESERVE_DIVISOR if other >= MIN_TOKENS else 0

    def add(self, tokens: int) -> None:
        """See ``zoo.data.packing.RowBudget``."""
        sort = self.kind
        self.free[sort] -= max(tokens, MIN_TOKENS)
        self.free[1 - sort] -= MIN_TOKENS


def draw_split_points(sizes: Ids, length: int, rng: np.random.Generator) -> Ids:
    """Draw where each text of a row is cut, (texts,).

    One draw decides for all: the share that the first sort reads and the second writes. Rounding
    can make a row too long, by less than a place a text; then some texts are cut one place
    further on, or before.

    Args:
        sizes: (texts,), tokens of each; they fit into ``PrefixRowBudget``.
        length: places in each row.
        rng: for the draws.

    Returns:
        how many tokens of each are read: at least one, and not all; none of a single token.
    """
    row, sorts = PrefixRowBudget(length), []
    for size in sizes.tolist():
        sorts.append(row.kind)
        row.add(size)
    drawn = 1 + (rng.random() * (sizes - 1)).astype(np.int64)
    found = np.where((np.array(sorts) == 1) | (sizes == 1), sizes - drawn, drawn)
    read, written = int((found + 1).sum()), int((sizes - found + 1).sum())
    if read > length:
        found[rng.permutation(np.flatnonzero(found > 1))[: read - length]] -= 1
    if written > length:
        found[rng.permutation(np.flatnonzero(sizes - found > 1))[: written - length]] += 1
    return found


class PrefixLm(Seq2SeqObjective):
    """Read the first part of a text, and write the rest. Tables 3 and 4, prefix language modeling.

    Thank you for inviting -> me to your party last week .
    """

    name: ClassVar[str] = "prefix-lm"

    def plan_rows(self, split: "Split") -> tuple[BudgetFactory, int]:
        """See ``Seq2SeqObjective``."""
        return partial(PrefixRowBudget, self.length), self.length

    def source_target_pairs(
        self, texts: Sequence[Ids], rng: np.random.Generator
    ) -> Sequence[tuple[Ids, Ids]]:
        """See ``Seq2SeqObjective``."""
        found = draw_split_points(np.array([len(text) for text in texts]), self.length, rng)
        return [(text[:cut], text[cut:]) for text, cut in zip(texts, found.tolist(), strict=True)]

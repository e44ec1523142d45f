"""Prefix language modelling: a text's first part is the source, the rest the target."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from zoo.data.document_stream import Documents
from zoo.data.packing import BudgetFactory, RowBudget
from zoo.objectives.examples.vocabulary import Ids
from zoo.objectives.seq2seq import Seq2SeqObjective
from zoo.overrides import override

RESERVE_DIVISOR = 16  # Expected number of tokens per text, for the reserved room.


class PrefixRowBudget(RowBudget):
    """The free tokens of an encoder's and a decoder's row for texts of two kinds."""

    # At either end of the range of draws, a text has one token in one row, and its others in the
    # other row, with special tokens in both. The budget of the first kind is for the longest
    # sources, the budget of the second for the longest targets.

    def __init__(self, length: int, special_tokens: int) -> None:
        self.free = [length, length]  # free tokens for either kind
        self.special_tokens = special_tokens  # of each source and target

    @property
    def least(self) -> int:
        """Length of the shortest source or target."""
        return 1 + self.special_tokens

    @property
    def kind(self) -> int:
        """Kind of the next text, 0 or 1: the one with more room."""
        return int(self.free[1] > self.free[0])

    @override
    def capacity(self) -> int:
        """Return the number of tokens that fit, with room reserved for texts of the other kind."""
        free = self.free[self.kind]
        opposite = self.free[1 - self.kind]
        if opposite < self.least:
            return 0
        return free - 2 * self.special_tokens - opposite // RESERVE_DIVISOR

    @override
    def add(self, tokens: int) -> None:
        kind = self.kind  # The next text may be of the other kind.
        self.free[kind] -= max(tokens - 1, 1) + self.special_tokens
        self.free[1 - kind] -= self.least


def draw_split_points(
    sizes: Ids, length: int, special_tokens: int, rng: np.random.Generator
) -> Ids:
    """Draw the number of source tokens of each text of a row, (texts,).

    It is at least one, and not all; 0 for a text of a single token.

    Args:
        sizes: number of tokens per text, (texts,), which fit into ``PrefixRowBudget``.
        length: tokens of the encoder's and of the decoder's row.
        special_tokens: number of special tokens of each source and target.
        rng: random generator of the row.
    """
    row = PrefixRowBudget(length, special_tokens)
    kinds = []
    for size in sizes.tolist():
        kinds.append(row.kind)
        row.add(size)
    draws = 1 + (rng.random() * (sizes - 1)).astype(np.int64)
    cuts = np.where((np.array(kinds) == 1) | (sizes == 1), sizes - draws, draws)
    # Rounding can make a row too long, by less than a token per text; then the split points of some
    # texts move by one token.
    source_excess = int((cuts + special_tokens).sum()) - length
    target_excess = int((sizes - cuts + special_tokens).sum()) - length
    if source_excess > 0:
        cuts[rng.permutation(np.flatnonzero(cuts > 1))[:source_excess]] -= 1
    if target_excess > 0:
        cuts[rng.permutation(np.flatnonzero(sizes - cuts > 1))[:target_excess]] += 1
    return cuts


class PrefixLm(Seq2SeqObjective):
    """Predicts the rest of a text from its first part. Tables 3 and 4, prefix language modeling."""

    # Thank you for inviting -> me to your party last week .

    # Raffel et al. 2020 (arXiv:1910.10683, section 3.2.2). The split point is uniform
    # (``random_prefix_noise_mask`` of the released code). Drawn for each text independently, it
    # would leave rows half empty, since a row would need room for whole texts on either side. So
    # the texts of a row are of two kinds, and one draw decides for all: the fraction of a text that
    # is source in the first kind is target in the second. Together they fill the encoder's and the
    # decoder's row.

    name: ClassVar[str] = "prefix-lm"

    @override
    def plan_rows(self, documents: Documents) -> tuple[BudgetFactory, int]:
        return partial(PrefixRowBudget, self.length, self.special_count), self.length

    @property
    def special_count(self) -> int:
        """Number of special tokens of each source and target."""
        return sum(map(len, self.special_tokens))

    @override
    def source_target_pairs(
        self, texts: Sequence[Ids], rng: np.random.Generator
    ) -> Sequence[tuple[Ids, Ids]]:
        sizes = np.array([len(text) for text in texts])
        cuts = draw_split_points(sizes, self.length, self.special_count, rng)
        return [(text[:cut], text[cut:]) for text, cut in zip(texts, cuts.tolist(), strict=True)]

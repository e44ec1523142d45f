"""The order of words and of sentences, in addition to masked language modelling.

Wang et al. 2019, arXiv:1908.04577, section 2.2. The released code (AliceMind) only fine-tunes, so
that what the paper leaves open is decided here:

* 5 % of the tokens are in shuffled trigrams, as the authors say in the paper's reviews. Trigrams do
  not overlap, have no token that was selected for masking, and do not cross a segment.
* A trigram gets one of its six orders, all equally likely, also the one that it had.
* The classes of pairs are those of next-sentence prediction, and a third: 0, the second segment
  follows the first one; 1, it is from another document; 2, it precedes the first one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from zoo.objectives.base import Batch, Example, LossOutput, Outputs
from zoo.objectives.examples.packing import PackedRow
from zoo.objectives.examples.sentence_pair_data import PairGenerator, structure_pairs
from zoo.objectives.examples.vocabulary import Ids
from zoo.objectives.losses.predictions import cross_entropy_sum, value_rows
from zoo.objectives.masked import MaskedLanguageModelling, MaskedOptions
from zoo.objectives.options import Options
from zoo.objectives.sentence_pairs import PairOptions, SentencePairs
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

WORD_STRUCTURE = "word-structure"  # The loss term.
TRIGRAM = 3  # Tokens that are shuffled together (section 2.2.1, K).


class WordStructureOptions(MaskedOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of masking and of shuffling."""

    # Number of tokens in shuffled trigrams, as a fraction of a row's tokens; 0 for none, and no
    # loss of them.
    shuffle_prob: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shuffle_prob(self)


class StructureOptions(PairOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of masking, of pairs and of shuffling."""

    # Number of tokens in shuffled trigrams, as a fraction of a row's tokens; 0 for none, and no
    # loss of them.
    shuffle_prob: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shuffle_prob(self)


def check_shuffle_prob(options: WordStructureOptions | StructureOptions) -> None:
    """Check that masked tokens leave room for shuffled ones."""
    options.check_fraction("shuffle_prob", ends=True)
    if options.mask_prob + options.shuffle_prob > 1:
        raise ValueError(
            f"mask_prob = {options.mask_prob} and shuffle_prob = {options.shuffle_prob} add up to "
            "more than 1"
        )


def count_trigrams(tokens: int, fraction: float) -> int:
    """Return the number of trigrams to shuffle in a row with a number of tokens, at least one."""
    return max(1, round(tokens * fraction / TRIGRAM))


def select_trigrams(packed: PackedRow, masked: Ids, count: int, rng: np.random.Generator) -> Ids:
    """Select trigrams to shuffle: their positions, (n, 3), in the order of the row.

    Args:
        packed: the row.
        masked: positions of the tokens that are selected for masking.
        count: number of trigrams, fewer if the row has no more.
        rng: random generator.
    """
    segments = packed.document_ids * packed.is_text
    segments[masked] = 0
    first_tokens = segments[:-2]
    # A trigram is within one document, and none of its tokens is masked.
    is_joined = (first_tokens == segments[1:-1]) & (first_tokens == segments[2:])
    starts = np.flatnonzero((first_tokens > 0) & is_joined)
    is_taken = np.zeros(len(segments), dtype=bool)
    selection: list[int] = []
    for start in rng.permutation(starts).tolist():
        if len(selection) == count:
            break
        trigram = slice(start, start + TRIGRAM)
        if not is_taken[trigram].any():
            is_taken[trigram] = True
            selection.append(start)
    return np.array(sorted(selection), dtype=np.int64)[:, None] + np.arange(TRIGRAM)


class WordStructure(MaskedLanguageModelling):
    """Predicts masked tokens, and the original tokens of shuffled trigrams."""

    name: ClassVar[str] = "masked-lm+word-structure"
    options_type: ClassVar[type[Options]] = WordStructureOptions

    @property
    @override
    def token_terms(self) -> Mapping[str, tuple[str, str]]:
        terms = super().token_terms
        if not self.options.shuffle_prob:
            return terms
        return {**terms, WORD_STRUCTURE: ("shuffled_positions", "shuffled_labels")}

    @property
    @override
    def visible_labels(self) -> Mapping[str, float]:
        # The row has all shuffled tokens.
        return {**super().visible_labels, WORD_STRUCTURE: 1.0}

    @override
    def mask_row(self, packed: PackedRow, rng: np.random.Generator) -> Example:
        """Return a row with masked tokens, and with shuffled trigrams of the others."""
        row = super().mask_row(packed, rng)
        if not self.options.shuffle_prob:
            return row
        masked = row.positions["label_positions"][1]
        tokens = int(np.count_nonzero(packed.document_ids))
        count = count_trigrams(tokens, self.options.shuffle_prob)
        trigrams = select_trigrams(packed, masked, count, rng)
        ids = row.arrays["input_ids"].copy()
        ids[trigrams] = rng.permuted(ids[trigrams], axis=1)
        positions = trigrams.reshape(-1)
        return Example(
            {**row.arrays, "input_ids": ids},
            values={**row.values, "shuffled_labels": packed.input_ids[positions]},
            positions={**row.positions, "shuffled_positions": ("input_ids", positions)},
            counts={**row.counts, WORD_STRUCTURE: len(positions)},
        )

    @override
    def max_values(self, batch: Batch) -> dict[str, int]:
        if not self.options.shuffle_prob:
            return super().max_values(batch)
        names = ("shuffled_labels", "shuffled_positions")
        most = TRIGRAM * count_trigrams(self.length, self.options.shuffle_prob)
        return super().max_values(batch) | dict.fromkeys(names, most)

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        loss = super().loss(outputs, batch)
        if not self.options.shuffle_prob:
            return loss
        rows = value_rows(batch, "shuffled_positions")
        logits = outputs.logits[WORD_STRUCTURE]
        shuffled = cross_entropy_sum(logits, batch["shuffled_labels"], WORD_STRUCTURE, rows)
        return LossOutput(
            loss.sums | shuffled.sums,
            loss.metrics | {"word_structure_accuracy": shuffled.metrics["accuracy"]},
            row_sums=loss.row_sums | shuffled.row_sums,
        )


class StructuralPretraining(WordStructure, SentencePairs):
    """Predicts masked and shuffled tokens, and how the second segment of a pair follows."""

    name: ClassVar[str] = "masked-lm+word-structure+sentence-structure"
    head: ClassVar[str] = "structural-pretraining"
    options_type: ClassVar[type[Options]] = StructureOptions
    term: ClassVar[str] = "sentence-structure"
    make_pairs: ClassVar[PairGenerator] = staticmethod(structure_pairs)
    swap: ClassVar[bool] = True
    swapped_label: ClassVar[int] = 2
    num_labels: ClassVar[int] = 3
    min_documents: ClassVar[int] = 2
